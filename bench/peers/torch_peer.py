#!/usr/bin/env python3
"""PyTorch as a peer of `ridge bench` and `ridge bench ops`: eager, and compiled by torch.compile.

    ridge bench -m model.gguf --peer torch,torch.compile --peer-python python3
    ridge bench ops -m model.gguf --peer torch,torch.compile --peer-python python3

Operators run in bf16 and in float32, and the faster one is kept; on a GPU in bf16, and a CUDA graph of all copies is
replayed. As `cublas` and `cublaslt` the products of matmul alone run, by that library. Models need the gguf package: the weights of
the file are decoded once and held in 16 bits (or float32, where the processor multiplies that faster); Q, K and V, and
gate and up, are one matrix each. Compiled, the parts of a layer before and behind attention are; attention is
scaled_dot_product_attention in either case.
"""
import time

import peer_protocol
from peer_models import Config, ModelsPeer
from peer_ops import DTYPES, OpsPeer, Way, dtypes_to_try
from peer_protocol import Refused

INSTALL = "pip install torch, for the Python that --peer-python names"


class Torch(OpsPeer, ModelsPeer):
    def on_hello(self, request):
        self.name, self.n_threads = request["peer"], peer_protocol.prepare(request)
        self.torch = peer_protocol.need("torch", INSTALL)
        self.concatenate = self.torch.cat
        self.torch.set_num_threads(self.n_threads)
        self.torch.set_grad_enabled(False)
        self.compiles = self.name == "torch.compile"
        if self.compiles:
            self.torch._dynamo.config.recompile_limit = 1000  # a version for each shape
        names = {"torch": "PyTorch", "torch.compile": "torch.compile of PyTorch", "cublas": "cuBLAS of PyTorch",
                 "cublaslt": "cuBLASLt of PyTorch"}
        return {"name": names[self.name], "version": self.torch.__version__,
                "note": "on a processor in bf16 or float32, whichever is faster, on a GPU in bf16"}

    def check_device(self, device):
        if device == "cuda" and not self.torch.cuda.is_available():
            raise Refused("this torch finds no GPU")

    def functions(self, s):
        functional = self.torch.nn.functional
        return {"rms_norm": lambda x, weight: functional.rms_norm(x, (s["d_in"],), weight, 1e-5),
                "matmul": functional.linear,
                "swiglu": lambda gate, up: functional.silu(gate) * up,
                "embed_rows": lambda table, tokens: table.index_select(0, tokens)}

    def attention(self, s):
        torch = self.torch
        heads, d = s["n_heads"], s["d_head"]
        n_rows, n_ctx = s["sequences"][0]["n_rows"], s["sequences"][0]["n_ctx"]
        attend = torch.nn.functional.scaled_dot_product_attention
        causal, seen = 1 < n_rows == n_ctx, None
        if 1 < n_rows < n_ctx:
            seen = torch.ones(n_rows, n_ctx, dtype=torch.bool).tril(n_ctx - n_rows).to(self.device)

        def call(q, k, v):
            rows = q.view(q.shape[0], n_rows, heads, d).transpose(1, 2)
            out = attend(rows, k, v, attn_mask=seen, is_causal=causal, enable_gqa=True)
            return out.transpose(1, 2).reshape(q.shape)
        return call

    def ways(self, op, shape, device):
        torch, self.device = self.torch, device
        self.check_device(device)
        if self.name.startswith("cublas"):
            if op != "matmul" or device != "cuda":
                raise Refused("multiplies matrices, on a GPU alone")
            torch.backends.cuda.preferred_blas_library(self.name)
        function = self.function(op, shape)
        if self.compiles:
            function = torch.compile(function, dynamic=False)

        def call(*one):
            out = function(*one)
            if device == "cuda":
                torch.cuda.synchronize()
            return out

        def way(name):
            def put(*arrays):
                return [torch.from_numpy(a).to(device, getattr(torch, DTYPES[name]) if a.dtype == "float32" else None,
                                               copy=True) for a in arrays]
            return Way(name, put, call, lambda out: out.float().cpu().numpy())
        self.call_alone = function
        return [way(name) for name in dtypes_to_try(device)]

    def on_sample(self, request):
        if self.device != "cuda":
            return super().on_sample(request)
        return {"ns": self.sample_graph(request["sample_ms"])}

    def sample_graph(self, sample_ms):
        """On a GPU: a graph that calls every copy once, replayed, and waited for at the end."""
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for one in self.copies:
                self.call_alone(*one)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for one in self.copies:
                self.call_alone(*one)
        graph.replay()
        torch.cuda.synchronize()
        n, begin = 0, time.perf_counter_ns()
        for n_more in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            for _ in range(n_more):
                graph.replay()
            torch.cuda.synchronize()
            n, ns = n + n_more, time.perf_counter_ns() - begin
            if ns > 1e6 * sample_ms:
                break
        return ns / (n * len(self.copies))

    def open_model(self, request):
        self.check_device(request["device"])
        decoder = Decoder(self.torch, request, self.compiles)
        kind = str(decoder.dtype).removeprefix("torch.")
        return decoder, {"weights": f"those of the file, decoded to {kind}",
                         "note": f"cache and activations in {kind}; draws the most probable token, as Ridge does"}


def faster_dtype(torch, device):
    """In which a product with one row is faster: processors without bf16 units are slow in it."""
    if device == "cuda":
        return torch.bfloat16
    times = {}
    for dtype in (torch.bfloat16, torch.float32):
        weights = [torch.randn(2048, 2048).to(dtype) for _ in range(16)]  # beyond most caches
        x = torch.randn(1, 2048).to(dtype)
        for _ in range(3):
            times[dtype], _ = peer_protocol.timed(lambda: [torch.nn.functional.linear(x, w) for w in weights])
    return min(times, key=times.get)


class Decoder:
    def __init__(self, torch, request, compiles):
        gguf = peer_protocol.need("gguf", "pip install gguf, for the Python that --peer-python names")
        self.torch, self.device = torch, request["device"]
        self.dtype = faster_dtype(torch, self.device)
        reader = gguf.GGUFReader(request["path"])

        def value(key):
            return reader.fields[key].contents() if key in reader.fields else None
        self.config = c = Config(value, request["path"])
        tensors = {tensor.name: tensor for tensor in reader.tensors}

        def take(*names):
            if any(name not in tensors for name in names):
                return None
            try:
                parts = [torch.from_numpy(gguf.quants.dequantize(tensors[n].data, tensors[n].tensor_type).copy())
                         .to(self.dtype) for n in names]
            except NotImplementedError as error:
                raise Refused(f"{request['path']}: {error}") from None
            return torch.cat(parts).to(self.device)
        factors = take("rope_freqs.weight")
        n_positions = max(request["n_positions"])
        angle = torch.outer(torch.arange(n_positions, dtype=torch.float64),
                            torch.tensor(c.frequencies(factors), dtype=torch.float64))
        self.cos, self.sin = (f(angle).float()[:, None].to(self.device) for f in (torch.cos, torch.sin))
        self.embedding, self.output_norm = take("token_embd.weight"), take("output_norm.weight")
        self.head = self.embedding if "output.weight" not in tensors else take("output.weight")
        self.layers = []
        for i in range(c.n_layers):
            def of(*names, i=i):
                return take(*(f"blk.{i}.{name}" for name in names))
            self.layers.append((
                (of("attn_norm.weight"), of("attn_q.weight", "attn_k.weight", "attn_v.weight"),
                 of("attn_q.bias", "attn_k.bias", "attn_v.bias"), of("attn_q_norm.weight"), of("attn_k_norm.weight")),
                (of("attn_output.weight"), of("ffn_norm.weight"), of("ffn_gate.weight", "ffn_up.weight"),
                 of("ffn_down.weight"))))
        cache = (len(request["n_positions"]), c.n_kv_heads, n_positions, c.d_head)
        self.cache = [[torch.zeros(cache, dtype=self.dtype, device=self.device) for _ in range(2)]
                      for _ in range(c.n_layers)]
        self.before, self.behind = self.attn_in, self.attn_out_and_ffn
        if compiles:
            self.before, self.behind = (torch.compile(f, dynamic=False) for f in (self.before, self.behind))

    def norm(self, x, weight):
        return self.torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, self.config.eps)

    def rope(self, x, cos, sin):
        """x [n_rows, heads, d_head]"""
        c, torch = self.config, self.torch
        turned, rest = x[..., :c.d_rope].float(), x[..., c.d_rope:]
        if c.neighbours:
            a, b = turned[..., 0::2], turned[..., 1::2]
            turned = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
        else:
            a, b = turned.chunk(2, -1)
            turned = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
        return torch.cat((turned.to(x.dtype), rest), -1)

    def attn_in(self, x, weights, cos, sin):
        c, (attn_norm, qkv, bias, q_norm, k_norm) = self.config, weights
        q, k, v = self.torch.nn.functional.linear(self.norm(x, attn_norm), qkv, bias).view(
            x.shape[0], -1, c.d_head).split((c.n_heads, c.n_kv_heads, c.n_kv_heads), 1)
        if q_norm is not None:
            q, k = self.norm(q, q_norm), self.norm(k, k_norm)
        return self.rope(q, cos, sin), self.rope(k, cos, sin), v

    def attn_out_and_ffn(self, x, a, weights):
        functional, (o, ffn_norm, gate_up, down) = self.torch.nn.functional, weights
        x = x + functional.linear(a, o)
        gate, up = functional.linear(self.norm(x, ffn_norm), gate_up).chunk(2, -1)
        return x + functional.linear(functional.silu(gate) * up, down)

    def layers_of(self, tokens, positions, append, attend):
        torch = self.torch
        x = self.embedding.index_select(0, torch.tensor(tokens, device=self.device))
        cos, sin = self.cos[positions], self.sin[positions]
        for (before, behind), (k_cache, v_cache) in zip(self.layers, self.cache):
            q, k, v = self.before(x, before, cos, sin)
            append(k_cache, k), append(v_cache, v)
            x = self.behind(x, attend(q, k_cache, v_cache), behind)
        return x

    def draw(self, x):
        return self.torch.nn.functional.linear(self.norm(x, self.output_norm), self.head).argmax(-1).tolist()

    def rows(self, sequence, position, tokens, wants_logits):
        torch, n, end = self.torch, len(tokens), position + len(tokens)
        seen = None
        if 1 < n < end:
            seen = torch.ones(n, end, dtype=torch.bool, device=self.device).tril(position)

        def append(cache, rows):
            cache[sequence, :, position:end] = rows.transpose(0, 1)

        def attend(q, k, v):
            out = torch.nn.functional.scaled_dot_product_attention(
                q.transpose(0, 1)[None], k[sequence:sequence + 1, :, :end], v[sequence:sequence + 1, :, :end],
                attn_mask=seen, is_causal=1 < n == end, enable_gqa=True)
            return out[0].transpose(0, 1).reshape(n, -1)
        x = self.layers_of(tokens, slice(position, end), append, attend)
        if wants_logits:
            return self.draw(x[-1:])[0]
        if self.device == "cuda":
            torch.cuda.synchronize()
        return None

    def step(self, tokens, position):
        n = len(tokens)

        def append(cache, rows):
            cache[:n, :, position] = rows

        def attend(q, k, v):
            return self.torch.nn.functional.scaled_dot_product_attention(
                q[:, :, None], k[:n, :, :position + 1], v[:n, :, :position + 1], enable_gqa=True).reshape(n, -1)
        return self.draw(self.layers_of(tokens, slice(position, position + 1), append, attend))


if __name__ == "__main__":
    peer_protocol.serve(Torch())
