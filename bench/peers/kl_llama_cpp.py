#!/usr/bin/env python3
"""Holds the KL divergence of Ridge against llama.cpp's: same files, same text, same reference distribution.

    bench/peers/llama_cpp.py build --folder /opt/peer
    bench/peers/kl_llama_cpp.py --folder /opt/peer -o kl.json model.gguf
    bench/peers/kl_llama_cpp.py --folder /opt/peer --requantise Q8_0,Q4_0,Q5_0,Q5_1 -o kl.json model.gguf

Needs numpy, and the gguf package for --requantise. For each model:

1. `ridge eval` with the float32 checkpoint (--reference-checkpoint) and a float32 cache writes the logits of every
   scored position: the reference, which equals transformers in float32 on the same dequantised weights.
2. These are written in the format of llama-perplexity's --kl-divergence-base, which holds the tokens too (so both
   score the very same ones) and log probabilities in 16 bits.
3. `ridge eval` and llama-perplexity run on the model, reading it as a prompt (llama.cpp: -b 512 -ub 512) and a token
   a step as generation does (--rows decode; -b 1 -ub 1), both with a cache of f16.
4. Ridge's mean KL divergence is computed twice: exactly (by `ridge eval`, float64), and by llama-perplexity's own
   formula from the 16-bit base. The second is what is compared. `base` is that formula on the reference itself,
   whose exact divergence is 0: what the 16 bits and the formula's cut at exp(-16) add.

The rule: Ridge's divergence is at most 1.1 times llama.cpp's, for each model and kind of row; the exit status is 1
where it is not. Of several builds of llama.cpp the one with the least divergence counts.
"""
import argparse
import os
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import llama_cpp  # noqa: E402
import programs  # noqa: E402

try:
    import numpy as np
except ImportError:
    programs.fail("needs numpy, as of: pip install numpy")

LIMIT = 1.1
ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = ROOT / "tests/golden_data/eval_text.txt"
HEADER = np.dtype([("magic", "S8"), ("version", "<u4"), ("n_vocab", "<u4"), ("window", "<u4"), ("n_windows", "<u4"),
                   ("n_positions", "<u8"), ("source", "S96")])
ROWS = {"prompt": ["-b", "512", "-ub", "512"], "decode": ["-b", "1", "-ub", "1"]}


def run(command, output_of=programs.output_of):
    print("+ " + " ".join(str(word) for word in command), file=sys.stderr, flush=True)
    return output_of(command)


class Logits:
    """A file of `ridge eval --save-logits`; src/cmd/eval_logits.h describes it."""

    def __init__(self, path):
        header = np.fromfile(path, HEADER, 1)[0]
        assert header["magic"] == b"RidgeLog" and header["version"] == 1, path
        self.n_vocab, self.window = int(header["n_vocab"]), int(header["window"])
        self.n_windows, n_positions = int(header["n_windows"]), int(header["n_positions"])
        self.tokens = np.fromfile(path, "<i4", self.n_windows * self.window, offset=HEADER.itemsize)
        self.first, self.each = self.window // 2, self.window - 1 - self.window // 2
        assert n_positions == self.n_windows * self.each, "whole windows are needed: no --max-positions"
        self.rows = np.memmap(path, "<f4", "r", HEADER.itemsize + self.tokens.nbytes, (n_positions, self.n_vocab))

    def next_tokens(self):
        return self.tokens.reshape(self.n_windows, self.window)[:, self.first + 1:].reshape(-1)


# llama-perplexity's arithmetic, in float32 where it has float32 (tools/perplexity/perplexity.cpp).

def quantise(row):
    """A row of logits as (scale, lowest log probability, 16-bit steps)."""
    top = row.max()
    low = max(row.min(), np.float32(top - np.float32(16)))
    log_sum = np.float32(np.log(np.exp(row - top).sum(dtype=np.float64)))
    scale = np.float32((top - low) / np.float32(65535))
    lowest = np.float32(low - top - log_sum)
    steps = np.rint((np.float32(1) / scale) * (row - low)) if scale else np.zeros_like(row)
    return scale, lowest, np.clip(steps, 0, 65535).astype(np.uint16)


def divergence(scale, lowest, steps, row):
    """The divergence of a row of logits from a row of the base."""
    top = row.max()
    log_sum = np.float32(top + np.float32(np.log(np.exp(row - top).sum(dtype=np.float64))))
    log_base = scale * steps.astype(np.float32) + lowest
    kept = log_base > -16
    log_base, row = log_base[kept], row[kept]
    return float((np.exp(log_base) * (log_base - row + log_sum)).sum(dtype=np.float64))


def write_base(logits, path):
    padded = 2 * ((logits.n_vocab + 1) // 2) + 4
    with open(path, "wb") as file:
        file.write(b"_logits_")
        np.array([logits.window, logits.n_vocab, logits.n_windows], "<i4").tofile(file)
        logits.tokens.tofile(file)
        for row in logits.rows:
            scale, lowest, steps = quantise(np.asarray(row))
            out = np.zeros(padded, "<u2")
            out[:4] = np.array([scale, lowest], "<f4").view("<u2")
            out[4:4 + logits.n_vocab] = steps
            out.tofile(file)


def mean_from_base(path, logits):
    """llama-perplexity's mean divergence and its standard error, of saved logits from a base."""
    padded = 2 * ((logits.n_vocab + 1) // 2) + 4
    base = np.memmap(path, "<u2", "r", 20 + logits.tokens.nbytes, (len(logits.rows), padded))
    values = []
    for head, row in zip(base, logits.rows):
        scale, lowest = np.array(head[:4]).view("<f4")
        values.append(divergence(scale, lowest, head[4:4 + logits.n_vocab], np.asarray(row)))
    return float(np.mean(values)), float(np.std(values) / np.sqrt(len(values) - 1))


def run_ridge(options, model, *more):
    return run([options.ridge, "eval", "-m", model, "-f", options.text, "-t", options.threads, "--json", "-q", *more],
               programs.json_of)


def run_llama(options, program, model, base, rows):
    """What llama-perplexity says of itself."""
    begin = time.monotonic()
    out = run([program, "-m", model, "-t", options.threads, "-c", "512", *ROWS[rows], "-ngl", "0", "--kl-divergence",
               "--kl-divergence-base", base])

    def number(pattern):
        found = re.search(pattern + r"\s*(-?[0-9.]+)(?: ±\s*([0-9.]+))?", out)
        if found is None:
            programs.fail(f"{program}: its output has no line {pattern}")
        return [float(group) for group in found.groups() if group is not None]
    return {"kl": number(r"Mean\s+KLD:"), "kl_median": number(r"Median\s+KLD:")[0],
            "kl_p99": number(r"99\.0%\s+KLD:")[0], "kl_max": number(r"Maximum KLD:")[0],
            "perplexity": number(r"Mean PPL\(Q\)\s*:"), "base_perplexity": number(r"Mean PPL\(base\)\s*:"),
            "top1_agreement": number(r"Same top p:")[0] / 100, "p_rms_difference": number(r"RMS Δp\s*:")[0] / 100,
            "seconds": time.monotonic() - begin}


def measure(options, model):
    folder = pathlib.Path(options.work)
    reference, base, mine = folder / "reference.logits", folder / "reference.base", folder / "measured.logits"
    result = {"file": os.path.basename(model), "rows": {}}
    result["reference"] = run_ridge(options, model, "--checkpoint", options.reference_checkpoint, "-ctk", "f32",
                                    "-ctv", "f32", "--save-logits", reference, "--force")
    logits = Logits(reference)
    write_base(logits, base)
    result["base"] = mean_from_base(base, logits)
    builds = llama_cpp.builds(options.folder, "llama-perplexity")
    for rows in ROWS:
        more = ["--checkpoint", options.checkpoint] if options.checkpoint else []
        ridge = run_ridge(options, model, "--rows", rows, "--reference", reference, "--save-logits", mine, "--force",
                          *more)
        ridge["kl_from_base"] = mean_from_base(base, Logits(mine))
        peers = {name: run_llama(options, program, model, base, rows) for name, program in builds.items()}
        least = min(peer["kl"][0] for peer in peers.values())
        result["rows"][rows] = {"ridge": ridge, "llama_cpp": peers,
                                "ratio": ridge["kl_from_base"][0] / least if least > 0 else float("inf")}
    for path in (reference, base, mine):
        path.unlink()
    return result


# Quantised files for wider evidence: the weights of a model that is quantised already, encoded anew.

def requantise(source, folder, kind):
    """A GGUF file of `source` with its matrices in another format; norms and metadata stay. Not made twice."""
    try:
        import gguf
    except ImportError:
        programs.fail("--requantise needs gguf, as of: pip install gguf")
    path = folder / f"{pathlib.Path(source).stem}.from-{kind}.gguf"
    if path.exists():
        return path
    reader = gguf.GGUFReader(source)
    fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    writer = gguf.GGUFWriter(path.with_suffix(".part"), reader.fields["general.architecture"].contents())
    for name, field in fields.items():
        if name == "general.architecture":
            continue
        sub = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub)
    kind_id = gguf.GGMLQuantizationType[kind]
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if len(tensor.shape) == 1:
            writer.add_tensor(tensor.name, values.astype(np.float32))
        else:
            writer.add_tensor(tensor.name, gguf.quants.quantize(values.astype(np.float32), kind_id),
                              raw_dtype=kind_id)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.with_suffix(".part").rename(path)
    return path


def report(results):
    print("| file | rows | Ridge mean KL | exactly | llama.cpp mean KL | ratio | top-1 Ridge, llama.cpp |")
    print("|---|---|---|---|---|---|---|")
    failed = False
    for result in results:
        for rows, row in result["rows"].items():
            ridge, peers = row["ridge"], row["llama_cpp"]
            peer = min(peers.values(), key=lambda p: p["kl"][0])
            failed = failed or not row["ratio"] <= LIMIT
            print(f"| {result['file']} | {rows} | {ridge['kl_from_base'][0]:.3e} | "
                  f"{ridge['reference']['kl']['value']:.3e} | {peer['kl'][0]:.3e} +- {peer['kl'][1]:.0e} | "
                  f"{row['ratio']:.3f}{'' if row['ratio'] <= LIMIT else ' FAILED'} | "
                  f"{100 * ridge['reference']['top1_agreement']:.2f} %, {100 * peer['top1_agreement']:.2f} % |")
        print(f"{result['file']}: what the base adds: {result['base'][0]:.1e}", file=sys.stderr)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--folder", default="/opt/peer", help="where llama_cpp.py has built llama-perplexity")
    parser.add_argument("--ridge", default=str(ROOT / "build/cpu/ridge"))
    parser.add_argument("--text", default=str(TEXT))
    parser.add_argument("--checkpoint", default="", help="that is measured (default: the last)")
    parser.add_argument("--reference-checkpoint", default="plain", help="that makes the reference")
    parser.add_argument("--requantise", default="", help="formats that each model is encoded in too, as Q8_0,Q4_0")
    parser.add_argument("--work", default="/var/tmp/ridge/kl", help="folder for files of some GB")
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)),
                        help="llama.cpp's figures change a little with it, those of Ridge do not")
    parser.add_argument("-o", "--output", help="file for the JSON")
    options = parser.parse_args()

    work = pathlib.Path(options.work)
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        programs.fail(f"--work {work}: {error.strerror}")
    if options.output:
        programs.prepare_output(options.output)
    models = list(options.models)
    for kind in filter(None, options.requantise.split(",")):
        models += [str(requantise(model, work, kind)) for model in options.models]
    version = programs.json_of([options.ridge, "version", "--json"])
    results = [measure(options, model) for model in models]
    failed = report(results)
    if options.output:
        programs.write_json(options.output, {
            "ridge": version, "llama_cpp": llama_cpp.PACKAGE, "text": os.path.basename(options.text), "limit": LIMIT,
            "results": results})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
