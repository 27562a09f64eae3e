// The loader on files that carry the headers of published models: names, shapes, formats and
// metadata. Their weights are holes, so these tests say nothing about numbers.

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "base/system.h"
#include "golden/sparse_file.h"
#include "model/config.h"
#include "model/cost.h"
#include "model/weights.h"
#include "support/temporary_folder.h"

namespace ridge {
namespace {

struct Published {
    std::string description;
    Config config;  // what must be read from it
    int64_t n_parameters;
    int64_t weight_bytes;
};

void PrintTo(const Published& published, std::ostream* out) {
    *out << published.description;
}

Config llama_config() {
    Config config;
    config.architecture = "llama";
    config.n_layers = 16, config.d_model = 2048, config.n_heads = 32, config.n_kv_heads = 8;
    config.d_head = 64, config.d_ff = 8192, config.n_vocab = 128256, config.n_ctx_train = 131072;
    config.norm_eps = 1e-5f, config.rope_theta = 500000, config.d_rope = 64;
    config.rope_factors.assign(15, 1.0f);
    for (float factor : {1.6513f, 3.2923f, 9.6667f}) config.rope_factors.push_back(factor);
    config.rope_factors.resize(32, 32.0f);
    config.tied_head = true;
    return config;
}

Config qwen_config() {
    Config config;
    config.architecture = "qwen3";
    config.n_layers = 36, config.d_model = 2560, config.n_heads = 32, config.n_kv_heads = 8;
    config.d_head = 128, config.d_ff = 9728, config.n_vocab = 151936, config.n_ctx_train = 40960;
    config.norm_eps = 1e-6f, config.rope_theta = 1e6, config.d_rope = 128;
    config.qk_norm = true, config.tied_head = true;
    return config;
}

Config interleaved(Config config) {
    config.rope_style = RopeStyle::kInterleaved;
    return config;
}

// Norms are float32 in GGUF and bf16 in safetensors; every parameter of the safetensors takes two
// bytes.
constexpr int64_t kLlamaParameters = 1235814400, kQwenParameters = 4022468096;
constexpr int64_t kLlamaNorms = 33 * 2048;  // their elements

std::vector<Published> published() {
    return {
        {"llama-3.2-1b-instruct-q4_k_m.gguf", interleaved(llama_config()), kLlamaParameters,
         799862784},
        {"llama-3.2-1b-instruct-bf16.gguf", interleaved(llama_config()), kLlamaParameters,
         2 * kLlamaParameters + 2 * kLlamaNorms},
        {"llama-3.2-1b-instruct.safetensors", llama_config(), kLlamaParameters,
         2 * kLlamaParameters},
        {"qwen3-4b-q4_k_m.gguf", qwen_config(), kQwenParameters, 2491323904},
        {"qwen3-4b.safetensors", qwen_config(), kQwenParameters, 2 * kQwenParameters},
    };
}

class RealHeaders : public testing::TestWithParam<Published> {
  protected:
    TemporaryFolder folder_;
    std::string path_ = make_sparse_model(
        std::string(RIDGE_TESTS_DIR) + "/golden_data/headers/" + GetParam().description + ".json",
        folder_.path());
};

TEST_P(RealHeaders, give_the_published_configuration) {
    ModelFile file = ModelFile::open(path_);
    Config got = read_config(file), want = GetParam().config;
    EXPECT_EQ(got.architecture, want.architecture);
    EXPECT_EQ(got.n_layers, want.n_layers);
    EXPECT_EQ(got.d_model, want.d_model);
    EXPECT_EQ(got.n_heads, want.n_heads);
    EXPECT_EQ(got.n_kv_heads, want.n_kv_heads);
    EXPECT_EQ(got.d_head, want.d_head);
    EXPECT_EQ(got.d_ff, want.d_ff);
    EXPECT_EQ(got.n_vocab, want.n_vocab);
    EXPECT_EQ(got.n_ctx_train, want.n_ctx_train);
    EXPECT_EQ(got.norm_eps, want.norm_eps);
    EXPECT_EQ(got.rope_theta, want.rope_theta);
    EXPECT_EQ(got.d_rope, want.d_rope);
    EXPECT_EQ(got.rope_style, want.rope_style);
    EXPECT_EQ(got.qk_norm, want.qk_norm);
    EXPECT_EQ(got.tied_head, want.tied_head);
    ASSERT_EQ(got.rope_factors.size(), want.rope_factors.size());
    for (size_t i = 0; i < want.rope_factors.size(); i++)
        EXPECT_NEAR(got.rope_factors[i], want.rope_factors[i], 1e-4) << "pair " << i;
}

TEST_P(RealHeaders, have_every_weight_in_its_shape) {
    uint64_t before = resident_memory_bytes();
    ModelFile file = ModelFile::open(path_);
    Config config = read_config(file);
    Weights weights = read_weights(file, config);
    EXPECT_EQ(n_parameters(config, weights), GetParam().n_parameters);
    EXPECT_EQ(total_weight_bytes(config, weights), GetParam().weight_bytes);
    EXPECT_EQ(weights.layers.size(), static_cast<size_t>(config.n_layers));
    // Nothing but the header is read.
    EXPECT_LT(resident_memory_bytes(), before + (uint64_t{200} << 20));
}

std::string name_of(const testing::TestParamInfo<Published>& info) {
    std::string name = info.param.description;
    std::replace_if(
        name.begin(), name.end(), [](char c) { return isalnum(c) == 0; }, '_');
    return name;
}
INSTANTIATE_TEST_SUITE_P(, RealHeaders, testing::ValuesIn(published()), name_of);

}  // namespace
}  // namespace ridge
