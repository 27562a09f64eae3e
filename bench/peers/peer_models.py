"""Decoders for peers of `ridge bench`: what a GGUF file says of a model, and how tests run on one.

A library's own part is a class with `rows(sequence, position, tokens, wants_logits)` (a step of a prompt) and
`step(tokens, position)` (a token of each sequence); both return drawn tokens, the most probable ones.
"""
import math

from peer_protocol import Refused, timed

ARCHITECTURES = {"llama": True, "qwen2": False, "qwen3": False}  # whether RoPE turns neighbours, or halves


class Config:
    """`value(key)`: what the metadata has, None where it does not."""

    def __init__(self, value, path):
        name = value("general.architecture")
        if name not in ARCHITECTURES:
            raise Refused(f"{path}: its architecture is {name}; this decoder knows {', '.join(ARCHITECTURES)}")

        def of(key, default=None):
            found = value(f"{name}.{key}")
            if found is None and default is None:
                raise Refused(f"{path}: has no {name}.{key}")
            return default if found is None else found
        if value(f"{name}.rope.scaling.type") not in (None, "none"):
            raise Refused(f"{path}: its RoPE is scaled by {value(f'{name}.rope.scaling.type')}, which this decoder does "
                          "not know")
        self.neighbours = ARCHITECTURES[name]
        self.n_layers, self.d_model = int(of("block_count")), int(of("embedding_length"))
        self.n_heads = int(of("attention.head_count"))
        self.n_kv_heads = int(of("attention.head_count_kv", self.n_heads))
        self.d_head = int(of("attention.key_length", self.d_model // self.n_heads))
        self.d_rope = int(of("rope.dimension_count", self.d_head))
        self.eps, self.theta = float(of("attention.layer_norm_rms_epsilon")), float(of("rope.freq_base", 10000.0))

    def frequencies(self, factors):
        """Of each pair, in turns a position (radians); `factors` of rope_freqs.weight, or None."""
        found = [self.theta ** (-2 * i / self.d_rope) for i in range(self.d_rope // 2)]
        return [f / float(factor) for f, factor in zip(found, factors)] if factors is not None else found

    def scale(self):
        return 1 / math.sqrt(self.d_head)


def check_gguf(path, reader):
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}; {reader} reads GGUF files") from None
    if magic != b"GGUF":
        raise Refused(f"{path}: not a GGUF file, which is what {reader} reads")


class ModelsPeer:
    """What answers requests about a model. A peer gives `open_model(request)`: a decoder, which holds the caches, and
    what it says of it, a dict."""
    reader = "this peer"

    def on_model(self, request):
        check_gguf(request["path"], self.reader)
        self.decoder, about = self.open_model(request)
        self.n_ubatch = request["n_ubatch"]
        self.filled = [[] for _ in request["n_positions"]]
        return about

    def forget(self, sequence, begin):
        """Its positions from there on."""
        del self.filled[sequence][begin:]

    def prompt(self, sequence, begin, tokens, wants_logits):
        drawn = None
        for at in range(0, len(tokens), self.n_ubatch):
            some = tokens[at:at + self.n_ubatch]
            drawn = self.decoder.rows(sequence, begin + at, some, wants_logits and at + len(some) == len(tokens))
        return drawn

    def on_fill(self, request):
        for sequence, mine in enumerate(request["tokens"]):
            n = min(len(self.filled[sequence]), len(mine))
            self.forget(sequence, n)
            self.prompt(sequence, n, mine[n:], False)
            self.filled[sequence] += mine[n:]
        return {}

    def on_test(self, request):
        depth, prompt, tokens = request["n_depth"], request["prompt"], request["first"]
        for sequence in range(len(tokens)):
            self.forget(sequence, depth)

        def work():
            nonlocal tokens
            drawn = self.prompt(0, depth, prompt, True) if prompt else None
            for i in range(request["n_gen"]):
                tokens = self.decoder.step(tokens, depth + len(prompt) + i)
            return drawn
        ns, drawn = timed(work)
        return {"ns": ns, "token": drawn}
