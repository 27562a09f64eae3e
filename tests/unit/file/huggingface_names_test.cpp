#include "file/huggingface_names.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

TEST(HuggingFaceNames, every_tensor_of_llama_qwen2_and_qwen3_has_its_gguf_name) {
    const std::pair<const char*, const char*> kNames[] = {
        {"model.embed_tokens.weight", "token_embd.weight"},
        {"model.norm.weight", "output_norm.weight"},
        {"lm_head.weight", "output.weight"},
        {"model.layers.0.input_layernorm.weight", "blk.0.attn_norm.weight"},
        {"model.layers.7.self_attn.q_proj.weight", "blk.7.attn_q.weight"},
        {"model.layers.7.self_attn.k_proj.weight", "blk.7.attn_k.weight"},
        {"model.layers.7.self_attn.v_proj.weight", "blk.7.attn_v.weight"},
        {"model.layers.7.self_attn.o_proj.weight", "blk.7.attn_output.weight"},
        {"model.layers.12.self_attn.q_proj.bias", "blk.12.attn_q.bias"},
        {"model.layers.12.self_attn.k_proj.bias", "blk.12.attn_k.bias"},
        {"model.layers.12.self_attn.v_proj.bias", "blk.12.attn_v.bias"},
        {"model.layers.12.self_attn.q_norm.weight", "blk.12.attn_q_norm.weight"},
        {"model.layers.12.self_attn.k_norm.weight", "blk.12.attn_k_norm.weight"},
        {"model.layers.126.post_attention_layernorm.weight", "blk.126.ffn_norm.weight"},
        {"model.layers.126.mlp.gate_proj.weight", "blk.126.ffn_gate.weight"},
        {"model.layers.126.mlp.up_proj.weight", "blk.126.ffn_up.weight"},
        {"model.layers.126.mlp.down_proj.weight", "blk.126.ffn_down.weight"},
    };
    for (const auto& [huggingface, gguf] : kNames) EXPECT_EQ(canonical_name(huggingface), gguf);
}

TEST(HuggingFaceNames, what_is_none_of_them_keeps_its_name) {
    for (const char* name :
         {"", ".", "weight", ".weight", "model.layers.", "model.layers.weight",
          "model.layers.1.weight", "model.layers..mlp.up_proj.weight",
          "model.layers.01.mlp.up_proj.weight", "model.layers.-1.mlp.up_proj.weight",
          "model.layers.1234567.mlp.up_proj.weight", "model.layers.1x.mlp.up_proj.weight",
          "model.layers.1.mlp.up_proj.scales", "model.layers.1.mlp.router.weight",
          "visual.blocks.0.mlp.up_proj.weight", "blk.0.attn_q.weight", "lm_head"}) {
        EXPECT_EQ(canonical_name(name), name);
    }
}

}  // namespace
}  // namespace ridge
