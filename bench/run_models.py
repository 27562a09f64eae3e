#!/usr/bin/env python3
"""Times `ridge run` on several models in turns and writes every sample as JSON.

    bench/run_models.py -r 5 -n 32 -o bench/results/MACHINE/run.json model.gguf synth-1b.gguf

Each round runs every model once, in the order given and then backwards, in a fresh process with a warm page cache:
one prompt, greedy, end tokens ignored. Printed are medians with their lowest and highest values. The JSON has the
fields of `ridge bench`, of each model a test of the prompt and one of what is generated after it; `read_walls_gbps` and
what follows from it are missing, and `bound_shares`, `loads_ms` and `peak_memories_bytes` are of each sample.
"""
import argparse
import datetime
import os
import platform
import statistics
import sys

import programs
from programs import fail

PROMPT = ("Explain in plain words why a river bends, what the water does at the inner and at the outer bank, and how "
          "long it takes until a bend is cut off and left behind as a lake.")


def run(options, model, n):
    """What a model is, and the timings of one run."""
    result = programs.json_of([options.ridge, "run", "-m", model, "-p", PROMPT, "--greedy", "--ignore-eos", "-n", n,
                               "--json", "-q"])
    return result["model"], result["timings"]


def count(n):
    return f"{n * 1e-9:.2f}B" if n >= 1e9 else f"{n * 1e-6:.1f}M"


def record(about, version, begin, samples, kind):
    """The prompt of a model's runs, or what they generated, as `ridge bench` writes a test; samples: the timings."""
    first = samples[0]
    n_prompt = first["prompt_tokens"]
    # The prompt's step draws the first token: one step fewer is timed than tokens are generated.
    n_steps = round(first["generate_tok_s"] * first["generate_ms"] * 1e-3)
    test = {"n_prompt": n_prompt, "n_gen": 0, "n_depth": 0}
    if kind == "generate":
        test = {"n_prompt": 0, "n_gen": n_steps, "n_depth": n_prompt}
    samples_ns = [round(1e6 * s[f"{kind}_ms"]) for s in samples]
    rates = [s[f"{kind}_tok_s"] for s in samples]

    def spread(values):
        return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0, statistics.median(values)
    avg_ns, stddev_ns, median_ns = (round(value) for value in spread(samples_ns))
    avg_ts, stddev_ts, median_ts = spread(rates)
    return {
        "build_commit": version["commit"], "build_version": version["version"], "cpu_info": version["cpu"],
        "machine": {"cpu": version["cpu"], "n_cores": version["n_threads"],
                    "os": f"{platform.system()} {platform.release()} {platform.machine()}"},
        "device": about["device"], "isa": about["isa"], "checkpoint": about["checkpoint"],
        "fallbacks": about["fallbacks"], "tuning": about["tuning"], "model_filename": about["path"],
        "model_type": f"{about['architecture']} {count(about['n_parameters'])} {about['format']}",
        "model_size": about["weight_bytes"], "model_n_params": about["n_parameters"], "n_threads": about["n_threads"],
        "type_k": "f16", "type_v": "f16", "n_parallel": 1, **test, "date": begin.date().isoformat(),
        "test_time": begin.strftime("%Y-%m-%dT%H:%M:%SZ"), "load_ms": statistics.median(s["load_ms"] for s in samples),
        "avg_ns": avg_ns, "stddev_ns": stddev_ns, "median_ns": median_ns, "avg_ts": avg_ts, "stddev_ts": stddev_ts,
        "median_ts": median_ts, "samples_ns": samples_ns, "samples_ts": rates,
        "bound_shares": [s["bound_share"] for s in samples] if kind == "generate" else None,
        "loads_ms": [s["load_ms"] for s in samples], "peak_memories_bytes": [s["peak_memory_bytes"] for s in samples],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("-n", type=int, default=32, help="tokens to generate")
    parser.add_argument("-o", "--output", help="file for the JSON")
    parser.add_argument("--ridge", default="build/cpu/ridge")
    options = parser.parse_args()
    for name, value, least in (("-r", options.rounds, 1), ("-n", options.n, 2)):
        if value < least:
            fail(f"{name} {value}: expected {least} or more")
    if len(set(options.models)) < len(options.models):
        fail("a model is given twice")
    if options.output:
        programs.prepare_output(options.output)

    version = programs.json_of([options.ridge, "version", "--json"])
    samples = {model: [] for model in options.models}
    about, begin = {}, {}
    for model in options.models:  # warms the page cache; not counted
        run(options, model, 1)
    for round_number in range(options.rounds):
        order = options.models if round_number % 2 == 0 else options.models[::-1]
        for model in order:
            begin.setdefault(model, datetime.datetime.now(datetime.timezone.utc))
            about[model], timings = run(options, model, options.n)
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
        programs.write_json(options.output, [record(about[model], version, begin[model], samples[model], kind)
                                             for model in options.models for kind in ("prompt", "generate")])


if __name__ == "__main__":
    main()
