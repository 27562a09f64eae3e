#!/usr/bin/env python3
"""Times decode steps of a decoder compiled by PyTorch: torch.compile with max-autotune, one CUDA graph, a static cache.

    bench/peers/torch_decode.py -m llama-3.2-1b -m qwen3-4b -d 128,8000 -B 1,8 -o bench/results/MACHINE/torch.json
    ridge bench -m synth:llama-3.2-1b:BF16 -m synth:qwen3-4b:BF16 -p 0 -n 64 -d 128,8000 -B 1,8

Weights and cache are bf16 and random, of the shapes of the published models; Q, K and V, and gate and up, are one
matrix each. The cache is as long as the test needs. A step embeds a token of each sequence, computes the layers and
the logits, draws the most probable tokens and makes them the next step's, all of it in one captured graph; the host
waits for each step's tokens, as `ridge bench` does. Timed is a generation of -n tokens behind -d positions, --warmup
times before the first sample.

What is compiled is the whole step (minutes for each test, since shapes differ), or with --compile layer a single
layer, the same for all, and the head (seconds); the graph is of a whole step in any case. --attention chooses between
scaled_dot_product_attention, in which the heads that share keys are rows of one query, and the same written as two
products, which the compiler may fuse as it likes; `best` times both and keeps the faster. Needs torch; --device cpu
tries the script out, without a graph.
"""
import argparse
import math
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import programs  # noqa: E402
import records  # noqa: E402

# n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff, n_vocab, q/k norm, rope theta; all with a tied head.
SHAPES = {
    "llama-3.2-1b": (16, 2048, 32, 8, 64, 8192, 128256, False, 500000.0),
    "qwen3-4b": (36, 2560, 32, 8, 128, 9728, 151936, True, 1000000.0),
    "tiny": (2, 256, 4, 2, 64, 768, 4096, True, 10000.0),
}
CACHE_STEP = 64  # positions that a cache's length is a multiple of


class Model:
    """Weights, cache and the state of a generation, all at addresses that stay."""

    def __init__(self, torch, shape, device):
        (self.n_layers, self.d_model, self.n_heads, self.n_kv_heads, self.d_head, self.d_ff, self.n_vocab,
         self.qk_norm, self.theta) = shape
        self.torch, self.device = torch, device

        def matrix(n_rows, n_cols):
            made = torch.empty(n_rows, n_cols, dtype=torch.bfloat16, device=device)
            return made.normal_(0, 1 / math.sqrt(n_cols))

        def ones(n):
            return torch.ones(n, dtype=torch.bfloat16, device=device)
        d_q, d_kv = self.n_heads * self.d_head, self.n_kv_heads * self.d_head
        self.embedding = matrix(self.n_vocab, self.d_model)
        self.output_norm = ones(self.d_model)
        self.layers = [
            (ones(self.d_model), matrix(d_q + 2 * d_kv, self.d_model), ones(self.d_head), ones(self.d_head),
             matrix(self.d_model, d_q), ones(self.d_model), matrix(2 * self.d_ff, self.d_model),
             matrix(self.d_model, self.d_ff))
            for _ in range(self.n_layers)]

    def tensors(self):
        return [self.embedding, self.output_norm, *(tensor for layer in self.layers for tensor in layer)]

    def begin(self, n_sequences, n_positions):
        """A random cache, and angles of all its positions."""
        torch = self.torch
        n = -(-n_positions // CACHE_STEP) * CACHE_STEP
        kv = (n_sequences, self.n_kv_heads, n, self.d_head)
        self.cache = [tuple(torch.randn(kv, dtype=torch.bfloat16, device=self.device) for _ in range(2))
                      for _ in range(self.n_layers)]
        frequency = self.theta ** (-torch.arange(0, self.d_head, 2, dtype=torch.float64) / self.d_head)
        angle = torch.outer(torch.arange(n, dtype=torch.float64), frequency)
        self.cos, self.sin = (f(angle).float().to(self.device) for f in (torch.cos, torch.sin))
        self.slots = torch.arange(n, device=self.device)
        self.position = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.tokens = torch.zeros(n_sequences, dtype=torch.int64, device=self.device)


def norm(x, weight):
    wide = x.float()
    return (wide * (wide.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype) * weight


def make_functions(torch, m, attention):
    """A layer and the head, as functions of their weights."""
    functional = torch.nn.functional
    group = m.n_heads // m.n_kv_heads

    def attend(q, k, v, seen):
        # The heads that share keys and values stand as rows of one query: [n_sequences, n_kv_heads, group, d_head].
        q = q.view(q.shape[0], m.n_kv_heads, group, m.d_head)
        if attention == "sdpa":
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        scores = (q @ k.transpose(-1, -2)).float() / math.sqrt(m.d_head)
        return scores.masked_fill(~seen, -math.inf).softmax(-1).to(v.dtype) @ v

    def rotated(x, cos, sin):
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    def layer(x, weights, k_cache, v_cache, position, cos, sin, slots):
        attn_norm, qkv, q_norm, k_norm, o, ffn_norm, gate_up, down = weights
        n = x.shape[0]
        q, k, v = functional.linear(norm(x, attn_norm), qkv).split(
            (m.n_heads * m.d_head, m.n_kv_heads * m.d_head, m.n_kv_heads * m.d_head), -1)
        q, k, v = (part.view(n, -1, m.d_head) for part in (q, k, v))
        if m.qk_norm:
            q, k = norm(q, q_norm), norm(k, k_norm)
        at = (cos.index_select(0, position), sin.index_select(0, position))
        q, k = rotated(q, *at), rotated(k, *at)
        k_cache[:, :, position] = k.unsqueeze(2)
        v_cache[:, :, position] = v.unsqueeze(2)
        seen = (slots <= position).view(1, 1, 1, -1)
        a = attend(q, k_cache, v_cache, seen).reshape(n, -1)
        x = x + functional.linear(a, o)
        gate, up = functional.linear(norm(x, ffn_norm), gate_up).chunk(2, -1)
        return x + functional.linear(functional.silu(gate) * up, down)

    def head(x, output_norm, embedding):
        return functional.linear(norm(x, output_norm), embedding).argmax(-1)
    return layer, head


def make_step(torch, m, options, attention):
    layer, head = make_functions(torch, m, attention)

    def compiled(function):
        return torch.compile(function, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False)
    if options.compile == "layer":
        layer, head = compiled(layer), compiled(head)

    def tokens_after(tokens, position, layers, cache, embedding, output_norm, cos, sin, slots):
        x = embedding.index_select(0, tokens)
        for weights, (k, v) in zip(layers, cache):
            x = layer(x, weights, k, v, position, cos, sin, slots)
        return head(x, output_norm, embedding)
    if options.compile == "step":
        tokens_after = compiled(tokens_after)

    def step():
        m.tokens.copy_(tokens_after(m.tokens, m.position, m.layers, m.cache, m.embedding, m.output_norm, m.cos, m.sin,
                                    m.slots))
        m.position.add_(1)
    if m.device == "cpu":
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def generate(m, step, n_gen, n_depth):
    """Nanoseconds of n_gen steps behind n_depth positions, the host waiting for each one's tokens."""
    m.position.fill_(n_depth)
    m.tokens.fill_(1)
    m.tokens.tolist()
    begin = time.perf_counter_ns()
    for _ in range(n_gen):
        step()
        m.tokens.tolist()
    return time.perf_counter_ns() - begin


def time_test(torch, m, options, n_sequences, n_depth):
    """The attention that was faster, and its samples."""
    kinds = ["sdpa", "products"] if options.attention == "best" else [options.attention]
    best = None
    for kind in kinds:
        m.begin(n_sequences, n_depth + options.n_gen)
        step = make_step(torch, m, options, kind)
        for _ in range(options.warmup):
            generate(m, step, options.n_gen, n_depth)
        samples_ns = [generate(m, step, options.n_gen, n_depth) for _ in range(options.repetitions)]
        if best is None or sorted(samples_ns)[len(samples_ns) // 2] < sorted(best[1])[len(best[1]) // 2]:
            best = (kind, samples_ns)
        del step
        torch.compiler.reset()
    return best


def record(torch, m, options, name, begin, n_sequences, n_depth, kind, samples_ns):
    n_params = sum(tensor.numel() for tensor in m.tensors())
    return {
        "machine": records.torch_machine(torch, options.device),
        "peer": {"name": "torch.compile", "torch": torch.__version__, "compiled": options.compile, "attention": kind,
                 "graph": options.device != "cpu"},
        "device": options.device, "model_filename": name, "model_type": f"{name} BF16", "model_n_params": n_params,
        "model_size": sum(tensor.numel() * tensor.element_size() for tensor in m.tensors()), "type_k": "bf16",
        "type_v": "bf16", "n_parallel": n_sequences, "n_prompt": 0, "n_gen": options.n_gen, "n_depth": n_depth,
        **records.when(begin), **records.rates(samples_ns, options.n_gen * n_sequences),
    }


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", action="append", choices=sorted(SHAPES), help="repeatable")
    parser.add_argument("-n", "--n-gen", type=int, default=64)
    parser.add_argument("-d", "--n-depth", type=records.numbers, default=[128, 8000])
    parser.add_argument("-B", "--n-parallel", type=records.numbers, default=[1, 8])
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=1, help="generations before the first sample")
    parser.add_argument("--attention", default="best", choices=["best", "sdpa", "products"])
    parser.add_argument("--compile", choices=["step", "layer", "none"], help="default: step; on the CPU none")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("-o", "--output", help="file for the JSON; written anew after each test")
    options = parser.parse_args()
    programs.check_ranges(("-n", options.n_gen, 1, 100000), ("-r", options.repetitions, 1, 1000),
                          ("--warmup", options.warmup, 0, 1000),
                          ("-B", min(options.n_parallel), 1, max(options.n_parallel)))
    options.compile = options.compile or ("none" if options.device == "cpu" else "step")
    return options


def main():
    options = parse()
    if options.output:
        programs.prepare_output(options.output)
    torch = records.torch_for(options.device)
    results = []
    for name in options.model or ["llama-3.2-1b", "qwen3-4b"]:
        torch.manual_seed(1)
        with torch.inference_mode():
            m = Model(torch, SHAPES[name], options.device)
            for n_depth in options.n_depth:
                for n_sequences in options.n_parallel:
                    begin = records.now()
                    kind, samples_ns = time_test(torch, m, options, n_sequences, n_depth)
                    result = record(torch, m, options, name, begin, n_sequences, n_depth, kind, samples_ns)
                    results.append(result)
                    print(f"{name}, {n_sequences} at {n_depth} positions: {result['median_ts']:.1f} tok/s, a step "
                          f"{1e-6 * result['median_ns'] / options.n_gen:.3f} ms ({kind})", flush=True)
                    if options.output:
                        programs.write_json(options.output, results)
            del m


if __name__ == "__main__":
    main()
