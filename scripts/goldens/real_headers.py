"""real_headers.py: names, shapes, types and metadata of published models, from which a test makes sparse files.

    python3 scripts/goldens/real_headers.py        # needs only Python

Writes tests/golden_data/headers/*.json. A description has no vocabulary: a value {"filler": N} stands for N made-up
strings (tokens, or merges), {"repeat": V, "n": N} for N times the same number. Tensors are holes, but for those in
"values". What it follows:
 - the config.json and generation_config.json of meta-llama/Llama-3.2-1B-Instruct and Qwen/Qwen3-4B;
 - the metadata and the counts of tensor types that llama.cpp prints for their Q4_K_M files (147 tensors: 34 F32,
   96 Q4_K, 17 Q6_K; 398 tensors: 145 F32, 216 Q4_K, 37 Q6_K);
 - the order of tensors of llama.cpp's converter and of its quantiser, and of the safetensors library.
The script checks what is known from elsewhere: those counts, the size of the tensors that llama.cpp prints (762.81 MiB;
2.32 GiB), the number of parameters, and the size to the byte of the published safetensors files (2,471,645,608; and
3,957,900,840 + 3,987,450,520 + 99,630,640).
"""

import collections
import json
import math
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = ROOT / "tests/golden_data/headers"

LLAMA = dict(arch="llama", n_layers=16, d_model=2048, n_heads=32, n_kv_heads=8, d_head=64, d_ff=8192, n_vocab=128256,
             n_parameters=1_235_814_400)
QWEN = dict(arch="qwen3", n_layers=36, d_model=2560, n_heads=32, n_kv_heads=8, d_head=128, d_ff=9728, n_vocab=151936,
            n_parameters=4_022_468_096)

LLAMA_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": False,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0", "use_cache": True, "vocab_size": 128256}
QWEN_CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560, "initializer_range": 0.02,
    "intermediate_size": 9728, "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3",
    "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False,
    "vocab_size": 151936}
LLAMA_GENERATION = {"bos_token_id": 128000, "do_sample": True, "eos_token_id": [128001, 128008, 128009],
                    "temperature": 0.6, "top_p": 0.9, "transformers_version": "4.45.0.dev0"}
QWEN_GENERATION = {"bos_token_id": 151643, "do_sample": True, "eos_token_id": [151645, 151643], "pad_token_id": 151643,
                   "temperature": 0.6, "top_k": 20, "top_p": 0.95, "transformers_version": "4.51.0"}

# (name in GGUF, name in transformers, shape), in the order in which transformers saves them.
def layer_tensors(m):
    d, d_q, d_kv = m["d_model"], m["n_heads"] * m["d_head"], m["n_kv_heads"] * m["d_head"]
    attn = [("attn_q", "self_attn.q_proj", [d_q, d]), ("attn_k", "self_attn.k_proj", [d_kv, d]),
            ("attn_v", "self_attn.v_proj", [d_kv, d]), ("attn_output", "self_attn.o_proj", [d, d_q])]
    if m["arch"] == "qwen3":
        attn += [("attn_q_norm", "self_attn.q_norm", [m["d_head"]]), ("attn_k_norm", "self_attn.k_norm", [m["d_head"]])]
    return attn + [("ffn_gate", "mlp.gate_proj", [m["d_ff"], d]), ("ffn_up", "mlp.up_proj", [m["d_ff"], d]),
                   ("ffn_down", "mlp.down_proj", [d, m["d_ff"]]), ("attn_norm", "input_layernorm", [d]),
                   ("ffn_norm", "post_attention_layernorm", [d])]


def all_tensors(m):
    out = [("token_embd.weight", "model.embed_tokens.weight", [m["n_vocab"], m["d_model"]])]
    for i in range(m["n_layers"]):
        out += [(f"blk.{i}.{ours}.weight", f"model.layers.{i}.{theirs}.weight", shape)
                for ours, theirs, shape in layer_tensors(m)]
    return out + [("output_norm.weight", "model.norm.weight", [m["d_model"]])]


# GGUF


def q4_k_m(m, name, shape):
    """llama.cpp's choice for Q4_K_M: Q6_K for the tied embedding, and for attn_v and ffn_down of the first and last
    eighth of the layers and of every third one between them."""
    if len(shape) == 1:
        return "F32"
    n, more = m["n_layers"], False
    if name.startswith("blk."):
        i, module = int(name.split(".")[1]), name.split(".")[2]
        more = module in ("attn_v", "ffn_down") and (i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2)
    return "Q6_K" if more or name == "token_embd.weight" else "Q4_K"


def gguf_tensors(m, kind):
    """[name, shape (row-major), type]: as the converter orders them (BF16), or the quantiser (Q4_K_M)."""
    tensors = [(ours, shape) for ours, _, shape in all_tensors(m)]
    if m["arch"] == "llama":
        tensors.append(("rope_freqs.weight", [m["d_head"] // 2]))
    if kind == "BF16":
        theirs = {ours: hf for ours, hf, _ in all_tensors(m)}

        def order(t):  # rope_freqs first, then by layer and by transformers' name
            layer = int(t[0].split(".")[1]) if t[0].startswith("blk.") else -1 if t[0] != "output_norm.weight" else 999
            return (t[0] != "rope_freqs.weight", layer, theirs.get(t[0], ""))

        return [[n, s, "F32" if len(s) == 1 else "BF16"] for n, s in sorted(tensors, key=order)]

    def order(t):  # what belongs to no layer first, then by layer and name
        return (int(t[0].split(".")[1]) if t[0].startswith("blk.") else -1, t[0])

    return [[n, s, q4_k_m(m, n, s)] for n, s in sorted(tensors, key=order)]


BLOCK_BYTES = {"F32": 1024, "BF16": 512, "Q4_K": 144, "Q6_K": 210}  # of 256 elements


def llama3_factors():
    """What the frequency of each pair is divided by, from LLAMA_CONFIG's rope_scaling."""
    s, factors = LLAMA_CONFIG["rope_scaling"], []
    for i in range(LLAMA["d_head"] // 2):
        frequency = LLAMA_CONFIG["rope_theta"] ** (-2 * i / LLAMA["d_head"])
        turns = s["original_max_position_embeddings"] * frequency / (2 * math.pi)
        smooth = min(max((turns - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"]), 0), 1)
        factors.append(float(f"{1 / ((1 - smooth) / s['factor'] + smooth):.9g}"))
    assert factors[:15] == [1] * 15 and factors[18:] == [32] * 14
    return factors


def filler(n):
    return {"filler": n}


def gguf_metadata(m, kind):
    a = m["arch"]
    file_type = {"BF16": 32, "Q4_K_M": 15}[kind]
    llama = a == "llama"
    general = [("general.architecture", "string", a), ("general.type", "string", "model")]
    if llama:
        general += [("general.name", "string", "Llama 3.2 1B Instruct"), ("general.finetune", "string", "Instruct"),
                    ("general.basename", "string", "Llama-3.2"), ("general.size_label", "string", "1B"),
                    ("general.license", "string", "llama3.2"),
                    ("general.tags", "string[]", ["facebook", "meta", "pytorch", "llama", "llama-3", "text-generation"]),
                    ("general.languages", "string[]", ["en", "de", "fr", "it", "pt", "hi", "es", "th"])]
    else:
        general += [("general.name", "string", "Qwen3 4B"), ("general.basename", "string", "Qwen3"),
                    ("general.size_label", "string", "4B")]
    model = [
        (f"{a}.block_count", "u32", m["n_layers"]), (f"{a}.context_length", "u32", 131072 if llama else 40960),
        (f"{a}.embedding_length", "u32", m["d_model"]), (f"{a}.feed_forward_length", "u32", m["d_ff"]),
        (f"{a}.attention.head_count", "u32", m["n_heads"]), (f"{a}.attention.head_count_kv", "u32", m["n_kv_heads"]),
        (f"{a}.rope.freq_base", "f32", 500000.0 if llama else 1000000.0),
        (f"{a}.attention.layer_norm_rms_epsilon", "f32", 1e-5 if llama else 1e-6),
        (f"{a}.attention.key_length", "u32", m["d_head"]), (f"{a}.attention.value_length", "u32", m["d_head"])]
    if llama:
        model += [("llama.vocab_size", "u32", m["n_vocab"]), ("llama.rope.dimension_count", "u32", m["d_head"])]
    tokenizer = [
        ("tokenizer.ggml.model", "string", "gpt2"), ("tokenizer.ggml.pre", "string", "llama-bpe" if llama else "qwen2"),
        ("tokenizer.ggml.tokens", "string[]", filler(m["n_vocab"])),
        ("tokenizer.ggml.token_type", "i32[]", {"repeat": 1, "n": m["n_vocab"]}),
        ("tokenizer.ggml.merges", "string[]", filler(280147 if llama else 151387))]
    if llama:
        tokenizer += [("tokenizer.ggml.bos_token_id", "u32", 128000), ("tokenizer.ggml.eos_token_id", "u32", 128009)]
    else:
        tokenizer += [("tokenizer.ggml.eos_token_id", "u32", 151645), ("tokenizer.ggml.padding_token_id", "u32", 151643),
                      ("tokenizer.ggml.bos_token_id", "u32", 151643), ("tokenizer.ggml.add_bos_token", "bool", False)]
    end = [("general.quantization_version", "u32", 2), ("general.file_type", "u32", file_type)]
    return general + model + tokenizer + end


def write_gguf(file, m, kind):
    tensors = gguf_tensors(m, kind)
    if kind == "Q4_K_M":
        counts = collections.Counter(t for _, _, t in tensors)
        assert counts == ({"F32": 34, "Q4_K": 96, "Q6_K": 17} if m["arch"] == "llama" else
                          {"F32": 145, "Q4_K": 216, "Q6_K": 37}), counts
        n_bytes = sum(math.prod(s) * BLOCK_BYTES[t] // 256 for _, s, t in tensors)
        assert f"{n_bytes / 2**20:.2f}" == "762.81" if m["arch"] == "llama" else f"{n_bytes / 2**30:.2f}" == "2.32"
    values = {"rope_freqs.weight": llama3_factors()} if m["arch"] == "llama" else {}
    write(file, {"kind": "gguf", "alignment": 32, "metadata": gguf_metadata(m, kind), "tensors": tensors,
                 "values": values})


# safetensors


def safetensors_bytes(tensors):
    """Size of the file that the safetensors library writes: header padded to 8, tensors by name."""
    offset, header = 0, {"__metadata__": {"format": "pt"}}
    for name, shape in tensors:
        n_bytes = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + n_bytes]}
        offset += n_bytes
    length = len(json.dumps(header, separators=(",", ":")))
    return 8 + (length + 7) // 8 * 8 + offset


def shards(tensors, max_bytes):
    """Files of at most max_bytes, filled in the order of saving; within a file, tensors lie by name."""
    parts, n_bytes = [[]], 0
    for name, shape in tensors:
        size = 2 * math.prod(shape)
        if n_bytes + size > max_bytes:
            parts.append([])
            n_bytes = 0
        parts[-1].append([name, shape])
        n_bytes += size
    return [sorted(part) for part in parts]


def write_safetensors(file, m, config, generation, max_bytes, file_bytes):
    tensors = [(theirs, shape) for _, theirs, shape in all_tensors(m)]
    assert sum(math.prod(shape) for _, shape in tensors) == m["n_parameters"]
    parts = shards(tensors, max_bytes)
    assert [safetensors_bytes(part) for part in parts] == file_bytes, [safetensors_bytes(part) for part in parts]
    names = ["model.safetensors"]
    if len(parts) > 1:
        names = [f"model-{i + 1:05d}-of-{len(parts):05d}.safetensors" for i in range(len(parts))]
    files = [{"name": n, "file_bytes": size, "dtype": "BF16", "tensors": part}
             for n, size, part in zip(names, file_bytes, parts)]
    write(file, {"kind": "safetensors", "config": config, "generation_config": generation, "files": files})


def write(file, value):
    text = json.dumps(value, separators=(",", ":"))
    for start in ('["blk.', '["model.layers', '["general', '["tokenizer', '{"name":'):
        text = text.replace(start, "\n" + start)
    HEADERS.mkdir(parents=True, exist_ok=True)
    (HEADERS / file).write_text(text + "\n")


def main():
    write_gguf("llama-3.2-1b-instruct-q4_k_m.gguf.json", LLAMA, "Q4_K_M")
    write_gguf("llama-3.2-1b-instruct-bf16.gguf.json", LLAMA, "BF16")
    write_gguf("qwen3-4b-q4_k_m.gguf.json", QWEN, "Q4_K_M")
    write_safetensors("llama-3.2-1b-instruct.safetensors.json", LLAMA, LLAMA_CONFIG, LLAMA_GENERATION, 5e9,
                      [2_471_645_608])
    write_safetensors("qwen3-4b.safetensors.json", QWEN, QWEN_CONFIG, QWEN_GENERATION, 4e9,
                      [3_957_900_840, 3_987_450_520, 99_630_640])


if __name__ == "__main__":
    main()
