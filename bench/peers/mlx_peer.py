#!/usr/bin/env python3
"""MLX as a peer of `ridge bench` and `ridge bench ops`: its build for processors, or for CUDA.

    ridge bench -m model.gguf --peer mlx --peer-python python3
    ridge bench ops -m model.gguf --peer mlx --peer-python python3

Operators are compiled by mx.compile and run in bf16, float16 and float32, products where Ridge's weights have 4 or 8
bits also in MLX's own format of so many bits; the fastest is kept. Models are read by mx.load, which keeps Q4_0, Q4_1
and Q8_0 as they are and decodes other formats to float16. On a processor activations are float32, since products of
packed weights with 16-bit rows take forty times as long there, or bfloat16 where weights are decoded.
"""
import os

import numpy
import peer_protocol
from peer_models import Config, ModelsPeer
from peer_ops import DTYPES, OpsPeer, Way
from peer_protocol import Refused

GROUP = 32


class Mlx(OpsPeer, ModelsPeer):
    def on_hello(self, request):
        n_threads = peer_protocol.prepare(request)
        os.environ["OPENBLAS_NUM_THREADS"] = str(n_threads)
        peer_protocol.need("mlx", 'pip install "mlx[cpu]"')
        import mlx.core
        self.mx, self.concatenate = mlx.core, mlx.core.concatenate
        return {"name": "MLX", "version": self.mx.__version__,
                "note": "compiled; it chooses its threads itself"}

    def choose(self, device):
        self.mx.set_default_device(self.mx.cpu if device == "cpu" else self.mx.gpu)

    def functions(self, _):
        mx = self.mx
        return {"rms_norm": lambda x, weight: mx.fast.rms_norm(x, weight, 1e-5),
                "matmul": lambda x, w: x @ w.T,
                "swiglu": lambda gate, up: gate * mx.sigmoid(gate) * up,
                "embed_rows": lambda table, tokens: table[tokens]}

    def attention(self, s):
        heads, d, n_rows = s["n_heads"], s["d_head"], s["sequences"][0]["n_rows"]

        def attend(q, k, v):
            rows = q.reshape(q.shape[0], n_rows, heads, d).swapaxes(1, 2)
            out = self.mx.fast.scaled_dot_product_attention(rows, k, v, scale=d ** -0.5,
                                                            mask="causal" if n_rows > 1 else None)
            return out.swapaxes(1, 2).reshape(q.shape)
        return attend

    def evaluated(self, function):
        """It, with its result computed at once."""
        def call(*arrays):
            out = function(*arrays)
            self.mx.eval(out)
            return out
        return call

    def ways(self, op, shape, device):
        mx = self.mx
        self.choose(device)
        call = self.evaluated(mx.compile(self.function(op, shape)))

        def get(out):
            return numpy.array(out.astype(mx.float32))

        def way(name):
            put = self.evaluated(lambda *arrays: [
                mx.array(a, dtype=getattr(mx, DTYPES[name]) if a.dtype == "float32" else None) for a in arrays])
            return Way(name, put, call, get)
        found = [way(name) for name in DTYPES]
        bits = {weight["format"][1] for weight in shape["weights"]} & {"4", "8"}
        if op == "matmul" and len(bits) == 1 and all(weight["format"][0] == "Q" for weight in shape["weights"]):
            found.append(self.quantised(int(bits.pop()), get))
        return found

    def quantised(self, bits, get):
        """Products with weights in MLX's own format: scales and biases of each GROUP."""
        mx = self.mx
        put = self.evaluated(lambda x, w: [mx.array(x), *mx.quantize(mx.array(w), GROUP, bits)])
        call = self.evaluated(mx.compile(lambda x, w, scales, biases: mx.quantized_matmul(
            x, w, scales, biases, transpose=True, group_size=GROUP, bits=bits)))

        def rounded(arrays):
            x, w = arrays
            packed = mx.quantize(mx.array(w[-64:]), GROUP, bits)
            return x, numpy.array(mx.dequantize(*packed, GROUP, bits))
        return Way(f"{bits} bits", put, call, get, rounded)

    def open_model(self, request):
        self.choose(request["device"])
        decoder = Decoder(self.mx, request)
        kind = str(decoder.dtype).rpartition(".")[2]
        return decoder, {"weights": decoder.weights,
                         "note": f"cache and activations in {kind}; draws the most probable token, as Ridge does; it "
                                 "chooses its threads itself"}


class Decoder:
    def __init__(self, mx, request):
        self.mx = mx
        try:
            self.tensors, metadata = mx.load(request["path"], return_metadata=True)
        except (RuntimeError, ValueError) as error:
            raise Refused(f"{request['path']}: {' '.join(str(error).split())[:200]}") from None

        def value(key):
            found = metadata.get(key)
            return found.item() if isinstance(found, mx.array) else found
        self.config = c = Config(value, request["path"])
        packed = sum(name.endswith(".scales") for name in self.tensors)
        if request["device"] == "cuda":
            self.dtype = mx.float16
        else:
            self.dtype = mx.float32 if packed else mx.bfloat16
        factors = self.tensors.get("rope_freqs.weight")
        for name, tensor in self.tensors.items():  # all but codes
            self.tensors[name] = tensor if tensor.dtype == mx.uint32 else tensor.astype(self.dtype)
        self.weights = "those of the file" + ("" if packed else f", decoded to {str(self.dtype).rpartition('.')[2]}")
        # mx.fast.rope wants what a position is divided by.
        found = c.frequencies(factors.tolist() if factors is not None else None)
        self.turns = mx.array([1 / frequency for frequency in found])
        cache = (len(request["n_positions"]), c.n_kv_heads, max(request["n_positions"]), c.d_head)
        self.cache = [[mx.zeros(cache, self.dtype) for _ in range(2)] for _ in range(c.n_layers)]
        mx.eval(self.cache)
        if "output.weight" not in self.tensors:
            for kind in ("weight", "scales", "biases"):
                if f"token_embd.{kind}" in self.tensors:
                    self.tensors[f"output.{kind}"] = self.tensors[f"token_embd.{kind}"]
        mx.eval(self.tensors)

    def bits(self, name):
        """Of a packed matrix, whose groups are of GROUP."""
        return self.tensors[f"{name}.weight"].shape[-1] * 32 // (self.tensors[f"{name}.scales"].shape[-1] * GROUP)

    def linear(self, x, name):
        mx, weight = self.mx, self.tensors[f"{name}.weight"]
        if f"{name}.scales" in self.tensors:
            y = mx.quantized_matmul(x, weight, self.tensors[f"{name}.scales"], self.tensors[f"{name}.biases"],
                                    transpose=True, group_size=GROUP, bits=self.bits(name))
        else:
            y = x @ weight.T
        bias = self.tensors.get(f"{name}.bias")
        return y if bias is None else y + bias

    def embed(self, tokens):
        mx, at = self.mx, self.mx.array(tokens)
        rows = self.tensors["token_embd.weight"][at]
        if "token_embd.scales" in self.tensors:
            rows = mx.dequantize(rows, self.tensors["token_embd.scales"][at], self.tensors["token_embd.biases"][at],
                                 GROUP, self.bits("token_embd"))
        return rows.astype(self.dtype)

    def norm(self, x, name):
        weight = self.tensors.get(f"{name}.weight")
        return x if weight is None else self.mx.fast.rms_norm(x, weight, self.config.eps)

    def rope(self, x, position):
        c = self.config
        return self.mx.fast.rope(x, c.d_rope, traditional=c.neighbours, base=None, scale=1.0, offset=position,
                                 freqs=self.turns)

    def layers_of(self, x, sequences, position):
        """x [n_sequences, n_rows, d_model]; `sequences`: a slice of the cache's."""
        mx, c = self.mx, self.config
        n, n_rows = x.shape[:2]
        end = position + n_rows
        for i, cache in enumerate(self.cache):
            at = f"blk.{i}."

            def heads(name, n_heads, x=self.norm(x, at + "attn_norm"), at=at):
                return self.linear(x, at + name).reshape(n, n_rows, n_heads, c.d_head).swapaxes(1, 2)
            q, k, v = heads("attn_q", c.n_heads), heads("attn_k", c.n_kv_heads), heads("attn_v", c.n_kv_heads)
            q = self.rope(self.norm(q, at + "attn_q_norm"), position)
            k = self.rope(self.norm(k, at + "attn_k_norm"), position)
            cache[0][sequences, :, position:end] = k
            cache[1][sequences, :, position:end] = v
            a = mx.fast.scaled_dot_product_attention(
                q, cache[0][sequences, :, :end], cache[1][sequences, :, :end], scale=c.scale(),
                mask="causal" if n_rows > 1 else None)
            x = x + self.linear(a.swapaxes(1, 2).reshape(n, n_rows, -1), at + "attn_output")
            h = self.norm(x, at + "ffn_norm")
            gate = self.linear(h, at + "ffn_gate")
            x = x + self.linear(gate * mx.sigmoid(gate) * self.linear(h, at + "ffn_up"), at + "ffn_down")
        return x

    def draw(self, x):
        return self.linear(self.norm(x, "output_norm"), "output").argmax(-1)

    def rows(self, sequence, position, tokens, wants_logits):
        x = self.layers_of(self.embed(tokens)[None], slice(sequence, sequence + 1), position)
        if not wants_logits:
            self.mx.eval(x, self.cache)
            return None
        drawn = self.draw(x[0, -1:])
        self.mx.eval(drawn, self.cache)
        return drawn.item()

    def step(self, tokens, position):
        drawn = self.draw(self.layers_of(self.embed(tokens)[:, None], slice(0, len(tokens)), position)[:, 0])
        self.mx.eval(drawn, self.cache)
        return drawn.tolist()


if __name__ == "__main__":
    peer_protocol.serve(Mlx())
