#include "model/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "model/rope_table.h"
#include "model/weights.h"
#include "tiny_file.h"

namespace ridge {
namespace {

// The one line that opening the file's model ends in; empty where it succeeds.
std::string error_of(const TinyFile& tiny) {
    try {
        ModelFile file = tiny.build();
        Config config = read_config(file);
        read_weights(file, config);
    } catch (const Error& e) {
        return e.what();
    }
    return {};
}

void expect_refused(const TinyFile& tiny, const std::vector<std::string>& words) {
    std::string message = error_of(tiny);
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_NE(message.find("tiny.gguf"), std::string::npos) << "no file named in: " << message;
    for (const std::string& word : words) {
        EXPECT_NE(message.find(word), std::string::npos) << "no '" << word << "' in: " << message;
    }
}

TEST(Config, reads_what_the_file_says) {
    ModelFile file = TinyFile().build();
    Config config = read_config(file);
    EXPECT_EQ(config.architecture, "llama");
    EXPECT_EQ(config.n_layers, 2);
    EXPECT_EQ(config.d_head, 16);
    EXPECT_EQ(config.d_rope, 16);
    EXPECT_EQ(config.n_vocab, 40);
    EXPECT_EQ(config.rope_style, RopeStyle::kInterleaved);
    EXPECT_FALSE(config.qk_norm);
    EXPECT_FALSE(config.tied_head);
    EXPECT_EQ(read_weights(file, config).layers.size(), 2u);
}

TEST(Config, a_head_apart_from_the_model_width_and_qk_norm) {
    TinyFile tiny("qwen3");
    ModelFile file = tiny.build();
    Config config = read_config(file);
    EXPECT_TRUE(config.qk_norm);
    EXPECT_EQ(config.rope_style, RopeStyle::kHalfSplit);
    EXPECT_TRUE(read_weights(file, config).layers[1].q_norm);
}

TEST(Config, without_output_weight_the_head_is_the_embedding) {
    TinyFile tiny;
    tiny.drop_weight("output.weight");
    ModelFile file = tiny.build();
    Config config = read_config(file);
    EXPECT_TRUE(config.tied_head);
    EXPECT_EQ(read_weights(file, config).head.weight.name, "token_embd.weight");
}

struct BadInteger {
    std::string key;
    uint32_t value;
};

TEST(Config, refuses_hyper_parameters_out_of_range) {
    for (const BadInteger& bad :
         std::vector<BadInteger>{{"block_count", 0},
                                 {"block_count", 1u << 31},
                                 {"attention.head_count", 0},
                                 {"attention.head_count_kv", 0},
                                 {"attention.head_count_kv", 3},
                                 {"attention.head_count_kv", 8},
                                 {"attention.key_length", 0},
                                 {"attention.key_length", 15},
                                 {"attention.key_length", 1u << 31},
                                 {"attention.value_length", 8},
                                 {"embedding_length", 0},
                                 {"feed_forward_length", 0},
                                 {"context_length", 0},
                                 {"context_length", std::numeric_limits<uint32_t>::max()},
                                 {"rope.dimension_count", 0},
                                 {"rope.dimension_count", 7},
                                 {"rope.dimension_count", 18},
                                 {"vocab_size", 41},
                                 {"expert_count", 8}}) {
        SCOPED_TRACE(bad.key + " = " + std::to_string(bad.value));
        TinyFile tiny;
        tiny.set_u32(bad.key, bad.value);
        expect_refused(tiny, {"llama." + bad.key, std::to_string(bad.value)});
    }
}

TEST(Config, refuses_numbers_that_no_norm_or_rope_can_use) {
    for (const std::string key : {"attention.layer_norm_rms_epsilon", "rope.freq_base"}) {
        for (float value : {0.0f, -1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
            SCOPED_TRACE(key + " = " + std::to_string(value));
            TinyFile tiny;
            tiny.set_f32(key, value);
            expect_refused(tiny, {"llama." + key});
        }
    }
}

TEST(Config, refuses_a_missing_key_an_unknown_architecture_and_a_wrong_type) {
    TinyFile without;
    without.erase("block_count");
    expect_refused(without, {"llama.block_count", "absent"});
    expect_refused(TinyFile("gemma3"), {"general.architecture", "gemma3", "llama, qwen2, qwen3"});
    TinyFile text;
    text.set_string("block_count", "two");
    expect_refused(text, {"llama.block_count"});
    TinyFile yarn;
    yarn.set_string("rope.scaling.type", "yarn");
    expect_refused(yarn, {"rope.scaling.type", "yarn"});
    TinyFile backwards;
    backwards.set_f32("rope.scaling.factor", -2);
    expect_refused(backwards, {"rope.scaling.factor", "-2"});
}

TEST(Config, scales_rope_linearly_however_the_file_says_so) {
    for (const std::string key : {"rope.scaling.factor", "rope.scale_linear"}) {
        SCOPED_TRACE(key);
        TinyFile tiny;
        tiny.set_f32(key, 4);
        EXPECT_EQ(read_config(tiny.build()).rope_factors, std::vector<float>(8, 4.0f));
        tiny.set_string("rope.scaling.type", "linear");
        EXPECT_EQ(read_config(tiny.build()).rope_factors, std::vector<float>(8, 4.0f));
        tiny.set_string("rope.scaling.type", "none");
        EXPECT_EQ(read_config(tiny.build()).rope_factors, std::vector<float>());
        tiny.erase("rope.scaling.type");
        tiny.set_f32(key, 0);
        EXPECT_EQ(read_config(tiny.build()).rope_factors, std::vector<float>());
    }
}

TEST(Config, refuses_options_that_would_change_the_arithmetic) {
    TinyFile window;
    window.set_u32("attention.sliding_window", 64);
    expect_refused(window, {"llama.attention.sliding_window", "64"});
    for (const char* key : {"attention.scale", "attention.clamp_kqv", "logit_scale",
                            "residual_scale", "embedding_scale"}) {
        TinyFile tiny;
        tiny.set_f32(key, 0.5f);
        expect_refused(tiny, {std::string("llama.") + key, "0.5"});
        tiny.set_f32(key, 0.0f);  // how files say none
        EXPECT_EQ(error_of(tiny), "") << key;
    }
    TinyFile both_ways;
    both_ways.set("attention.causal", [](GgufWriter& writer, const std::string& name) {
        writer.add_bool(name, false);
    });
    expect_refused(both_ways, {"llama.attention.causal", "false"});
}

TEST(Config, refuses_weights_that_do_not_fit) {
    TinyFile shortened;
    shortened.set_u32("block_count", 1);
    expect_refused(shortened, {"blk.1.attn_norm.weight", "1 layers"});
    TinyFile missing;
    missing.drop_weight("blk.1.ffn_up.weight");
    expect_refused(missing, {"blk.1.ffn_up.weight", "missing"});
    TinyFile swapped;
    swapped.reshape("blk.0.attn_k.weight", {64, 32});
    expect_refused(swapped, {"blk.0.attn_k.weight", "[64, 32]", "[32, 64]", "n_kv_heads * d_head"});
    TinyFile norm("qwen3");
    norm.drop_weight("blk.0.attn_q_norm.weight");
    expect_refused(norm, {"blk.0.attn_q_norm.weight", "missing"});
    TinyFile bias("qwen2");
    bias.weights.push_back({"blk.0.attn_q.bias", {63}});
    expect_refused(bias, {"blk.0.attn_q.bias", "[63]", "[64]"});
    TinyFile no_embedding;
    no_embedding.drop_weight("token_embd.weight");
    expect_refused(no_embedding, {"token_embd.weight", "missing"});
    TinyFile freqs;
    freqs.weights.push_back({"rope_freqs.weight", {7}});
    expect_refused(freqs, {"rope_freqs.weight", "[7]", "[8]"});
    TinyFile zero_freqs;  // the weights are zero, and no frequency can be divided by that
    zero_freqs.weights.push_back({"rope_freqs.weight", {8}});
    expect_refused(zero_freqs, {"rope_freqs.weight", "0"});
}

TEST(RopeTable, llama3_factors_are_the_published_ones) {
    std::vector<float> small = llama3_rope_factors(64, 500000, 32, 1, 4, 8192);
    ASSERT_EQ(small.size(), 32u);
    for (int i = 0; i <= 14; i++) EXPECT_EQ(small[i], 1.0f) << i;
    EXPECT_NEAR(small[15], 1.6513, 1e-4);
    EXPECT_NEAR(small[16], 3.2923, 1e-4);
    EXPECT_NEAR(small[17], 9.6667, 1e-4);
    for (int i = 18; i <= 31; i++) EXPECT_EQ(small[i], 32.0f) << i;

    std::vector<float> large = llama3_rope_factors(128, 500000, 8, 1, 4, 8192);
    const double middle[] = {1.2075, 1.5534, 2.0263, 2.6945, 3.6843, 5.2573};
    for (int i = 0; i <= 28; i++) EXPECT_EQ(large[i], 1.0f) << i;
    for (int i = 0; i < 6; i++) EXPECT_NEAR(large[29 + i], middle[i], 1e-4) << i;
    for (int i = 35; i <= 63; i++) EXPECT_EQ(large[i], 8.0f) << i;
}

TEST(RopeTable, angles_are_exact_far_out) {
    Config config;
    config.d_rope = 128, config.rope_theta = 500000;
    RopeTable table = make_rope_table(config);
    for (int i = 0; i < 64; i++) {
        long double exact = 131071.0L * powl(500000.0L, -2.0L * i / 128);
        EXPECT_NEAR(131071.0 * table.frequency[i], static_cast<double>(exact), 1e-9) << i;
    }
}

}  // namespace
}  // namespace ridge
