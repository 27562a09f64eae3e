#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "cmd/step_profile.h"
#include "engine/model_source.h"
#include "model/step.h"
#include "model/tables.h"
#include "model/weights.h"

// The bytes and flops that a roofline counts for models of published shapes, against numbers worked
// out by hand. Nothing is computed: the kernels of the steps do nothing.

namespace ridge {
namespace {

void set_idle_ops(Tables& tables) {
    tables.ops.embed_rows.set("idle", [](Step&, const Tensor&, Tokens, Rows) {});
    tables.ops.rms_norm.set("idle", [](Step&, Heads, const Tensor&, float, Heads) {});
    tables.ops.matmul.set("idle", [](Step&, Rows, LinearGroup, Rows) {});
    tables.ops.rope.set("idle", [](Step&, Heads, Positions, const RopeTable&) {});
    tables.ops.kv_append.set("idle", [](Step&, Heads, Heads, KvLayer) {});
    tables.ops.attention.set("idle", [](Step&, Heads, KvLayer, Heads) {});
    tables.ops.swiglu.set("idle", [](Step&, Rows, Rows) {});
    tables.ops.add.set("idle", [](Step&, Rows, Rows) {});
    add_default_bodies(tables);
}

// As `fused` has them: four stages are one kernel each.
void set_idle_stages(Tables& tables) {
    tables.stages.attn_in.set("idle", [](Step&, const Layer&, Rows, Rows, KvLayer) {});
    tables.stages.attn_out.set("idle", [](Step&, const Layer&, Rows, Rows) {});
    tables.stages.ffn_in.set("idle", [](Step&, const Layer&, Rows, Rows) {});
    tables.stages.ffn_out.set("idle", [](Step&, const Layer&, Rows, Rows) {});
}

// One step of the model, rows at positions first .. first + n_rows - 1, logits of the last one; an
// f16 cache.
Work counted_work(const std::string& model, int first, int n_rows, bool fused) {
    const ModelFile file = open_model_header(model);
    const Config config = read_config(file);
    const Weights weights = read_weights(file, config);
    const RopeTable rope_table = make_rope_table(config);
    const KvCache kv = describe_kv_cache(config, DType::kF16, DType::kF16, first + n_rows);
    Tables tables;
    set_idle_ops(tables);
    if (fused) set_idle_stages(tables);

    const std::vector<Token> tokens(static_cast<size_t>(n_rows), 1);
    std::vector<int32_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), first);
    const std::vector<int64_t> slots(positions.begin(), positions.end());
    const std::vector<int32_t> logit_rows = {n_rows - 1};
    const RowClass row_class = n_rows == 1 ? RowClass::kDecode : RowClass::kPrompt;
    const std::vector<SequenceSpan> spans = {{0, n_rows, row_class, {}}};
    Batch batch;
    batch.tokens = tokens, batch.positions = positions, batch.slots = slots;
    batch.spans = spans, batch.logit_rows = logit_rows;

    Scratch memory;
    ThreadPool pool(1);
    Step step{tables, tables.ops, tables.stages, config, rope_table, batch, memory, pool, true};
    StepTrace trace;
    step.trace = &trace;
    StepProfile profile;
    {
        TracedStep traced(&trace, pool);
        tables.step(step, weights, kv,
                    {nullptr, 0, DType::kF32, 1, config.n_vocab, config.n_vocab});
    }
    profile.add(trace);
    return profile.work();
}

// Llama 3.2 1B: 16 layers, d_model 2,048, 32 heads and 8 of keys and values of 64, d_ff 8,192,
// 128,256 tokens, the head is the embedding.
//   a layer's matrices  Q, O 2 x 2,048 x 2,048, K, V 2 x 512 x 2,048, gate, up, down 3 x 8,192 x
//                       2,048: 8,388,608 + 2,097,152 + 50,331,648 = 60,817,408 elements
//   the head            128,256 x 2,048 = 262,668,288 elements
constexpr int64_t kLlamaLayer = 60'817'408, kLlamaHead = 262'668'288;

TEST(RooflineCounts, a_decode_step_of_llama_3_2_1b_is_what_one_works_out_by_hand) {
    // Q4_0 has 18 bytes for 32 elements. Position 128: 129 positions are seen.
    //   a layer  60,817,408 x 18 / 32 = 34,209,792; two norms of 2,048 float32: 16,384
    //   16 of them                                        16 x 34,226,176 = 547,618,816
    //   head     262,668,288 x 18 / 32 = 147,750,912, its norm 8,192:        147,759,104
    //   one row of the embedding 2,048 x 18 / 32 =                                 1,152
    constexpr int64_t kWeights = 547'618'816 + 147'759'104 + 1'152;
    static_assert(kWeights == 695'379'072);
    //   a position of a layer: 8 heads x 64 x 2 bytes, of K and of V: 2,048; 129 are read, one is
    //   written: 130 x 2,048 = 266,240, in 16 layers
    constexpr int64_t kKv = 16 * 266'240;
    //   matrices   2 x (16 x 60,817,408 + 262,668,288) =          2,471,493,632
    //   attention  16 layers x 32 heads x 129 positions x 4 x 64 =   16,908,288
    //   norms      33 x 4 x 2,048 =                                     270,336
    //   RoPE       16 x (32 + 8) x 64 x 3 =                             122,880
    //   SwiGLU     16 x 5 x 8,192 =                                     655,360
    //   residuals  16 x 2 x 2,048 =                                      65,536
    constexpr int64_t kFlops =
        2 * (16 * kLlamaLayer + kLlamaHead) + 16'908'288 + 270'336 + 122'880 + 655'360 + 65'536;
    static_assert(kFlops == 2'489'516'032);
    for (bool fused : {false, true}) {
        const Work work = counted_work("synth:llama-3.2-1b:Q4_0", 128, 1, fused);
        EXPECT_EQ(work.weight_bytes, kWeights);
        EXPECT_EQ(work.kv_bytes, kKv);
        EXPECT_EQ(work.flops, kFlops);
    }
    // Rows of float32 in and out of each kernel, 4 bytes x
    //   embedding  2,048
    //   attn_in    2,048 + 2,048    attn 2,048 + 2,048    attn_out 2,048 + 2 x 2,048 (read,
    //   written) ffn_in     2,048 + 8,192    ffn_out 8,192 + 2 x 2,048:        36,864 of a layer
    //   head       its norm 2,048 + 2,048, then 2,048 + 128,256
    constexpr int64_t kRows = 2'048 + 16 * 36'864 + 4'096 + 130'304;
    EXPECT_EQ(counted_work("synth:llama-3.2-1b:Q4_0", 128, 1, true).activation_bytes, 4 * kRows);
}

TEST(RooflineCounts, a_prompt_step_of_llama_3_2_1b_is_what_one_works_out_by_hand) {
    // BF16 has 2 bytes an element; 512 rows from position 0 on.
    //   16 layers x 2 x 60,817,408 + 33 norms x 8,192 + head 2 x 262,668,288 + 512 rows of 4,096
    constexpr int64_t kWeights = 16 * 2 * kLlamaLayer + 33 * 8'192 + 2 * kLlamaHead + 512 * 4'096;
    static_assert(kWeights == 2'473'861'120);
    //   512 positions are written, and read once by all rows: 1,024 x 2,048 bytes of a layer
    constexpr int64_t kKv = 16 * 1'024 * 2'048;
    //   row i sees i + 1 positions: 512 x 513 / 2 = 131,328 in all
    //   16 x 32 x 131,328 x 256 = 17,213,423,616
    //   each row: 32 norms x 8,192 + 7,680 (RoPE) x 16 + 40,960 (SwiGLU) x 16 + 4,096 x 16
    //     = 262,144 + 122,880 + 655,360 + 65,536 = 1,105,920
    //   the last row's norm 8,192
    constexpr int64_t kFlops =
        512 * (2 * 16 * kLlamaLayer + 1'105'920) + 2 * kLlamaHead + 8'192 + 17'213'423'616;
    for (bool fused : {false, true}) {
        const Work work = counted_work("synth:llama-3.2-1b:BF16", 0, 512, fused);
        EXPECT_EQ(work.weight_bytes, kWeights);
        EXPECT_EQ(work.kv_bytes, kKv);
        EXPECT_EQ(work.flops, kFlops);
    }
}

// Qwen3 4B: 36 layers, d_model 2,560, 32 heads and 8 of keys and values of 128, each normed, d_ff
// 9,728, 151,936 tokens, the head is the embedding.
//   a layer's matrices  Q, O 2 x 4,096 x 2,560, K, V 2 x 1,024 x 2,560, gate, up, down 3 x 9,728 x
//                       2,560: 20,971,520 + 5,242,880 + 74,711,040 = 100,925,440 elements
//   the head            151,936 x 2,560 = 388,956,160 elements
constexpr int64_t kQwenLayer = 100'925'440, kQwenHead = 388'956'160;

TEST(RooflineCounts, a_decode_step_of_qwen3_4b_is_what_one_works_out_by_hand) {
    // Q4_K has 144 bytes for 256 elements.
    //   a layer  100,925,440 x 144 / 256 = 56,770,560; norms of 2 x 2,560 + 2 x 128: 21,504
    //   36 of them                                       36 x 56,792,064 = 2,044,514,304
    //   head     388,956,160 x 144 / 256 = 218,787,840, its norm 10,240:     218,798,080
    //   one row of the embedding 2,560 x 144 / 256 =                               1,440
    constexpr int64_t kWeights = int64_t{2'044'514'304} + 218'798'080 + 1'440;
    //   a position of a layer: 8 x 128 x 2 bytes, of K and of V: 4,096; 129 read, one written
    constexpr int64_t kKv = int64_t{36} * 130 * 4'096;
    //   attention  36 x 32 x 129 x 4 x 128 =        76,087,296
    //   norms      73 x 4 x 2,560 =                    747,520
    //   of heads   36 x (32 + 8) x 4 x 128 =           737,280
    //   RoPE       36 x (32 + 8) x 128 x 3 =           552,960
    //   SwiGLU     36 x 5 x 9,728 =                  1,751,040
    //   residuals  36 x 2 x 2,560 =                    184,320
    constexpr int64_t kFlops = 2 * (36 * kQwenLayer + kQwenHead) + 76'087'296 + 747'520 + 737'280 +
                               552'960 + 1'751'040 + 184'320;
    for (bool fused : {false, true}) {
        const Work work = counted_work("synth:qwen3-4b:Q4_K", 128, 1, fused);
        EXPECT_EQ(work.weight_bytes, kWeights);
        EXPECT_EQ(work.kv_bytes, kKv);
        EXPECT_EQ(work.flops, kFlops);
    }
    // 4 bytes x: embedding 2,560; attn_in 2,560 + 4,096, attn 2 x 4,096, attn_out 4,096 + 2 x
    // 2,560, ffn_in 2,560 + 9,728, ffn_out 9,728 + 2 x 2,560: 51,200 of a layer; head 2 x 2,560,
    // then 2,560 + 151,936.
    constexpr int64_t kRows = 2'560 + 36 * 51'200 + 5'120 + 154'496;
    EXPECT_EQ(counted_work("synth:qwen3-4b:Q4_K", 128, 1, true).activation_bytes, 4 * kRows);
}

}  // namespace
}  // namespace ridge
