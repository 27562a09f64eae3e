"""smollm2.py MODEL.gguf: goldens of SmolLM2-135M-Instruct (Q4_1), by transformers in float32 on dequantised weights.

    python3 -m venv .venv && .venv/bin/pip install -r scripts/goldens/requirements.txt
    scripts/demo                                       # fetches the model
    .venv/bin/python scripts/goldens/smollm2.py ~/.cache/ridge/models/SmolLM2-135M-Instruct.Q4_1.gguf

Writes tests/golden_data/models/smollm2-135m/golden.json (its layout: oracle.py). Token ids come from the tokenizers
library, built from the file's vocabulary and merges; weights from the gguf package's dequantiser, Q and K rows put
back in the order of transformers; logits and text from LlamaForCausalLM, eager attention. Takes some minutes.
"""

import argparse
import pathlib

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import oracle

ROOT = pathlib.Path(__file__).resolve().parents[2]
N_GREEDY = 64
LEAST_MARGIN = 0.01  # some hundred times what float32 sums in another order change

LONG = (
    "The harbour of Aldermouth has been in use for more than eight hundred years. In the beginning it was only a "
    "bend of the river where the water was deep enough for fishing boats, and where a bank of shingle kept the worst "
    "of the winter storms away. The first stone quay was built in 1231, when the wool trade with Flanders began to "
    "pay for such things, and a chapel was set beside it so that sailors could give thanks for their return.\n\n"
    "By 1400 the town had a market, a guild of rope makers, and a crane worked by two men who walked inside a great "
    "wooden wheel. The crane could lift a load of about two tons. It stood on the quay until 1789, when it was taken "
    "down because nobody could be found who was willing to walk in it. A drawing of it is kept in the town hall, "
    "together with the seal of the guild and a list of the 412 ships that called in the year 1455.\n\n"
    "The river was the town's friend and its enemy. Every spring it carried silt down from the hills, and every "
    "spring the channel had to be dug out again. In 1672 the merchants asked an engineer from Delft, Pieter van der "
    "Meer, to advise them. He walked along the bank for nine days, measured the current with a cork and a watch, and "
    "told them that they should build two long walls out into the sea, one on each side of the mouth, so that the "
    "river would run faster and carry the silt away by itself. The walls took thirty-one years to build. They cost "
    "three times what he had said, and they worked.\n\n"
    "Steam came in 1846. The railway reached the quay four years later, and for half a century the harbour was busier "
    "than it had ever been: coal went out, and timber, grain and iron ore came in. At its height, in 1907, some "
    "2,300 people worked on the quays. Then ships grew larger, and the channel, which was only six metres deep at low "
    "water, could no longer take them. The last coal was loaded in 1962; the railway was lifted in 1968.\n\n"
    "Today the old warehouses hold a museum, a school of boat building and a fish market that opens at five in the "
    "morning. The walls of Pieter van der Meer still stand. Divers inspect them each summer, replace the stones that "
    "have moved, and count the seals that sleep on them. There were 57 at the last count.\n\n"
    "Summary of the text above:\n1."
)

CHAT = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
    "Name three planets and say one thing about each.<|im_end|>\n<|im_start|>assistant\n"
)

PROMPTS = [
    ("question", "What is the capital of France, and which river flows through it?"),
    ("story", "Once upon a time, in a small village at the edge of a dark forest, there lived"),
    ("python", 'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n    if n < 2:\n        return n\n'),
    ("cpp", "#include <vector>\n\n// Returns the largest element of a non-empty vector.\nint max_of(const "
            "std::vector<int>& values) {\n\tint best = values[0];\n\tfor ("),
    ("chinese", "人工智能是计算机科学的一个分支，它"),
    ("arabic", "اللغة العربية هي واحدة من أكثر اللغات"),
    ("japanese and russian", "東京は日本の首都です。Москва — столица России. "),
    ("emoji", "Happy birthday 🎂🎉! Have a great day 👩‍👩‍👧 🇫🇷 "),
    ("numbers", "12 * 34 = 408\n56 * 78 = 4368\n1,234,567 + 89 = "),
    ("chat", CHAT),
    ("one token", "Why"),
    ("whitespace", "  \n\n\t\tname:   value\n\t\t  other :\t 1 \n\n\n   \r\n    last:"),
    ("long", LONG),
]


def make_tokenizer(file):
    """The published tokenizer: digits one by one, then GPT-2's expression and byte-level BPE; control tokens whole."""
    tokens, types = file["tokenizer.ggml.tokens"], file["tokenizer.ggml.token_type"]
    assert file["tokenizer.ggml.model"] == "gpt2" and file["tokenizer.ggml.pre"] == "smollm"
    merges = [tuple(m.split(" ")) for m in file["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    control = [t for t, kind in zip(tokens, types) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    assert tokenizer.get_vocab_size() == len(tokens)
    return tokenizer


def make_model(file):
    n_heads, n_kv_heads = file["llama.attention.head_count"], file["llama.attention.head_count_kv"]
    n_layers = file["llama.block_count"]
    config = LlamaConfig(
        vocab_size=file["llama.vocab_size"], hidden_size=file["llama.embedding_length"],
        intermediate_size=file["llama.feed_forward_length"], num_hidden_layers=n_layers, num_attention_heads=n_heads,
        num_key_value_heads=n_kv_heads, max_position_embeddings=file["llama.context_length"],
        rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": file["llama.rope.freq_base"]},
        tie_word_embeddings=True, attn_implementation="eager")
    assert np.float32(config.rms_norm_eps) == np.float32(file["llama.attention.layer_norm_rms_epsilon"])
    assert "output.weight" not in file.tensors
    state = {"model.embed_tokens.weight": file.tensor("token_embd.weight"),
             "model.norm.weight": file.tensor("output_norm.weight")}
    for i in range(n_layers):
        for ours, theirs in oracle.LAYER_NAMES.items():
            if ours in ("attn_q_norm", "attn_k_norm"):  # Qwen3's
                continue
            w = file.tensor(f"blk.{i}.{ours}.weight")
            if ours == "attn_q":
                w = oracle.unpermute(w, n_heads)
            if ours == "attn_k":
                w = oracle.unpermute(w, n_kv_heads)
            state[f"model.layers.{i}.{theirs}.weight"] = w
    return oracle.load_state(LlamaForCausalLM(config), state)


def check_against_transformers(path, model):
    """transformers' own reader of GGUF files must come to the same weights."""
    path = pathlib.Path(path).absolute()
    other = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager").state_dict()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, other[name]), name


def row_of(position, logits, sign):
    top = np.argsort(-logits, kind="stable")[:20]
    return oracle.row_head(position, logits) | {
        "top_ids": top.tolist(), "top_logits": [oracle.number(logits[t]) for t in top],
        "projection": [oracle.number(p) for p in logits.astype(np.float64) @ sign]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)

    file = oracle.Gguf(args.model)
    tokenizer, model = make_tokenizer(file), make_model(file)
    check_against_transformers(args.model, model)
    double = make_model(file).double()
    sign = oracle.signs(model.config.vocab_size)
    prompts = []
    for name, text in PROMPTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        out = oracle.greedy(model, ids, N_GREEDY)
        positions = sorted({0, 7} | set(range(len(ids) - 1, len(ids) - 1 + N_GREEDY)))
        logits = oracle.check_run(name, model, double, ids, out, positions, LEAST_MARGIN)
        greedy_text = tokenizer.decode(out, skip_special_tokens=False)
        print(repr(greedy_text))
        prompts.append({"name": name, "text": text, "ids": ids, "greedy": out, "greedy_text": greedy_text,
                        "rows": [row_of(p, logits[p], sign) for p in positions]})
    folder = ROOT / "tests/golden_data/models/smollm2-135m"
    folder.mkdir(parents=True, exist_ok=True)
    oracle.write_json(folder / "golden.json", {
        "model": "SmolLM2-135M-Instruct.Q4_1.gguf", "n_vocab": model.config.vocab_size,
        "projection": {"n": oracle.PROJECTIONS, "seed": oracle.PROJECTION_SEED}, "prompts": prompts})


if __name__ == "__main__":
    main()
