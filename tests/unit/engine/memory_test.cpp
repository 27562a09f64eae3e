#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "base/half.h"
#include "engine/engine.h"
#include "file/gguf_writer.h"
#include "model/kv_cache.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

// A model is refused where its weights, as they are packed, and the KV cache do not fit in memory,
// and only there.

namespace ridge {
namespace {

struct Shape {
    FormatId format = FormatId::kF32;
    int64_t n_vocab = 64, d_model = 64, d_ff = 96;
    bool tied = true;
    enum { kZeros, kNormal, kAnyBits } fill = kZeros;  // of BF16
};

constexpr int64_t kContext = 256;  // a whole number of the cache's groups of pages

void fill(std::span<std::byte> bytes, const Shape& shape) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 0.02f);
    for (size_t at = 0; at + 2 <= bytes.size() && shape.fill != Shape::kZeros; at += 2) {
        auto bits = static_cast<uint16_t>(random());
        if (shape.fill == Shape::kNormal) bits = to_bf16(normal(random)).bits;
        memcpy(bytes.data() + at, &bits, sizeof bits);
    }
}

// A llama of one layer, without a tokenizer. Returns its path.
std::string write_model(const TemporaryFolder& folder, const Shape& shape) {
    GgufWriter writer;
    writer.add_string("general.architecture", "llama");
    const auto d_model = static_cast<uint32_t>(shape.d_model);
    writer.add_u32("llama.block_count", 1);
    writer.add_u32("llama.embedding_length", d_model);
    writer.add_u32("llama.attention.head_count", 1);
    writer.add_u32("llama.attention.head_count_kv", 1);
    writer.add_u32("llama.attention.key_length", 64);
    writer.add_u32("llama.feed_forward_length", static_cast<uint32_t>(shape.d_ff));
    writer.add_u32("llama.context_length", 4096);
    writer.add_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    writer.add_f32("llama.rope.freq_base", 10000.0f);
    const Format &format = format_of(shape.format), &f32 = format_of(FormatId::kF32);
    writer.add_tensor("token_embd.weight", format, {shape.n_vocab, shape.d_model});
    for (std::string_view name : {"attn_q", "attn_k", "attn_v"}) {
        writer.add_tensor(fmt::format("blk.0.{}.weight", name), format, {64, shape.d_model});
    }
    // Its rows and those of ffn_down may be no whole number of the format's blocks.
    auto format_for = [&](int64_t n_cols) -> const Format& {
        return n_cols % format.block_elements == 0 ? format : f32;
    };
    writer.add_tensor("blk.0.attn_output.weight", format_for(64), {shape.d_model, 64});
    for (std::string_view name : {"ffn_gate", "ffn_up"}) {
        writer.add_tensor(fmt::format("blk.0.{}.weight", name), format,
                          {shape.d_ff, shape.d_model});
    }
    writer.add_tensor("blk.0.ffn_down.weight", format_for(shape.d_ff), {shape.d_model, shape.d_ff});
    if (!shape.tied) writer.add_tensor("output.weight", format, {shape.n_vocab, shape.d_model});
    const int n_matrices = writer.n_tensors();
    for (std::string_view name :
         {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"}) {
        writer.add_tensor(name, f32, {shape.d_model});
    }
    MappedFile image = writer.build("model.gguf");
    for (int t = 0; t < n_matrices; t++) {
        fill(image.writable_bytes().subspan(writer.tensor_offset(t), writer.tensor_bytes(t)),
             shape);
    }
    const auto bytes = image.writable_bytes();
    return folder.write("model.gguf", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

class Memory : public testing::Test {
  protected:
    void use(const Shape& shape) {
        shape_ = shape;
        options_ = {};
        options_.model = write_model(folder_, shape);
        options_.n_threads = 2, options_.n_ctx = kContext;
        info_ = Engine::open(options_)->info();
    }
    // Of packed weights, but for the offsets of parts in compact BF16, and of the cache.
    uint64_t expected_bytes() const {
        int64_t n = info_.memory_bytes_per_token + kContext * info_.kv_bytes_per_position;
        if (!shape_.tied) n -= row_bytes(format_of(shape_.format), shape_.d_model);
        return static_cast<uint64_t>(n);
    }
    // "no error" where it opens.
    std::string error_with(uint64_t memory_bytes) {
        options_.memory_bytes = memory_bytes;
        progress_ = 0;
        return error_of(
            [&] { Engine::open(options_, [&](std::string_view, double at) { progress_ = at; }); });
    }
    void expect_refused(uint64_t memory_bytes) {
        const std::string error = error_with(memory_bytes);
        for (std::string_view words : {"GB needed for packed weights and the KV cache at -c 256, ",
                                       " GB free; try --no-repack"}) {
            EXPECT_NE(error.find(words), std::string::npos) << error;
        }
        EXPECT_EQ(error.find('\n'), std::string::npos);
    }
    void expect_just_fits() {
        EXPECT_EQ(error_with(expected_bytes()), "no error");
        expect_refused(expected_bytes() - 1);
        EXPECT_EQ(progress_, 0) << "refused before anything is packed";
    }
    bool has_compact() const { return info_.isa != "scalar"; }

    const TemporaryFolder folder_;
    Shape shape_;
    OpenOptions options_;
    ModelInfo info_;
    double progress_ = 0;
};

TEST_F(Memory, rows_and_columns_that_are_filled_up_count) {
    use({.d_model = 4096, .d_ff = 1});
    EXPECT_GT(expected_bytes(), info_.file_bytes + (uint64_t{1} << 20));
    expect_just_fits();
    // Weights that stay in the file can give way.
    options_.no_repack = true;
    EXPECT_EQ(error_with(info_.file_bytes / 2), "no error");
}

TEST_F(Memory, a_layout_that_is_larger_than_the_file_counts) {
    use({.format = FormatId::kQ3_K, .n_vocab = 2048, .d_model = 256, .d_ff = 512});
    EXPECT_GT(expected_bytes(), info_.file_bytes);
    expect_just_fits();
}

TEST_F(Memory, an_embedding_that_is_only_looked_up_does_not_count) {
    use({.format = FormatId::kQ4_0, .n_vocab = 8192, .tied = false});
    EXPECT_LT(expected_bytes(), info_.file_bytes * 2 / 3);
    expect_just_fits();
}

TEST_F(Memory, weights_that_become_compact_count_as_such) {
    use({.format = FormatId::kBF16, .n_vocab = 2048, .d_model = 512, .fill = Shape::kNormal});
    if (!has_compact()) GTEST_SKIP() << "BF16 stays as it is";
    const uint64_t just = expected_bytes();
    EXPECT_LT(just, info_.file_bytes * 9 / 10);
    EXPECT_EQ(error_with(just + just / 100), "no error");
    expect_refused(just - 1);
    expect_refused(just * 9 / 10);
    EXPECT_EQ(progress_, 0) << "refused before anything is measured";
}

TEST_F(Memory, a_context_that_is_advised_fits_beside_the_weights) {
    use({});
    options_.n_ctx = 4096;
    const auto cache = static_cast<uint64_t>(4096 * info_.kv_bytes_per_position);
    ASSERT_GT(cache, 4 * expected_bytes());
    const std::string error = error_with(cache / 2);
    const std::string_view words = "; try -c ";
    const size_t at = error.find(words);
    ASSERT_NE(at, std::string::npos) << error;
    options_.n_ctx = std::stoll(error.substr(at + words.size()));
    EXPECT_GE(options_.n_ctx, 512);
    EXPECT_EQ(error_with(cache / 2), "no error") << options_.n_ctx;
    // No context fits where weights alone do not.
    options_.n_ctx = 4096;
    EXPECT_NE(error_with(1000).find("; try a smaller -c and a model of fewer bits"),
              std::string::npos);
}

// What cannot become compact is found out as it is measured.
TEST_F(Memory, weights_that_do_not_become_compact_are_refused_before_memory_is_taken) {
    use({.format = FormatId::kBF16, .n_vocab = 64, .d_model = 512, .fill = Shape::kAnyBits});
    if (!has_compact()) GTEST_SKIP() << "BF16 stays as it is";
    EXPECT_EQ(error_with(expected_bytes()), "no error");
    expect_refused(expected_bytes() - 1);
    EXPECT_GT(progress_, 0) << "they might have fitted";
    EXPECT_LT(progress_, 1);
}

// A model that was made in memory gives it back as its weights are packed.
TEST(MemoryOfSynth, source_and_packed_weights_take_turns) {
    OpenOptions options;
    options.model = "synth:tiny-llama3:Q8_0";
    options.n_threads = 2, options.n_ctx = kContext;
    const ModelInfo info = Engine::open(options)->info();
    const auto kv = static_cast<uint64_t>(kContext * info.kv_bytes_per_position);
    const auto weights = static_cast<uint64_t>(info.weight_bytes);
    options.memory_bytes = kv + weights * 3 / 4;
    EXPECT_EQ(error_of([&] { Engine::open(options); }), "no error");
    options.memory_bytes = kv;
    EXPECT_NE(error_of([&] { Engine::open(options); }).find("GB needed for packed weights"),
              std::string::npos);
}

}  // namespace
}  // namespace ridge
