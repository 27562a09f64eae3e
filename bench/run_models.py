#!/usr/bin/env python3
"""Times `ridge run` on several models in turns and writes every sample as JSON.

    bench/run_models.py -r 5 -n 32 -o bench/results/MACHINE/run.json model.gguf synth-1b.gguf

Each round runs every model once, in the order given and then backwards, in a fresh process with a warm page cache:
one prompt, greedy, end tokens ignored. Printed are medians with their lowest and highest values.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys

PROMPT = ("Explain in plain words why a river bends, what the water does at the inner and at the outer bank, and how "
          "long it takes until a bend is cut off and left behind as a lake.")


def run(ridge, model, n):
    command = [ridge, "run", "-m", model, "-p", PROMPT, "--greedy", "--ignore-eos", "-n", str(n), "--json", "-q"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
    result = json.loads(done.stdout)
    return result["model"], result["timings"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("-n", type=int, default=32, help="tokens to generate")
    parser.add_argument("-o", "--output", help="file for the JSON")
    parser.add_argument("--ridge", default="build/cpu/ridge")
    options = parser.parse_args()

    version = json.loads(subprocess.run([options.ridge, "version", "--json"], capture_output=True, text=True,
                                        check=True).stdout)
    samples = {model: [] for model in options.models}
    about = {}
    for model in options.models:  # warms the page cache; not counted
        run(options.ridge, model, 1)
    for round_number in range(options.rounds):
        order = options.models if round_number % 2 == 0 else options.models[::-1]
        for model in order:
            about[model], timings = run(options.ridge, model, options.n)
            samples[model].append(timings)
            print(f"round {round_number + 1}: {os.path.basename(model)}: {timings['generate_tok_s']:.1f} tok/s",
                  file=sys.stderr)
    print("| model | prompt tok/s | generated tok/s | share of the bound | peak memory |\n|---|---|---|---|---|")
    for model in options.models:
        def cell(field, digits, scale=1.0):
            values = [s[field] * scale for s in samples[model]]
            return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
        print(f"| {os.path.basename(model)} | {cell('prompt_tok_s', 1)} | {cell('generate_tok_s', 1)} | "
              f"{cell('bound_share', 0, 100)} % | {cell('peak_memory_bytes', 0, 1e-6)} MB |")
    if options.output:
        os.makedirs(os.path.dirname(options.output) or ".", exist_ok=True)
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump({"machine": version["cpu"], "n_threads": version["n_threads"], "system": platform.platform(),
                       "commit": version["commit"], "compiler": version["compiler"], "n_gen": options.n,
                       "models": [{"path": os.path.basename(m), "about": {k: v for k, v in about[m].items() if k != "path"},
                                   "samples": samples[m]} for m in options.models]}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
