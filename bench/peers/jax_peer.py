#!/usr/bin/env python3
"""JAX as a peer of `ridge bench ops`: each operator compiled by XLA.

    ridge bench ops -m model.gguf --peer jax --peer-python python3

On a processor bf16 and float32 are both tried, and the faster one is kept; on a GPU it is bf16.
"""
import os

import peer_protocol
from peer_ops import DTYPES, OpsPeer, Way, dtypes_to_try
from peer_protocol import Refused


class Jax(OpsPeer):
    def on_hello(self, request):
        os.environ["NPROC"] = str(peer_protocol.prepare(request))  # threads of XLA on a processor
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self.jax = peer_protocol.need("jax", 'pip install "jax[cpu]"')
        self.concatenate = self.jax.numpy.concatenate
        return {"name": "JAX", "version": self.jax.__version__,
                "note": "jit of XLA; on a processor in bf16 or float32, whichever is faster, on a GPU in bf16"}

    def functions(self, _):
        jax, jnp = self.jax, self.jax.numpy

        def rms_norm(x, weight):
            wide = x.astype(jnp.float32)
            return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype) * weight
        return {"rms_norm": rms_norm,
                "matmul": lambda x, w: jax.lax.dot_general(x, w, (((1,), (1,)), ((), ()))),
                "swiglu": lambda gate, up: jax.nn.silu(gate) * up,
                "embed_rows": lambda table, tokens: jnp.take(table, tokens, axis=0)}

    def attention(self, s):
        jax, jnp = self.jax, self.jax.numpy
        heads, d = s["n_heads"], s["d_head"]
        n_rows, n_ctx = s["sequences"][0]["n_rows"], s["sequences"][0]["n_ctx"]

        def attend(q, k, v):
            q = q.reshape(q.shape[0], n_rows, heads, d)
            k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)  # [positions, heads, d_head], as it wants them
            seen = None
            if n_rows > 1:
                seen = (jnp.arange(n_ctx)[None] <= jnp.arange(n_ctx - n_rows, n_ctx)[:, None])[None, None]
            return jax.nn.dot_product_attention(q, k, v, mask=seen).reshape(q.shape[0], n_rows, heads * d)
        return attend

    def ways(self, op, shape, device):
        jax, jnp = self.jax, self.jax.numpy
        kinds = {"cpu": "cpu", "cuda": "gpu"}
        try:
            where = jax.devices(kinds[device])[0]
        except RuntimeError:
            raise Refused(f"this JAX has no {kinds[device]}; pip install \"jax[cuda13]\"") from None
        compiled = jax.jit(self.function(op, shape))

        def way(name):
            def put(*arrays):
                return [jax.device_put(jnp.asarray(a, DTYPES[name] if a.dtype == "float32" else None), where)
                        for a in arrays]
            return Way(name, put, lambda *one: compiled(*one).block_until_ready(),
                       lambda out: jnp.asarray(out, "float32"))
        return [way(name) for name in dtypes_to_try(device)]


if __name__ == "__main__":
    peer_protocol.serve(Jax())
