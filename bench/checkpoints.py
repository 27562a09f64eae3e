#!/usr/bin/env python3
"""Times the checkpoints of one model in turns, and tells what each one gained.

    bench/checkpoints.py -m model.gguf -p 256 -n 32 -d 0,2048 -r 5 -o bench/results/MACHINE/checkpoints.json

Each round runs every checkpoint once, in order and then backwards, in a fresh process with one warm-up and one sample.
Compared are medians. What a checkpoint gained is the median, over the rounds, of its rate over that of the one before
it in the same round: on a shared machine, rates of one round belong together.
"""
import argparse
import pathlib
import statistics
import sys

import programs
from programs import fail


def bench(options, *arguments):
    """The results of one run of `ridge bench`."""
    return programs.json_of([options.ridge, "bench", "-m", options.model, "-t", options.threads, "-r", "1", "-o",
                             "json", "-q", *arguments])


def run(options, checkpoint):
    """The result of each test."""
    results = bench(options, "--checkpoint", checkpoint, "-p", options.n_prompt, "-n", options.n_gen, "-d",
                    options.n_depth)
    return {(r["n_prompt"], r["n_gen"], r["n_depth"]): r for r in results}


def names(options):
    """All checkpoints, in order: those that a run of one token goes through."""
    return [r["checkpoint"] for r in bench(options, "--checkpoint", "all", "-p", "1", "-n", "0", "--no-warmup")]


def name(test):
    n_prompt, n_gen, n_depth = test
    what = f"prompt of {n_prompt}" if n_prompt else "decode"
    return f"{what} at {n_depth}" if n_depth else what


def table(checkpoints, samples):
    tests = list(samples[checkpoints[0]])
    lines = ["| checkpoint | " + " | ".join(f"{name(t)} | gained" for t in tests) + " |",
             "|---|" + "---:|---:|" * len(tests)]
    for i, checkpoint in enumerate(checkpoints):
        cells = []
        for test in tests:
            rates = samples[checkpoint][test]
            gained = ""
            if i > 0:
                before = samples[checkpoints[i - 1]][test]
                gained = f"{statistics.median(a / b for a, b in zip(rates, before)):.2f}"
            cells.append(f"{statistics.median(rates):.1f} ({min(rates):.1f} to {max(rates):.1f}) | {gained}")
        lines.append(f"| `{checkpoint}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="a GGUF file")
    parser.add_argument("--ridge", default="build/cpu/ridge")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-c", "--checkpoints", default="", help="of them, in their order; default: all")
    parser.add_argument("-p", "--n-prompt", default="256", help="0: none")
    parser.add_argument("-n", "--n-gen", default="32", help="0: none")
    parser.add_argument("-d", "--n-depth", default="0")
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("-o", "--output", help="file for the JSON")
    options = parser.parse_args()
    if options.rounds < 1:
        fail(f"-r {options.rounds}: expected 1 or more")
    if options.output:
        programs.prepare_output(options.output)

    all_checkpoints = names(options)
    checkpoints = options.checkpoints.split(",") if options.checkpoints else all_checkpoints
    unknown = [c for c in checkpoints if c not in all_checkpoints]
    if unknown:
        fail(f"-c {unknown[0]}: expected some of {','.join(all_checkpoints)}")

    samples = {c: {} for c in checkpoints}
    about = {}
    for number in range(options.rounds):
        for checkpoint in checkpoints if number % 2 == 0 else checkpoints[::-1]:
            for test, result in run(options, checkpoint).items():
                samples[checkpoint].setdefault(test, []).append(result["samples_ts"][0])
                about = {key: result[key] for key in ("build_commit", "machine", "isa", "model_type", "n_threads",
                                                      "type_k", "type_v", "date")}
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    print(table(checkpoints, samples))
    if options.output:
        results = [{"checkpoint": c, "n_prompt": t[0], "n_gen": t[1], "n_depth": t[2],
                    "median_ts": statistics.median(rates), "samples_ts": rates}
                   for c in checkpoints for t, rates in samples[c].items()]
        document = {**about, "model": pathlib.Path(options.model).name, "rounds": options.rounds, "results": results}
        programs.write_json(options.output, document)


if __name__ == "__main__":
    main()
