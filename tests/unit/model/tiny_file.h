#pragma once

#include <functional>
#include <string>
#include <vector>

#include "file/gguf_writer.h"
#include "file/model_file.h"

namespace ridge {

// A small llama, qwen2 or qwen3 GGUF without a tokenizer, whose metadata and tensors a test can
// change before it is built: the weights are zero.
struct TinyFile {
    struct Weight {
        std::string name;
        std::vector<int64_t> shape;
    };
    std::string architecture = "llama";
    // Written after `architecture`'s prefix; a test replaces or erases entries by key.
    std::vector<std::pair<std::string, std::function<void(GgufWriter&, const std::string&)>>> keys;
    std::vector<Weight> weights;

    explicit TinyFile(std::string arch = "llama") : architecture(std::move(arch)) {
        set_u32("block_count", 2);
        set_u32("embedding_length", 64);
        set_u32("attention.head_count", 4);
        set_u32("attention.head_count_kv", 2);
        set_u32("attention.key_length", 16);
        set_u32("feed_forward_length", 96);
        set_u32("context_length", 128);
        set_f32("attention.layer_norm_rms_epsilon", 1e-5f);
        set_f32("rope.freq_base", 10000.0f);
        weights = {{"token_embd.weight", {40, 64}},
                   {"output_norm.weight", {64}},
                   {"output.weight", {40, 64}}};
        for (int i = 0; i < 2; i++) {
            std::string blk = "blk." + std::to_string(i) + ".";
            for (const Weight& weight : std::vector<Weight>{{"attn_norm.weight", {64}},
                                                            {"attn_q.weight", {64, 64}},
                                                            {"attn_k.weight", {32, 64}},
                                                            {"attn_v.weight", {32, 64}},
                                                            {"attn_output.weight", {64, 64}},
                                                            {"ffn_norm.weight", {64}},
                                                            {"ffn_gate.weight", {96, 64}},
                                                            {"ffn_up.weight", {96, 64}},
                                                            {"ffn_down.weight", {64, 96}}}) {
                weights.push_back({blk + weight.name, weight.shape});
            }
            if (architecture == "qwen3") {
                weights.push_back({blk + "attn_q_norm.weight", {16}});
                weights.push_back({blk + "attn_k_norm.weight", {16}});
            }
        }
    }

    void erase(const std::string& key) {
        std::erase_if(keys, [&](const auto& entry) { return entry.first == key; });
    }
    void set(const std::string& key, std::function<void(GgufWriter&, const std::string&)> add) {
        erase(key);
        keys.emplace_back(key, std::move(add));
    }
    void set_u32(const std::string& key, uint32_t value) {
        set(key,
            [value](GgufWriter& writer, const std::string& name) { writer.add_u32(name, value); });
    }
    void set_f32(const std::string& key, float value) {
        set(key,
            [value](GgufWriter& writer, const std::string& name) { writer.add_f32(name, value); });
    }
    void set_string(const std::string& key, const std::string& value) {
        set(key, [value](GgufWriter& writer, const std::string& name) {
            writer.add_string(name, value);
        });
    }
    void drop_weight(const std::string& name) {
        std::erase_if(weights, [&](const Weight& weight) { return weight.name == name; });
    }
    void reshape(const std::string& name, std::vector<int64_t> shape) {
        for (Weight& weight : weights) {
            if (weight.name == name) weight.shape = shape;
        }
    }

    ModelFile build() const {
        GgufWriter writer;
        writer.add_string("general.architecture", architecture);
        for (const auto& [key, add] : keys) add(writer, architecture + "." + key);
        for (const Weight& weight : weights) {
            writer.add_tensor(weight.name, format_of(FormatId::kF32), weight.shape);
        }
        return ModelFile::from_memory(writer.build("tiny.gguf"));
    }
};

}  // namespace ridge
