#!/usr/bin/env python3
"""Times llama.cpp's CUDA backend by its own llama-bench, and for several sequences at once by llama-batched-bench.

    bench/peers/llama_cpp_cuda.py --bench build/bin/llama-bench -m llama-3.2-1b.Q4_0.gguf -p 2048 -n 64 -d 128,8000 \\
        --batched-bench build/bin/llama-batched-bench -B 8 -o bench/results/MACHINE/llama_cpp_cuda.json
    ridge bench -m llama-3.2-1b.Q4_0.gguf -p 2048 -n 64 -d 128,8000 -B 1,8

All layers are on the GPU (-ngl 99), flash attention is on, and the programs are those given: build them with
-DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90a (or the GPU's own). Prompts are timed at depth 0. `ridge synth` writes
models of random weights. llama.cpp draws no token from its logits here: llama-bench feeds random ones.

The JSON is llama-bench's, with the fields of `ridge bench` that it lacks; tests of llama-batched-bench are written the
same way, -r runs of it each.
"""
import argparse
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import programs  # noqa: E402
import records  # noqa: E402


def joined(values):
    return ",".join(str(value) for value in values)


def bench(options, model, prompts, gens, depths):
    """One run of llama-bench; its results with what they lack."""
    results = programs.json_of(
        [options.bench, "-m", model, "-ngl", 99, "-fa", 1, "-p", joined(prompts), "-n", joined(gens), "-d",
         joined(depths), "-ub", options.ubatch, "-r", options.repetitions, "-o", "json"])
    if not isinstance(results, list) or not all(isinstance(result, dict) and result.get("samples_ts")
                                                for result in results):
        programs.fail(f"{options.bench}: its JSON is no list of results with samples_ts")
    for result in results:
        result["median_ts"] = statistics.median(result["samples_ts"])
        result["n_parallel"] = 1
        result["date"] = result.get("test_time", "")[:10]
    return results


def batched(options, model, n_parallel, n_gen, depth):
    """-r runs of llama-batched-bench: n_parallel sequences of `depth` positions, and n_gen tokens of each."""
    n_ctx = n_parallel * (depth + n_gen)
    begin = records.now()
    seconds = []
    for _ in range(options.repetitions):
        output = programs.output_of(
            [options.batched_bench, "-m", model, "-ngl", 99, "-fa", "on", "-c", n_ctx, "-ub", options.ubatch, "-npp",
             depth, "-ntg", n_gen, "-npl", n_parallel, "--output-format", "jsonl"])
        lines = [line for line in output.splitlines() if line.startswith("{")]
        try:
            seconds.append(float(json.loads(lines[-1])["t_tg"]))
        except (IndexError, KeyError, ValueError):
            programs.fail(f"{options.batched_bench}: no line of JSON with t_tg")
    return {"model_filename": str(model), "n_ubatch": options.ubatch, "type_k": "f16", "type_v": "f16",
            "n_parallel": n_parallel, "n_prompt": 0, "n_gen": n_gen, "n_depth": depth, **records.when(begin),
            **records.rates([round(1e9 * s) for s in seconds], n_parallel * n_gen)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="the program llama-bench")
    parser.add_argument("--batched-bench", help="the program llama-batched-bench; wanted for -B above 1")
    parser.add_argument("-m", "--model", action="append", required=True, help="a GGUF file; repeatable")
    parser.add_argument("-p", "--n-prompt", type=records.numbers, default=[2048], help="0: none")
    parser.add_argument("-n", "--n-gen", type=int, default=64, help="0: none")
    parser.add_argument("-d", "--n-depth", type=records.numbers, default=[128, 8000])
    parser.add_argument("-B", "--n-parallel", type=records.numbers, default=[1])
    parser.add_argument("-ub", "--ubatch", type=int, default=512)
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("--runtime", default="", help='version of CUDA that it was built with: "CUDA 13.0"')
    parser.add_argument("-o", "--output", help="file for the JSON; default: standard output")
    options = parser.parse_args()
    programs.check_ranges(("-n", options.n_gen, 0, 100000), ("-r", options.repetitions, 1, 1000),
                          ("-ub", options.ubatch, 1, 65536),
                          ("-B", min(options.n_parallel), 1, max(options.n_parallel)))
    if max(options.n_parallel) > 1 and not options.batched_bench:
        programs.fail(f"-B {joined(options.n_parallel)}: several sequences want --batched-bench")
    for model in options.model:
        if not pathlib.Path(model).is_file():
            programs.fail(f"-m {model}: no such file")
    return options


def tests_of(options, model):
    results = []
    prompts = [n for n in options.n_prompt if n > 0]
    if prompts:
        results += bench(options, model, prompts, [0], [0])
    if options.n_gen == 0:
        return results
    if 1 in options.n_parallel:
        results += bench(options, model, [0], [options.n_gen], options.n_depth)
    for n_parallel in options.n_parallel:
        if n_parallel > 1:
            results += [batched(options, model, n_parallel, options.n_gen, depth) for depth in options.n_depth]
    return results


def main():
    options = parse()
    if options.output:
        programs.prepare_output(options.output)
    machine = records.machine("unknown GPU", options.runtime)
    results = []
    for model in options.model:
        for result in tests_of(options, model):
            machine["gpu"] = result.get("gpu_info") or machine["gpu"]
            peer = {"name": "llama.cpp", "commit": result.get("build_commit", "")}
            results.append({"machine": dict(machine), "peer": peer, **result})
            print(f"{pathlib.Path(model).name}: {result['n_prompt']} + {result['n_gen']} x {result['n_parallel']} "
                  f"behind {result['n_depth']}: {result['median_ts']:.1f} tok/s", file=sys.stderr, flush=True)
        if options.output:
            programs.write_json(options.output, results)
    if not options.output:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
