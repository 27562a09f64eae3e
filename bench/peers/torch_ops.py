#!/usr/bin/env python3
"""Times the operators of `ridge bench ops` in PyTorch, eager and compiled, on the same shapes, in turns with Ridge.

    bench/peers/torch_ops.py -m model.gguf --op rms_norm,swiglu,matmul -r 3 -o ops.json

Each round runs Ridge once for one operator (all of its shapes and checkpoints), then PyTorch on the same shapes. What
PyTorch multiplies is bf16, its activations too: it has no kernels for the formats of quantised GGUF files, so where
Ridge reads 4 bits a weight it reads 16 (`bytes_ratio`). Layouts are PyTorch's own, [out, in] weights and [heads,
positions, d_head] caches, so nothing has to be turned. Weights and caches take turns as Ridge's do: copies of them,
together `--copies-mb`. Compiled is torch.compile with its default mode; on the CPU that needs a C++ compiler.
"""
import argparse
import itertools
import pathlib
import statistics
import time

import records
from records import programs

SAMPLE_S = 0.02
RUN_S = 20e-6  # of calls, on the CPU


class Work:
    """One operator at one shape: copies of its operands, and the function of one of them."""

    def __init__(self, torch, op, shape, device, copies_mb):
        self.torch, self.device = torch, device
        self.dtype = torch.bfloat16
        make = getattr(self, op, None)
        self.function = None
        if make is None:
            return
        self.function, one = make(shape)
        n_bytes = sum(t.numel() * t.element_size() for t in one)
        n = max(1, min(64, int(copies_mb * 1e6 / max(n_bytes, 1)))) if op in ("matmul", "attention", "embed_rows") else 1
        self.copies = [one] + [make(shape)[1] for _ in range(n - 1)]

    def random(self, *shape):
        return self.torch.randn(*shape, device=self.device).to(self.dtype)

    def rms_norm(self, s):
        x, weight = self.random(s["n_rows"], s["n_heads"], s["d_in"]), self.random(s["d_in"])
        d = s["d_in"]
        return (lambda x, w: self.torch.nn.functional.rms_norm(x, (d,), w, 1e-5)), (x, weight)

    def matmul(self, s):
        x = self.random(s["n_rows"], s["d_in"])
        weight = self.random(sum(w["d_out"] for w in s["weights"]), s["d_in"])  # side by side, as one
        return (lambda x, w: x @ w.T), (x, weight)

    def swiglu(self, s):
        silu = self.torch.nn.functional.silu
        return (lambda gate, up: silu(gate) * up), (self.random(s["n_rows"], s["d_in"]),
                                                    self.random(s["n_rows"], s["d_in"]))

    def add(self, s):
        return (lambda x, y: x + y), (self.random(s["n_rows"], s["d_in"]), self.random(s["n_rows"], s["d_in"]))

    def rope(self, s):
        half = s["d_rope"] // 2
        x = self.random(s["n_rows"], s["n_heads"], s["d_head"])
        cosine, sine = self.random(s["n_rows"], 1, half), self.random(s["n_rows"], 1, half)

        def rotate(x, c, sn):
            a, b = x[..., :half], x[..., half : 2 * half]
            return self.torch.cat((a * c - b * sn, b * c + a * sn, x[..., 2 * half :]), -1)

        return rotate, (x, cosine, sine)

    def embed_rows(self, s):
        table = self.random(s["weights"][0]["d_out"], s["d_in"])
        tokens = self.torch.randint(0, table.shape[0], (s["n_rows"],), device=self.device)
        return (lambda t, i: t[i]), (table, tokens)

    def attention(self, s):
        n_ctx, n_rows = s["sequences"][0]["n_ctx"], s["sequences"][0]["n_rows"]
        n = len(s["sequences"])
        q = self.random(n, s["n_heads"], n_rows, s["d_head"])
        k, v = (self.random(n, s["n_kv_heads"], n_ctx, s["d_head"]) for _ in range(2))
        attend = self.torch.nn.functional.scaled_dot_product_attention
        causal = n_rows > 1
        return (lambda q, k, v: attend(q, k, v, is_causal=causal, enable_gqa=True)), (q, k, v)

    def sample(self, s):
        return (lambda x: x.argmax(-1)), (self.random(s["n_rows"], s["d_in"]),)

    def synchronize(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def sample_ns(self, function):
        """Time of a call, every copy in turn for SAMPLE_S, after one call of each: as Ridge takes it, on the CPU the
        median over runs of calls, on a GPU the mean of calls that are waited for all together."""
        with self.torch.no_grad():
            for operands in self.copies:
                function(*operands)
            self.synchronize()
            runs, n, n_of_run, run_begin = [], 0, 0, time.perf_counter()
            begin = run_begin
            for operands in itertools.cycle(self.copies):
                function(*operands)
                n, n_of_run, now = n + 1, n_of_run + 1, time.perf_counter()
                if now - run_begin >= RUN_S:
                    runs.append((now - run_begin) / n_of_run * 1e9)
                    n_of_run, run_begin = 0, now
                if now - begin > SAMPLE_S and n >= len(self.copies):
                    break
            self.synchronize()
            if self.device == "cpu" and runs:
                return statistics.median(runs)
            return (time.perf_counter() - begin) / n * 1e9


def table(results):
    lines = ["| operator | Ridge's best | us | torch, us | compiled, us | Ridge: x torch | x compiled |",
             "|---|---|---:|---:|---:|---:|---:|"]
    for r in results:
        best = min(r["checkpoints"], key=lambda c: c["median_ns"])
        cells = [f"{best['median_ns'] / 1e3:.2f}"]
        peers = [r.get("torch"), r.get("torch_compiled")]
        cells += [f"{p['median_ns'] / 1e3:.2f}" if p else "" for p in peers]
        cells += [f"{p['median_ns'] / best['median_ns']:.2f}" if p else "" for p in peers]
        lines.append(f"| {r['case']} | {best['checkpoint']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="a GGUF file, a folder, or synth:NAME:FORMAT")
    parser.add_argument("--ridge", default="build/cpu/ridge")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--op", default="rms_norm,matmul,rope,attention,swiglu,add,embed_rows,sample")
    parser.add_argument("-p", "--n-prompt", default="128", help="rows of a prompt's step")
    parser.add_argument("-d", "--n-depth", default="128")
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("--copies-mb", type=float, default=256, help="of weights and caches (default: 256)")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("-o", "--output", help="file for the JSON")
    options = parser.parse_args()
    programs.check_ranges(("-t", options.threads, 1, 1024), ("-r", options.rounds, 1, 1000))
    torch = records.torch_for(options.device)
    torch.set_num_threads(options.threads)
    torch._dynamo.config.recompile_limit = 1000  # a version for each shape
    if options.output:
        programs.prepare_output(options.output)

    begin, results, about = records.now(), [], {}
    for op in options.op.split(","):
        of_op, works = [], []
        for number in range(options.rounds):
            said = programs.json_of([options.ridge, "bench", "ops", "-m", options.model, "--op", op, "-p",
                                     options.n_prompt, "-d", options.n_depth, "-t", options.threads, "-r", "1",
                                     "--device", "cpu" if options.device == "cpu" else "cuda:0", "--json", "-q"])
            about = {key: said[key] for key in ("build_commit", "device", "isa", "n_threads", "model_filename")}
            if number == 0:
                of_op = said["operators"]
                for r in of_op:
                    work = Work(torch, op, r["shape"], options.device, options.copies_mb)
                    works.append((work, None if options.no_compile or work.function is None
                                  else torch.compile(work.function, dynamic=False)))
            for r, now, (work, compiled) in zip(of_op, said["operators"], works):
                for mine, again in zip(r["checkpoints"], now["checkpoints"]):
                    mine.setdefault("all", []).extend(again["samples_ns"])
                for key, function in (("torch", work.function), ("torch_compiled", compiled)):
                    if function is not None:
                        r.setdefault(key, {"samples_ns": []})["samples_ns"].append(work.sample_ns(function))
        for r in of_op:
            for one in r["checkpoints"]:
                one["samples_ns"] = one.pop("all")
                one["median_ns"] = statistics.median(one["samples_ns"])
                for key in ("gbps", "gflops", "times_plain"):
                    del one[key]
            for key in ("torch", "torch_compiled"):
                if key in r:
                    r[key]["median_ns"] = statistics.median(r[key]["samples_ns"])
        results += of_op
    print(table(results))
    if options.output:
        programs.write_json(options.output, {
            **about, **records.when(begin), "machine": records.torch_machine(torch, options.device),
            "torch": torch.__version__, "rounds": options.rounds,
            "model": pathlib.Path(options.model).name, "operators": results})


if __name__ == "__main__":
    main()
