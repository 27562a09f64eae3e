"""Shared by the golden makers: an exact GGUF reader, the projection of logits, greedy runs, JSON output.

Golden file (golden.json of a model):
    projection   {"n": 32, "seed": 7919}: see signs()
    prompts[]    name, text (absent where the ids were drawn at random), ids, greedy (ids that follow, the
                 end ids of the model not obeyed), greedy_text, rows[]
    rows[]       about the logits that the model gives after token `position` of ids + greedy:
                 argmax, margin (largest logit less the second), norm (L2, of all logits), and either
                 top_ids, top_logits (largest first) and projection, or logits_row, the index of the row of
                 n_vocab little-endian float32 in logits.f32.
"""

import json
import sys

import gguf
import numpy as np
import torch

# Names within a layer: GGUF, transformers.
LAYER_NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}

PROJECTIONS = 32
PROJECTION_SEED = 7919


def signs(n_vocab):
    """[n_vocab, PROJECTIONS] of +-1: bit j of word i is set where entry [i, j] is -1; word i is output i of the
    splitmix64 generator (Steele, Lea and Flood, 2014) started at PROJECTION_SEED."""
    with np.errstate(over="ignore"):
        z = np.uint64(PROJECTION_SEED) + np.arange(1, n_vocab + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    bits = (z[:, None] >> np.arange(PROJECTIONS, dtype=np.uint64)) & np.uint64(1)
    return 1.0 - 2.0 * bits.astype(np.float64)


class Gguf:
    """Tensors of a GGUF file as float32 arrays in row-major [out, in], and its metadata."""

    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.tensors = {t.name: t for t in self.reader.tensors}

    def __getitem__(self, key):
        return self.reader.fields[key].contents()

    def __contains__(self, key):
        return key in self.reader.fields

    def tensor(self, name):
        t = self.tensors[name]
        shape = [int(d) for d in reversed(t.shape)]
        return np.array(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float32).reshape(shape)


def unpermute(weight, n_heads):
    """Rows of Q or K from the order of llama GGUF files (pairs 2i, 2i + 1 rotate together) to that of
    transformers (pairs i, i + d_head / 2)."""
    d_out, d_in = weight.shape
    return weight.reshape(n_heads, d_out // n_heads // 2, 2, d_in).swapaxes(1, 2).reshape(d_out, d_in)


def permute(weight, n_heads):
    """The inverse of unpermute: what the GGUF converter for llama models does."""
    d_out, d_in = weight.shape
    return weight.reshape(n_heads, 2, d_out // n_heads // 2, d_in).swapaxes(1, 2).reshape(d_out, d_in)


def load_state(model, state):
    """Fills a transformers model with float32 arrays; every parameter must be given, none may be left over."""
    model = model.float()  # before loading: the configuration may ask for a type that would round
    state = {name: torch.from_numpy(np.ascontiguousarray(w, dtype=np.float32)) for name, w in state.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    assert set(missing) <= tied and not unexpected, (missing, unexpected)
    model.tie_weights()
    for name, weight in model.state_dict().items():
        assert name in tied or torch.equal(weight, state[name]), name
    return model.eval()


@torch.no_grad()
def greedy(model, ids, n):
    """n ids by argmax, with a cache; end ids are not obeyed."""
    out, cache, step = [], None, torch.tensor([ids])
    for _ in range(n):
        result = model(input_ids=step, cache=cache, use_cache=True)
        cache = result.cache
        out.append(int(result.logits[0, -1].argmax()))
        step = torch.tensor([[out[-1]]])
    return out


@torch.no_grad()
def all_logits(model, ids):
    """[len(ids), n_vocab] of one teacher-forced pass."""
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].numpy()


def relative_l2(got, want):
    got, want = got.astype(np.float64), want.astype(np.float64)
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def check_run(name, model, double, ids, out, positions, least_margin):
    """Logits [position, n_vocab] of the teacher-forced pass, once they are found worth comparing with: greedy text
    agrees with them, float32 is about as good as float64 at `positions`, and no choice is closer than `least_margin`."""
    logits = all_logits(model, ids + out[:-1])
    rows = logits[len(ids) - 1 :]
    assert rows.argmax(-1).tolist() == out, name
    fine = all_logits(double, ids + out[:-1])
    error = max(relative_l2(logits[p], fine[p]) for p in positions)
    top = np.sort(rows, axis=-1)
    margin = float((top[:, -1] - top[:, -2]).min())
    print(f"{name}: {len(ids)} ids, least margin {margin:.4f}, float32 against float64 {error:.1e}, "
          f"{len(set(out))} different ids in {len(out)}", file=sys.stderr)
    assert error < 1e-5, name
    assert margin > least_margin, name
    return logits


def number(x):
    return float(f"{float(x):.9g}")


def row_head(position, logits):
    top = np.sort(logits.astype(np.float64))
    return {"position": position, "argmax": int(logits.argmax()), "margin": number(top[-1] - top[-2]),
            "norm": number(np.linalg.norm(logits.astype(np.float64)))}


def write_json(path, value):
    """One line for each row, so that a changed golden shows as changed lines."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for start in ('{"name":', '{"position":', '"prompts":'):
        text = text.replace(start, "\n" + start)
    path.write_text(text + "\n", encoding="utf-8")
