#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cases/tuned_call.h"
#include "cuda/checkpoints.h"
#include "cuda/gemm.h"
#include "device/device_cases.h"
#include "support/seed.h"

// No choice of `ridge tune` changes a bit of what a GPU computes.

namespace ridge {
namespace {

class Tuned {
  public:
    explicit Tuned(std::string_view checkpoint)
        : tables_(resolve_tables(cuda_checkpoints(), checkpoint, on_.cuda.caps)) {}

    void expect_the_bits_of(const Outputs& untuned, const Case& c, const Tuning& tuning) {
        const Outputs tuned = run(c, &tuning);
        EXPECT_EQ(tuned.fault, "");
        EXPECT_TRUE(same_bits(untuned, tuned)) << c.name << ", RIDGE_SEED=" << test_seed();
    }
    Outputs run(const Case& c, const Tuning* tuning = nullptr) {
        tables_.tuning = tuning;
        return run_case(c, test_seed(), tables_, on_.pool, on_.cuda.device.get());
    }

  private:
    DeviceCases on_;
    Tables tables_;
};

Case matmul(int64_t n_rows, int64_t d_in, std::vector<CaseWeight> weights) {
    return finish_case({.op = Op::kMatmul,
                        .n_rows = n_rows,
                        .d_in = d_in,
                        .weights = std::move(weights),
                        .row_class = RowClass::kPrompt});
}

TEST(DeviceTuning, every_way_of_a_product_gives_the_same_bits) {
    using enum FormatId;
    Tuned on("gemm");
    for (const std::vector<CaseWeight>& weights :
         std::vector<std::vector<CaseWeight>>{{{320, kQ4_0}},
                                              {{200, kQ4_K, true}, {72, kQ4_K}, {72, kQ6_K}},
                                              {{320, kBF16}, {40, kBF16, true}},
                                              {{320, kQ8_0}, {40, kF16}}}) {
        for (int64_t n_rows : {1, 64, 65, 300, 513}) {
            const Case c = matmul(n_rows, 768, weights);
            const Outputs untuned = on.run(c);
            ASSERT_EQ(untuned.fault, "");
            for (int way = 0; way <= static_cast<int>(cuda::GemmWay::kSmallInBlocks); way++) {
                SCOPED_TRACE(fmt::format("way {}", way));
                MatmulTuning values;
                values.way = way;
                Tuning tuning;
                tuning.set(matmul_call_of(c, rows_class_of_cuda(n_rows)), values);
                on.expect_the_bits_of(untuned, c, tuning);
            }
        }
    }
}

TEST(DeviceTuning, segments_apart_or_together_give_the_same_bits) {
    Tuned on("prefill_attention");
    for (int d_head : {64, 128}) {
        for (int32_t n_rows : {1, 33, 200}) {
            const Case c = finish_case({.op = Op::kAttention,
                                        .n_heads = 8,
                                        .n_kv_heads = 2,
                                        .d_head = d_head,
                                        .sequences = {{4100, n_rows, RowClass::kPrompt, 1}}});
            const Outputs untuned = on.run(c);
            ASSERT_EQ(untuned.fault, "");
            for (int tiles : {0, 1, 64}) {
                SCOPED_TRACE(fmt::format("tiles_an_sm {}", tiles));
                AttentionTuning values;
                values.tiles_an_sm = tiles;
                Tuning tuning;
                tuning.set(attention_call_of(c, RowClass::kPrompt, 0), values);
                on.expect_the_bits_of(untuned, c, tuning);
            }
        }
    }
}

}  // namespace
}  // namespace ridge
