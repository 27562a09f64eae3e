"""Writers of model files as their usual tools make them (GGUF, Hugging Face folders, MLX); used by tiny_models.py."""

import copy
import json

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.torch import save_file

import oracle

TORCH_TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
FILE_TYPES = {"F32": 0, "F16": 1, "BF16": 32, "MIXED": 15}  # general.file_type: 15 is Q4_K_M, the usual mixture


def rounded(weight, dtype):
    """float32 values that the 16-bit type can hold."""
    return torch.from_numpy(weight).to(TORCH_TYPES[dtype]).float().numpy()


# Hugging Face folders


def hf_config(spec):
    """config.json with the keys of the published models of each architecture."""
    vocabulary = spec.vocabulary
    config = {
        "architectures": [{"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}[
            spec.arch]],
        "attention_dropout": 0.0, "bos_token_id": vocabulary.bos, "eos_token_id": vocabulary.eos, "hidden_act": "silu",
        "hidden_size": spec.d_model, "initializer_range": 0.02, "intermediate_size": spec.d_ff,
        "max_position_embeddings": spec.n_ctx, "model_type": spec.arch, "num_attention_heads": spec.n_heads,
        "num_hidden_layers": spec.n_layers, "num_key_value_heads": spec.n_kv_heads, "rms_norm_eps": spec.eps,
        "tie_word_embeddings": spec.tied,
        "torch_dtype": {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[spec.hf_dtype],
        "use_cache": True, "vocab_size": spec.n_vocab}
    if spec.arch == "llama":
        config |= {"attention_bias": False, "mlp_bias": False, "pretraining_tp": 1}
    else:
        config |= {"sliding_window": None, "use_sliding_window": False, "max_window_layers": spec.n_layers}
    if spec.arch == "qwen3":
        config |= {"attention_bias": False}
    if spec.d_head * spec.n_heads != spec.d_model or spec.rope_scaling:
        config["head_dim"] = spec.d_head
    if spec.rope_parameters:  # as transformers 5 writes it
        config["rope_parameters"] = {"rope_theta": spec.theta, "rope_type": "default"}
    else:
        config |= {"rope_theta": spec.theta, "rope_scaling": copy.copy(spec.rope_scaling)}
    return config


def write_hf_json(folder, spec, config):
    vocabulary = spec.vocabulary
    folder.mkdir(parents=True, exist_ok=True)

    def write(name, value):
        (folder / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def token(i):
        return vocabulary.tokens[i] if i is not None else None

    write("config.json", config)
    write("generation_config.json", {
        "bos_token_id": vocabulary.bos, "do_sample": True, "eos_token_id": sorted({vocabulary.eos, vocabulary.eos - 1}),
        "temperature": 0.6, "top_p": 0.9})
    write("tokenizer_config.json", {
        "add_bos_token": vocabulary.add_bos, "bos_token": token(vocabulary.bos),
        "chat_template": vocabulary.chat_template, "clean_up_tokenization_spaces": False,
        "eos_token": token(vocabulary.eos), "pad_token": token(vocabulary.pad), "model_max_length": spec.n_ctx,
        "tokenizer_class": {"llama": "PreTrainedTokenizerFast"}.get(spec.arch, "Qwen2Tokenizer")})
    (folder / "tokenizer.json").write_text(vocabulary.tokenizer_json(), encoding="utf-8")


def write_hf(folder, spec, weights):
    """A folder with one safetensors file, or with spec.n_shards of them and an index."""
    write_hf_json(folder, spec, hf_config(spec))
    tensors = {n: torch.from_numpy(w.copy()).to(TORCH_TYPES[spec.hf_dtype]) for n, w in weights.items()}
    if spec.n_shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names, weight_map = list(tensors), {}
    for i in range(spec.n_shards):
        part = names[i * len(names) // spec.n_shards : (i + 1) * len(names) // spec.n_shards]
        file = f"model-{i + 1:05d}-of-{spec.n_shards:05d}.safetensors"
        save_file({n: tensors[n] for n in part}, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}, indent=2) + "\n")


# MLX


def mlx_quantize(weight, bits, group_size, scale_dtype):
    """(codes, scales, biases, float32 values) by MLX's affine formula: w = scale * code + bias, and within a group the
    value of largest magnitude is represented exactly (up to the rounding of scale and bias)."""
    d_out, d_in = weight.shape
    groups = weight.reshape(d_out, d_in // group_size, group_size).astype(np.float32)
    low, high, n_bins = groups.min(-1), groups.max(-1), np.float32(2**bits - 1)
    low_is_edge = np.abs(low) > np.abs(high)
    scale = np.maximum((high - low) / n_bins, np.float32(1e-7))
    scale = np.where(low_is_edge, scale, -scale)
    edge = np.where(low_is_edge, low, high)
    q0 = np.round(edge / scale)
    bias = np.where(q0 == 0, np.float32(0), edge)
    scale = np.where(q0 == 0, scale, edge / np.where(q0 == 0, np.float32(1), q0))
    codes = np.clip(np.round((groups - bias[..., None]) / scale[..., None]), 0, n_bins).astype(np.uint32)
    scale, bias = rounded(scale, scale_dtype), rounded(bias, scale_dtype)
    values = (scale[..., None] * codes.astype(np.float32) + bias[..., None]).reshape(d_out, d_in)
    per_word = 32 // bits
    words = codes.reshape(d_out, d_in // per_word, per_word) << (np.arange(per_word, dtype=np.uint32) * np.uint32(bits))
    return np.bitwise_or.reduce(words, axis=-1).astype(np.uint32), scale, bias, values


def write_mlx(folder, spec, weights, group_size, scale_dtype, overrides):
    """A folder as mlx_lm.convert writes it; returns the float32 weights that it stands for. `overrides` maps a module
    to its own {group_size, bits}, or to False: not quantised."""
    tensors, meaning = {}, {}
    for name, weight in weights.items():
        module = name.removesuffix(".weight")
        how = overrides.get(module, {"group_size": group_size, "bits": 4})
        if weight.ndim == 1 or how is False:
            tensors[name] = torch.from_numpy(weight.copy()).to(TORCH_TYPES[scale_dtype])
            meaning[name] = rounded(weight, scale_dtype)
            continue
        codes, scale, bias, meaning[name] = mlx_quantize(weight, how["bits"], how["group_size"], scale_dtype)
        tensors[f"{module}.weight"] = torch.from_numpy(codes)
        tensors[f"{module}.scales"] = torch.from_numpy(scale).to(TORCH_TYPES[scale_dtype])
        tensors[f"{module}.biases"] = torch.from_numpy(bias).to(TORCH_TYPES[scale_dtype])
    quantization = {"group_size": group_size, "bits": 4} | overrides
    write_hf_json(folder, spec, hf_config(spec) | {"quantization": quantization, "quantization_config": quantization})
    save_file(tensors, folder / "model.safetensors", metadata={"format": "mlx"})
    return meaning


# GGUF


def gguf_name(name):
    if name in ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"):
        return {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
                "lm_head.weight": "output.weight"}[name]
    _, _, layer, rest = name.split(".", 3)
    module, kind = rest.rsplit(".", 1)
    ours = {theirs: ours for ours, theirs in oracle.LAYER_NAMES.items()}[module]
    return f"blk.{layer}.{ours}.{kind}"


def llama3_factors(spec):
    """rope_freqs.weight: what each pair's frequency is divided by."""
    s = spec.rope_scaling
    factors = []
    for frequency in 1.0 / spec.theta ** (np.arange(0, spec.d_head, 2) / spec.d_head):
        turns = s["original_max_position_embeddings"] * frequency / (2 * np.pi)
        smooth = (turns - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
        smooth = min(max(smooth, 0.0), 1.0)
        factors.append(1.0 / ((1.0 - smooth) / s["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def add_metadata(writer, spec, file_type):
    writer.add_type("model")
    writer.add_name(spec.name)
    writer.add_size_label("200K")
    writer.add_block_count(spec.n_layers)
    writer.add_context_length(spec.n_ctx)
    writer.add_embedding_length(spec.d_model)
    writer.add_feed_forward_length(spec.d_ff)
    writer.add_head_count(spec.n_heads)
    writer.add_head_count_kv(spec.n_kv_heads)
    writer.add_rope_freq_base(spec.theta)
    writer.add_layer_norm_rms_eps(spec.eps)
    if spec.d_head * spec.n_heads != spec.d_model or spec.rope_scaling:
        writer.add_key_length(spec.d_head)
        writer.add_value_length(spec.d_head)
    writer.add_file_type(file_type)
    if spec.arch == "llama":
        writer.add_vocab_size(spec.n_vocab)
        writer.add_rope_dimension_count(spec.d_head)
    v = spec.vocabulary
    writer.add_tokenizer_model(v.gguf_model)
    writer.add_tokenizer_pre(v.pre)
    writer.add_token_list(v.tokens)
    if v.scores:
        writer.add_token_scores(v.scores)
    writer.add_token_types(v.types)
    if v.merges:
        writer.add_token_merges(v.merges)
    writer.add_bos_token_id(v.bos)
    writer.add_eos_token_id(v.eos)
    if v.pad is not None:
        writer.add_pad_token_id(v.pad)
    writer.add_add_bos_token(v.add_bos)
    writer.add_chat_template(v.chat_template)
    writer.add_quantization_version(2)


def write_gguf(path, spec, weights, types, rng=None):
    """Writes the model as llama.cpp's converter does: vectors in float32, matrices in types(gguf name), Q and K rows
    of llama models permuted. A type that the gguf package cannot quantise to gets random blocks of about the weight's
    standard deviation instead."""
    writer = gguf.GGUFWriter(path, spec.arch, split_max_tensors=spec.gguf_split)
    used = {types(gguf_name(n)) for n, w in weights.items() if w.ndim == 2}
    add_metadata(writer, spec, FILE_TYPES[used.pop() if len(used) == 1 else "MIXED"])
    if spec.rope_scaling and spec.rope_scaling.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(spec))
    for name, weight in weights.items():
        name = gguf_name(name)
        if spec.arch == "llama" and name.endswith("attn_q.weight"):
            weight = oracle.permute(weight, spec.n_heads)
        if spec.arch == "llama" and name.endswith("attn_k.weight"):
            weight = oracle.permute(weight, spec.n_kv_heads)
        if weight.ndim == 1:
            writer.add_tensor(name, weight.astype(np.float32))
            continue
        kind = Type[types(name)]
        try:
            data = gguf.quants.quantize(np.ascontiguousarray(weight), kind)
        except NotImplementedError:
            data = random_blocks(rng, kind, weight.shape, float(weight.std()))
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# Offsets of the 16-bit scales within a block of 256 (IQ4_NL: 32) elements: d, and dmin where the type has one.
SCALE_OFFSETS = {Type.Q2_K: (80, 82), Type.Q3_K: (108,), Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208,),
                 Type.IQ4_NL: (0,), Type.IQ4_XS: (0,)}
# dmin / d that makes the mean about 0: scales and minima are alike, codes have this mean.
MEAN_CODE = {Type.Q2_K: 1.5, Type.Q4_K: 7.5, Type.Q5_K: 15.5}


def random_blocks(rng, kind, shape, std):
    """Every bit of every field random, but the 16-bit scales, which are set so that the values have the wanted standard
    deviation (the d of a third of the blocks negative)."""
    n_elements, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    n_blocks = shape[0] * shape[1] // n_elements
    blocks = rng.integers(0, 256, (n_blocks, n_bytes), dtype=np.uint8)
    d = rng.uniform(0.5, 1.5, n_blocks) * rng.choice([1.0, 1.0, -1.0], n_blocks)

    def fill(unit):
        for offset, factor in zip(SCALE_OFFSETS[kind], (1.0, MEAN_CODE.get(kind, 0.0))):
            blocks[:, offset : offset + 2] = (d * unit * factor).astype(np.float16).view(np.uint8).reshape(-1, 2)
        return gguf.quants.dequantize(blocks.reshape(shape[0], -1), kind)

    fill(std / float(fill(1e-2).std()) * 1e-2)
    return blocks.reshape(shape[0], -1)


def read_gguf(path, spec, names):
    """The float32 weights that a GGUF file stands for, under their transformers names."""
    parts = [oracle.Gguf(p) for p in sorted(path.parent.glob(path.stem + "*.gguf"))]
    tensors = {name: part for part in parts for name in part.tensors}
    out = {}
    for name in names:
        weight = tensors[gguf_name(name)].tensor(gguf_name(name))
        if spec.arch == "llama" and name.endswith("q_proj.weight"):
            weight = oracle.unpermute(weight, spec.n_heads)
        if spec.arch == "llama" and name.endswith("k_proj.weight"):
            weight = oracle.unpermute(weight, spec.n_kv_heads)
        out[name] = weight
    return out
