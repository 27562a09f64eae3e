#!/usr/bin/env python3
"""Times cuBLAS at the products of decode: few rows times bf16 weights, of the shapes of published models.

    bench/peers/cublas_matvec.py -B 1,8 -o bench/results/MACHINE/cublas_matvec.json

Weights are read from memory: each shape has so many copies, used in turns, that they are --cold-mb together, far more
than a cache holds. All copies are multiplied one after the other in one CUDA graph, so that no launch is waited for,
and the graph is timed; a sample is its time over the number of products. Through torch, once with cuBLAS and once with
cuBLASLt, and the faster of the two is kept. Rates are weight bytes over time. Needs torch; --device cpu tries the
script out, without a graph.
"""
import argparse
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import programs  # noqa: E402
import records  # noqa: E402

# [d_out, d_in] of a layer's products, weights that read the same input as one, and of the head.
SHAPES = {
    "llama-3.2-1b": {"qkv": (3072, 2048), "o": (2048, 2048), "gate_up": (16384, 2048), "down": (2048, 8192),
                     "head": (128256, 2048)},
    "qwen3-4b": {"qkv": (6144, 2560), "o": (2560, 4096), "gate_up": (19456, 2560), "down": (2560, 9728),
                 "head": (151936, 2560)},
    "tiny": {"qkv": (512, 256), "down": (256, 768)},
}


def make_run(torch, device, weights, x):
    """What multiplies all copies once."""
    out = torch.empty(x.shape[0], weights[0].shape[0], dtype=x.dtype, device=device)

    def run():
        for weight in weights:
            torch.mm(x, weight.t(), out=out)
    if device == "cpu":
        return run
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def time_run(torch, device, run):
    """Nanoseconds of one run."""
    if device == "cpu":
        begin = time.perf_counter_ns()
        run()
        return time.perf_counter_ns() - begin
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return round(1e6 * begin.elapsed_time(end))


def samples_of(torch, options, weights, n_rows):
    """The library that was faster, and nanoseconds of a product."""
    x = torch.randn(n_rows, weights[0].shape[1], device=options.device).to(torch.bfloat16)
    best = None
    for library in ("cublas", "cublaslt") if options.device == "cuda" else ("cpu",):
        if options.device == "cuda":
            torch.backends.cuda.preferred_blas_library(library)
        run = make_run(torch, options.device, weights, x)
        for _ in range(2):
            time_run(torch, options.device, run)
        samples_ns = [time_run(torch, options.device, run) / len(weights) for _ in range(options.repetitions)]
        if best is None or min(samples_ns) < min(best[1]):
            best = (library, samples_ns)
    return best


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", action="append", choices=sorted(SHAPES), help="repeatable")
    parser.add_argument("-B", "--n-rows", type=records.numbers, default=[1, 8])
    parser.add_argument("-r", "--repetitions", type=int, default=11)
    parser.add_argument("--cold-mb", type=int, default=1000, help="copies of a weight together (default: 1000)")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("-o", "--output", help="file for the JSON; default: standard output")
    options = parser.parse_args()
    programs.check_ranges(("-r", options.repetitions, 1, 1000), ("--cold-mb", options.cold_mb, 1, 100000),
                          ("-B", min(options.n_rows), 1, max(options.n_rows)))
    return options


def main():
    options = parse()
    if options.output:
        programs.prepare_output(options.output)
    torch = records.torch_for(options.device)
    about = {"machine": records.torch_machine(torch, options.device),
             "peer": {"name": "cuBLAS" if options.device == "cuda" else "CPU", "torch": torch.__version__}}
    results = []
    for model in options.model or ["llama-3.2-1b", "qwen3-4b"]:
        for name, (d_out, d_in) in SHAPES[model].items():
            weight_bytes = 2 * d_out * d_in
            n_copies = max(3, -(-options.cold_mb * 1000000 // weight_bytes))
            weights = [torch.randn(d_out, d_in, device=options.device).to(torch.bfloat16) for _ in range(n_copies)]
            for n_rows in options.n_rows:
                begin = records.now()
                library, samples_ns = samples_of(torch, options, weights, n_rows)
                median_ns = sorted(samples_ns)[len(samples_ns) // 2]
                results.append({**about, "model": model, "op": "matmul", "weight": name, "format": "BF16",
                                "n_rows": n_rows, "d_in": d_in, "d_out": d_out, "weight_bytes": weight_bytes,
                                "library": library, "n_copies": n_copies, **records.when(begin),
                                "median_ns": median_ns, "median_gbps": weight_bytes / median_ns,
                                "samples_ns": samples_ns})
                print(f"{model} {name}, {n_rows} x {d_in} x {d_out}: {1e-3 * median_ns:.2f} us, "
                      f"{weight_bytes / median_ns:.0f} GB/s ({library})", file=sys.stderr, flush=True)
            del weights
    programs.write_results(options.output, results)


if __name__ == "__main__":
    main()
