"""The operators of `ridge bench ops`, for peers: operands, the equation in float64, and how a call is timed.

Operands lie as they do in Ridge: weights [out, in], rows of activations [n_rows, n_heads * d_head], keys and values
[n_kv_heads, positions, d_head] of each sequence. What a peer turns to another order, it turns within the call.
"""
import itertools
import statistics
import time

import numpy
from peer_protocol import Refused

COLD = ("matmul", "attention", "embed_rows")  # their weights, keys and values come from memory
MOST_COPIES, MOST_BYTES = 64, 1 << 30
PILOT_S = 0.05
ERROR = 0.05  # of a way that computes what the equation says
DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}  # as variants and libraries call them


def random(shape, seed=1):
    """Normal numbers; of a large matrix few rows are distinct, since making them takes long."""
    rng = numpy.random.default_rng(seed)
    n = int(numpy.prod(shape))
    block = 1 << 20
    return numpy.resize(rng.standard_normal(min(n, block + 7), numpy.float32), n).reshape(shape)


def operands(op, s):
    """Arrays of float32, and int32 where they are indices."""
    n_rows, d_in, heads, d = s["n_rows"], s["d_in"], s["n_heads"], s["d_head"]
    if op == "rms_norm":
        return random((n_rows, heads, d_in)), random((d_in,), 2)
    if op == "matmul":
        return random((n_rows, d_in)), random((sum(w["d_out"] for w in s["weights"]), d_in), 2)
    if op in ("swiglu", "add"):
        return random((n_rows, d_in)), random((n_rows, d_in), 2)
    if op == "rope":
        angle = random((n_rows, 1, s["d_rope"] // 2), 2)
        return random((n_rows, heads, d)), numpy.cos(angle), numpy.sin(angle)
    if op == "embed_rows":
        tokens = numpy.random.default_rng(2).integers(0, s["weights"][0]["d_out"], n_rows, numpy.int32)
        return random((s["weights"][0]["d_out"], d_in)), tokens
    if op == "attention":
        n, kv = len(s["sequences"]), (len(s["sequences"]), s["n_kv_heads"], s["sequences"][0]["n_ctx"], d)
        return random((n, s["sequences"][0]["n_rows"], heads * d)), random(kv, 2), random(kv, 3)
    if op == "sample":
        return (random((n_rows, d_in)),)
    raise Refused(f"{op}: has no such operator")


def reference(op, s, arrays):
    """What the equation gives, in float64: a part of the result, and the function that takes the same part of one."""
    wide = [a.astype(numpy.float64) if a.dtype == numpy.float32 and a.size < 1 << 24 else a for a in arrays]
    if op == "rms_norm":
        x, weight = wide
        return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight, lambda out: out
    if op == "matmul":
        n = min(64, arrays[1].shape[0])
        return (arrays[0].astype(numpy.float64) @ arrays[1][-n:].astype(numpy.float64).T), lambda out: out[:, -n:]
    if op == "swiglu":
        return wide[0] / (1 + numpy.exp(-wide[0])) * wide[1], lambda out: out
    if op == "add":
        return wide[0] + wide[1], lambda out: out
    if op == "rope":
        x, cos, sin = wide
        half = s["d_rope"] // 2
        a, b = x[..., :half], x[..., half:2 * half]
        return numpy.concatenate((a * cos - b * sin, b * cos + a * sin, x[..., 2 * half:]), -1), lambda out: out
    if op == "embed_rows":
        return arrays[0][arrays[1]], lambda out: out
    if op == "attention":
        return attention_reference(s, arrays)
    return arrays[0].argmax(-1), lambda out: out  # sample


def attention_reference(s, arrays):
    """Of the first sequence: up to two rows at each end."""
    heads, kv_heads, d = s["n_heads"], s["n_kv_heads"], s["d_head"]
    n_rows, n_ctx = s["sequences"][0]["n_rows"], s["sequences"][0]["n_ctx"]
    rows = sorted({0, min(1, n_rows - 1), max(0, n_rows - 2), n_rows - 1})
    q, k, v = (a[0].astype(numpy.float64) for a in arrays)
    out = []
    for row in rows:
        n_seen = n_ctx - n_rows + row + 1
        of_heads = []
        for head in range(heads):
            shared = head // (heads // kv_heads)
            scores = k[shared, :n_seen] @ q[row, head * d:(head + 1) * d] / numpy.sqrt(d)
            share = numpy.exp(scores - scores.max())
            of_heads.append(share / share.sum() @ v[shared, :n_seen])
        out.append(numpy.concatenate(of_heads))
    return numpy.stack(out), lambda all_rows: all_rows[0, rows]


def relative_l2(got, want):
    got = numpy.asarray(got, numpy.float64)
    if got.shape != want.shape:
        raise Refused(f"its result is {list(got.shape)}, expected {list(want.shape)}")
    return float(numpy.linalg.norm(got - want) / max(numpy.linalg.norm(want), 1e-30))


def dtypes_to_try(device):
    """One on a GPU, where a call's time is that of its launch: it would not tell two apart."""
    return ("bf16",) if device == "cuda" else ("bf16", "f32")


class Way:
    """One way to run an operator. `put` makes the operands of numpy's arrays, `call` runs it on them and waits for the
    result, `get` makes a numpy array of a result. Operands and results have `nbytes`."""

    def __init__(self, variant, put, call, get, rounded=None):
        self.variant, self.put, self.call, self.get = variant, put, call, get
        self.rounded = rounded or (lambda arrays: arrays)  # the operands as the formats have them


class OpsPeer:
    """What answers requests about operators. A peer gives `ways(op, shape, device)`: a list of Way.

    `function` is for libraries whose arrays are like numpy's. What they have each in a way of their own the peer gives,
    too: `functions(shape)` (rms_norm, matmul, swiglu and embed_rows, by name), `attention(shape)`, and
    `concatenate(arrays, axis)`."""

    def function(self, op, s):
        """The operator, as a function of its operands."""
        if op == "attention":
            return self.attention(s)
        if op == "rope":
            half, concatenate = s["d_rope"] // 2, self.concatenate

            def rope(x, cos, sin):
                a, b = x[..., :half], x[..., half:2 * half]
                return concatenate((a * cos - b * sin, b * cos + a * sin, x[..., 2 * half:]), -1)
            return rope
        return {"add": lambda x, y: x + y, "sample": lambda logits: logits.argmax(-1), **self.functions(s)}[op]

    def on_op(self, request):
        op, shape = request["op"], request["shape"]
        self.way = None
        try:
            arrays = operands(op, shape)
            ways = self.ways(op, shape, request["device"])
        except Refused as error:
            return {"unfit": str(error)}
        best, why = None, "nothing runs it"
        for way in ways:
            try:
                one = way.put(*arrays)
                out = way.call(*one)
                want, part = reference(op, shape, way.rounded(arrays))
                error = relative_l2(part(way.get(out)), want)
                begin, calls = time.perf_counter(), []
                while len(calls) < 3 or time.perf_counter() - begin < PILOT_S:
                    call = time.perf_counter()
                    way.call(*one)
                    calls.append(time.perf_counter() - call)
            except (RuntimeError, TypeError, ValueError, NotImplementedError) as failed:
                why = f"{way.variant}: {' '.join(str(failed).split())[:200]}"
                continue
            found = (error > ERROR, min(calls), way, error, one, out)
            if best is None or found[:2] < best[:2]:
                best = found
        if best is None:
            return {"unfit": why}
        _, _, self.way, error, one, out = best
        n_bytes = sum(array.nbytes for array in one)
        n = max(1, min(MOST_COPIES, MOST_BYTES // max(n_bytes, 1), request["copies_bytes"] // max(n_bytes, 1) + 1))
        self.copies = [one] + [self.way.put(*arrays) for _ in range(n - 1 if op in COLD else 0)]
        n_bytes = 2 * out.nbytes if op == "embed_rows" else n_bytes + out.nbytes  # of the table the rows alone
        return {"variant": self.way.variant, "relative_l2": error, "bytes": n_bytes}

    def on_sample(self, request):
        """Time of a call, in ns: every copy in turn, after one call of each; as Ridge takes it on a processor the median
        over short runs of calls."""
        call = self.way.call
        for one in self.copies:
            call(*one)
        runs, n_of_run = [], 0
        begin = run_begin = time.perf_counter_ns()
        for one in itertools.cycle(self.copies):
            call(*one)
            n_of_run, now = n_of_run + 1, time.perf_counter_ns()
            if now - run_begin >= request["run_ns"]:
                runs.append((now - run_begin) / n_of_run)
                n_of_run, run_begin = 0, now
            if now - begin > 1e6 * request["sample_ms"]:
                break
        return {"ns": statistics.median(runs) if runs else (now - begin) / n_of_run}
