"""tiny_models.py: random models of every option, as GGUF, safetensors and MLX files, with goldens by transformers.

    python3 -m venv .venv && .venv/bin/pip install -r scripts/goldens/requirements.txt
    .venv/bin/python scripts/goldens/tiny_models.py

Writes tests/golden_data/models/<name>/: the model in each form, golden.json and logits.f32 (their layout: oracle.py).
Weights are random but chosen so that what could be forgotten shows: frequencies that are scaled, Q and K so small that
the epsilon of their norm matters, biases, and greedy choices with a margin. Takes under a minute.
"""

import dataclasses
import pathlib
import shutil

import numpy as np
import torch
import transformers

import oracle
import tiny_files
import tiny_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests/golden_data/models"
N_VOCAB = 512
N_GREEDY = 16
LEAST_MARGIN = 0.01
TEXT = "The river was the town's friend and its enemy: 12 ships in 1455.\n\n    sum += i; Москва, café 🙂"


@dataclasses.dataclass
class Spec:
    name: str
    arch: str
    seed: int
    vocabulary: tiny_tokenizers.Vocabulary
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_ff: int
    tied: bool
    eps: float
    theta: float
    rope_scaling: dict | None = None
    rope_parameters: bool = False
    n_ctx: int = 2048
    hf_dtype: str = "BF16"
    n_shards: int = 1
    gguf_split: int = 0  # tensors of one part
    n_long: int = 200
    embed_std: float = 0.35
    qk_gain: float = 1.6

    @property
    def n_vocab(self):
        return len(self.vocabulary.tokens)


def random_weights(spec):
    """float32 arrays under their transformers names, of values that spec.hf_dtype can hold."""
    rng = np.random.default_rng(spec.seed)
    d, d_q, d_kv = spec.d_model, spec.n_heads * spec.d_head, spec.n_kv_heads * spec.d_head
    weights = {}

    def matrix(name, d_out, d_in, gain):
        weights[name + ".weight"] = rng.normal(0, gain / np.sqrt(d_in), (d_out, d_in))

    def norm(name, n):
        weights[name + ".weight"] = rng.uniform(0.5, 1.5, n)

    weights["model.embed_tokens.weight"] = rng.normal(0, spec.embed_std, (spec.n_vocab, d))
    for i in range(spec.n_layers):
        p = f"model.layers.{i}."
        norm(p + "input_layernorm", d)
        matrix(p + "self_attn.q_proj", d_q, d, spec.qk_gain)
        matrix(p + "self_attn.k_proj", d_kv, d, spec.qk_gain)
        matrix(p + "self_attn.v_proj", d_kv, d, 1.0)
        if spec.arch == "qwen2":
            for which, n, size in (("q", d_q, 1.5), ("k", d_kv, 1.5), ("v", d_kv, 0.5)):
                weights[p + f"self_attn.{which}_proj.bias"] = rng.normal(0, size, n)
        if spec.arch == "qwen3":
            norm(p + "self_attn.q_norm", spec.d_head)
            norm(p + "self_attn.k_norm", spec.d_head)
        matrix(p + "self_attn.o_proj", d, d_q, 2.0)
        norm(p + "post_attention_layernorm", d)
        matrix(p + "mlp.gate_proj", spec.d_ff, d, 1.5)
        matrix(p + "mlp.up_proj", spec.d_ff, d, 1.5)
        matrix(p + "mlp.down_proj", d, spec.d_ff, 1.5)
    norm("model.norm", d)
    if not spec.tied:
        matrix("lm_head", spec.n_vocab, d, 3.0)
    return {name: tiny_files.rounded(w.astype(np.float32), spec.hf_dtype) for name, w in weights.items()}


def make_model(spec, weights):
    config = transformers.AutoConfig.for_model(**tiny_files.hf_config(spec))
    config._attn_implementation = "eager"
    return oracle.load_state(transformers.AutoModelForCausalLM.from_config(config), weights)


def check_same(spec, model, other, what):
    """Two models agree on a sequence: bit for bit where they were built the same way."""
    ids = np.random.default_rng(1).integers(0, spec.n_vocab, 64).tolist()
    error = oracle.relative_l2(oracle.all_logits(other, ids), oracle.all_logits(model, ids))
    assert error < 1e-6, (spec.name, what, error)


def write_golden(spec, weights, files):
    """Three prompts: text, eight ids, and a long run of ids; complete logits at a handful of positions of each."""
    model, double = make_model(spec, weights), make_model(spec, weights).double()
    rng = np.random.default_rng(spec.seed + 1)
    usable = [i for i, t in enumerate(spec.vocabulary.types) if t != tiny_tokenizers.UNUSED]
    prompts, complete = [], []
    for name, text, ids in (("text", TEXT, spec.vocabulary.encode(TEXT)),
                            ("eight ids", None, rng.choice(usable, 8).tolist()),
                            ("long", None, rng.choice(usable, spec.n_long).tolist())):
        out = oracle.greedy(model, ids, N_GREEDY)
        last = len(ids) - 1
        positions = sorted({0, 1, 7, last // 2, last, last + 5, last + N_GREEDY - 1})
        logits = oracle.check_run(f"{spec.name}: {name}", model, double, ids, out, positions, LEAST_MARGIN)
        rows = []
        for p in positions:
            rows.append(oracle.row_head(p, logits[p]) | {"logits_row": len(complete)})
            complete.append(logits[p])
        prompts.append({"name": name} | ({"text": text} if text else {}) |
                       {"ids": ids, "greedy": out, "rows": rows})
    np.array(complete, dtype="<f4").tofile(MODELS / spec.name / "logits.f32")
    oracle.write_json(MODELS / spec.name / "golden.json", {
        "files": files, "n_vocab": spec.n_vocab,
        "projection": {"n": oracle.PROJECTIONS, "seed": oracle.PROJECTION_SEED}, "prompts": prompts})
    return model


def check_matters(spec, weights, model, change):
    """A model that lacks one property must give quite different logits, or the golden would not show the fault."""
    ids = np.random.default_rng(2).integers(0, spec.n_vocab, spec.n_long).tolist()
    other = make_model(dataclasses.replace(spec, **change), weights)
    a, b = oracle.all_logits(model, ids), oracle.all_logits(other, ids)
    error = oracle.relative_l2(b[7], a[7])
    assert error > 3e-3, (spec.name, change, error)
    print(f"{spec.name}: with {change} logits at position 7 differ by {error:.2g}")


def both_forms(spec, gguf_type, matters):
    """The same weights as a Hugging Face folder and as a GGUF file of one type."""
    folder = MODELS / spec.name
    weights = random_weights(spec)
    tiny_files.write_hf(folder / "hf", spec, weights)
    path = folder / f"model-{gguf_type.lower()}.gguf"
    tiny_files.write_gguf(path, spec, weights, lambda name: gguf_type)
    back = tiny_files.read_gguf(path, spec, weights)
    for name, weight in weights.items():
        assert np.array_equal(back[name], weight), (spec.name, name)
    first = sorted(folder.glob(path.stem + "*.gguf"))[0].name
    model = write_golden(spec, weights, ["hf", first])
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "hf", dtype=torch.float32, attn_implementation="eager")
    check_same(spec, model, loaded, "the folder as transformers loads it")
    if spec.arch == "llama" and not spec.rope_scaling:  # transformers ignores rope_freqs, and Qwen3's key_length
        loaded = transformers.AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=first, dtype=torch.float32, attn_implementation="eager")
        check_same(spec, model, loaded, "the GGUF file as transformers loads it")
    for change in matters:
        check_matters(spec, weights, model, change)


def quantised_gguf(spec, file_name, types):
    """A GGUF file of mixed types; the golden is of the weights that it stands for."""
    folder = MODELS / spec.name
    folder.mkdir(parents=True, exist_ok=True)
    weights = random_weights(spec)
    tiny_files.write_gguf(folder / file_name, spec, weights, types, np.random.default_rng(spec.seed + 2))
    write_golden(spec, tiny_files.read_gguf(folder / file_name, spec, weights), [file_name])


def mlx(spec, group_size, scale_dtype, overrides):
    folder = MODELS / spec.name
    meaning = tiny_files.write_mlx(folder / "mlx", spec, random_weights(spec), group_size, scale_dtype, overrides)
    model = write_golden(spec, meaning, ["mlx"])
    if spec.rope_scaling:
        check_matters(spec, meaning, model, {"rope_scaling": None})


# One matrix in each format that GGUF has: two layers of seven, the embedding and the head.
ALL_TYPES = {
    "token_embd": "Q3_K", "output": "IQ4_XS",
    "blk.0.attn_q": "Q4_0", "blk.0.attn_k": "F16", "blk.0.attn_v": "BF16", "blk.0.attn_output": "Q4_1",
    "blk.0.ffn_gate": "Q5_0", "blk.0.ffn_up": "Q5_1", "blk.0.ffn_down": "Q2_K",
    "blk.1.attn_q": "Q5_K", "blk.1.attn_k": "F32", "blk.1.attn_v": "Q8_0", "blk.1.attn_output": "Q3_K",
    "blk.1.ffn_gate": "IQ4_NL", "blk.1.ffn_up": "Q4_K", "blk.1.ffn_down": "Q6_K",
}


def q4_k_m(name):
    """As llama.cpp chooses, where half of the layers give attn_v and ffn_down more bits."""
    more = name.startswith("blk.0.") and name.split(".")[2] in ("attn_v", "ffn_down")
    return "Q6_K" if more or name == "token_embd.weight" else "Q4_K"


def llama3_scaled(vocabulary):
    scaling = {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 64,
               "rope_type": "llama3"}
    return Spec("llama3-scaled", "llama", 11, vocabulary, 96, 2, 3, 1, 32, 160, True, 1e-5, 500000.0,
                rope_scaling=scaling, n_long=280)


def llama_all_formats(vocabulary):
    return Spec("llama-all-formats", "llama", 71, vocabulary, 256, 2, 4, 1, 64, 256, False, 1e-5, 500000.0,
                hf_dtype="F32")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for old in MODELS.glob("*"):
        if old.name != "smollm2-135m":
            shutil.rmtree(old)
    llama3, llama2 = tiny_tokenizers.llama3(N_VOCAB), tiny_tokenizers.llama2(N_VOCAB)
    qwen3, qwen2 = tiny_tokenizers.qwen(N_VOCAB, thinking=True), tiny_tokenizers.qwen(N_VOCAB, thinking=False)
    both_forms(llama3_scaled(llama3), "BF16", [{"rope_scaling": None}, {"theta": 10000.0}])
    both_forms(Spec("llama2-untied", "llama", 21, llama2, 64, 2, 4, 4, 16, 176, False, 1e-5, 10000.0, hf_dtype="F16",
                    n_shards=2, embed_std=0.004),
               "F16", [{"eps": 1e-6}, {"theta": 500000.0}])
    both_forms(Spec("qwen3-tied", "qwen3", 31, qwen3, 64, 2, 4, 2, 32, 96, True, 1e-6, 1000000.0, qk_gain=0.003),
               "F32", [{"eps": 1e-5}])
    both_forms(Spec("qwen2-bias", "qwen2", 41, qwen2, 64, 2, 4, 2, 16, 128, False, 1e-6, 1000000.0, hf_dtype="F32",
                    rope_parameters=True, gguf_split=13, embed_std=0.002),
               "F32", [{"eps": 1e-5}])
    mlx(Spec("mlx-qwen3", "qwen3", 51, qwen3, 64, 2, 4, 2, 32, 96, True, 1e-6, 1000000.0, qk_gain=0.003), 32, "BF16",
        {"model.layers.1.self_attn.v_proj": {"group_size": 32, "bits": 8}})
    mlx(Spec("mlx-llama", "llama", 63, llama3, 128, 2, 4, 2, 32, 128, False, 1e-5, 10000.0, hf_dtype="F16",
             rope_scaling={"type": "linear", "factor": 2.5}), 64, "F16",
        {"model.layers.0.mlp.down_proj": {"group_size": 32, "bits": 8},
         "model.layers.1.self_attn.q_proj": {"group_size": 128, "bits": 4},
         "model.layers.1.self_attn.k_proj": False})
    quantised_gguf(llama_all_formats(llama3), "model-mixed.gguf", lambda name: ALL_TYPES[name.removesuffix(".weight")])
    quantised_gguf(Spec("qwen3-q4_k_m", "qwen3", 81, qwen3, 256, 2, 2, 1, 128, 256, True, 1e-6, 1000000.0,
                        hf_dtype="F32", qk_gain=0.003, embed_std=0.15),
                   "model-q4_k_m.gguf", q4_k_m)


if __name__ == "__main__":
    main()
