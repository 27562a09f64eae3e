#include "cuda/gemm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "cases/case_run.h"
#include "cuda/checkpoints.h"
#include "cuda/tiles.h"
#include "device/device_cases.h"
#include "format/affine.h"
#include "support/seed.h"

// Products of prompt rows on a GPU, in tiles of every size.

namespace ridge {
namespace {

using cuda::Epilogue;
using cuda::GemmTiles;
using cuda::ProductCall;

// Operands are rounded to f16, each by 2^-11 at most; scales of affine formats in f32, too.
constexpr double kRounded = 1e-3;
// Of elements that are judged together: each must be a number where the reference's is.
constexpr float kFinite = 1e30f;

template <GemmTiles tiles>
void in_tiles_of(Step& s, Rows x, LinearGroup weights, Rows out) {
    cuda::run_gemm(s, {x, weights, out}, tiles);
}

using Matmul = void (*)(Step&, Rows, LinearGroup, Rows);
struct Size {
    std::string_view name;
    Matmul matmul;
};
constexpr Size kSizes[] = {{"fitting", in_tiles_of<GemmTiles::kFitting>},
                           {"large", in_tiles_of<GemmTiles::kLarge>},
                           {"medium", in_tiles_of<GemmTiles::kMedium>},
                           {"small", in_tiles_of<GemmTiles::kSmall>}};

// What runs `matmul` in place of the operator.
class Runner {
  public:
    Outputs run(const Case& c, Matmul matmul) {
        Tables tables = resolve_tables(cuda_checkpoints(), "gemm", on_.cuda.caps);
        if (matmul != nullptr) tables.ops.matmul.set("test", matmul);
        return run_case(c, test_seed(), tables, on_.pool, on_.cuda.device.get());
    }
    Outputs run_reference(const Case& c) {
        return run_case(c, test_seed(), on_.ref_tables, on_.pool);
    }

  private:
    DeviceCases on_;
};

Case prompt_of(int64_t n_rows, int64_t d_in, std::vector<CaseWeight> weights) {
    return finish_case({.op = Op::kMatmul,
                        .n_rows = n_rows,
                        .d_in = d_in,
                        .weights = std::move(weights),
                        .row_class = RowClass::kPrompt});
}

// Every format, with each kind of scales that it may have.
std::vector<CaseWeight> kinds_of_weights() {
    std::vector<CaseWeight> kinds;
    for (const Format& format : formats()) {
        if (!cuda::has_tiles(format.id)) continue;
        if (!is_affine(format.id)) {
            kinds.push_back({.format = format.id});
            continue;
        }
        for (int group_size : {32, 64, 128}) {
            for (FormatId scales : {FormatId::kF32, FormatId::kF16, FormatId::kBF16}) {
                kinds.push_back(
                    {.format = format.id, .group_size = group_size, .scale_format = scales});
            }
        }
    }
    return kinds;
}

CaseWeight sized(CaseWeight weight, int64_t d_out, bool bias = false) {
    weight.d_out = d_out, weight.bias = bias;
    return weight;
}

void expect_near_reference(Runner& runner, const Case& c) {
    const Outputs want = runner.run_reference(c);
    for (const Size& size : kSizes) {
        SCOPED_TRACE(fmt::format("{}, {} tiles, RIDGE_SEED={}", c.name, size.name, test_seed()));
        Case judged = c;
        judged.tolerance = kFinite;
        const Difference difference = compare(judged, want, runner.run(c, size.matmul));
        EXPECT_EQ(difference.fault, "");
        EXPECT_LT(difference.relative_l2, kRounded);
    }
}

TEST(Gemm, agrees_with_the_reference_in_every_format) {
    Runner runner;
    for (const CaseWeight& kind : kinds_of_weights()) {
        expect_near_reference(
            runner,
            prompt_of(300, 768, {sized(kind, 150, true), sized(kind, 37), sized(kind, 200, true)}));
        expect_near_reference(runner, prompt_of(33, 256, {sized(kind, 5)}));
    }
}

TEST(Gemm, agrees_with_the_reference_at_ragged_sizes) {
    Runner runner;
    using enum FormatId;
    for (int64_t n_rows : {1, 15, 16, 17, 64, 65, 129, 257, 2100}) {
        expect_near_reference(runner, prompt_of(n_rows, 65, {{130, kBF16, true}, {3, kBF16}}));
        expect_near_reference(runner, prompt_of(n_rows, 96, {{129, kQ8_0}}));
        expect_near_reference(runner, prompt_of(n_rows, 768, {{65, kQ4_K}, {31, kQ6_K, true}}));
    }
    for (int64_t d_in : {1, 3, 17, 63, 64, 191, 9728, 20001}) {
        expect_near_reference(runner, prompt_of(70, d_in, {{20, kBF16}, {20, kF16}}));
    }
    // More tiles than any device has multiprocessors.
    expect_near_reference(runner, prompt_of(600, 128, {{9000, kQ4_0}, {5000, kQ4_0}}));
}

// Rows and weights of f16's range, far from it, and of a range wider than f16 has.
TEST(Gemm, agrees_with_the_reference_at_any_magnitude) {
    Runner runner;
    using enum FormatId;
    struct Magnitude {
        Fill fill;
        float scale, weight_scale;
    };
    for (const CaseWeight& kind : kinds_of_weights()) {
        std::vector<Magnitude> magnitudes = {{Fill::kNormal, 1e-30f, 1},
                                             {Fill::kNormal, 1e30f, 1},
                                             {Fill::kNormal, 1e-38f, 100},
                                             {Fill::kOutlier, 1e6f, 1},
                                             // The least scales of f16, and great ones.
                                             {Fill::kNormal, 1, 1e-6f},
                                             {Fill::kNormal, 1e-3f, 1e4f}};
        if (kind.format == kBF16) {
            magnitudes.push_back({Fill::kNormal, 1e25f, 1e-30f});
            magnitudes.push_back({Fill::kNormal, 1e-25f, 1e30f});
        }
        for (const Magnitude& m : magnitudes) {
            Case c = prompt_of(70, 256, {sized(kind, 33), sized(kind, 70, true)});
            c.fill = m.fill, c.scale = m.scale, c.weight_scale = m.weight_scale;
            SCOPED_TRACE(fmt::format("x {}, weights {}", m.scale, m.weight_scale));
            expect_near_reference(runner, c);
        }
    }
}

// Products of zeros are the bias.
TEST(Gemm, rows_of_zeros_give_the_bias) {
    Runner runner;
    for (const CaseWeight& kind : kinds_of_weights()) {
        Case c = prompt_of(20, 256, {sized(kind, 33), sized(kind, 70, true)});
        c.fill = Fill::kConstant, c.scale = 0;
        const Outputs want = runner.run_reference(c);
        for (const Size& size : kSizes) {
            SCOPED_TRACE(
                fmt::format("{}, {} tiles, RIDGE_SEED={}", c.name, size.name, test_seed()));
            EXPECT_EQ(runner.run(c, size.matmul).values, want.values);
        }
    }
}

void expect_same_row(const Outputs& a, int64_t a_row, const Outputs& b, int64_t b_row) {
    ASSERT_EQ(a.n_cols, b.n_cols);
    for (int64_t j = 0; j < a.n_cols; j++) {
        const float x = a.values[static_cast<size_t>(a_row * a.n_cols + j)];
        const float y = b.values[static_cast<size_t>(b_row * b.n_cols + j)];
        ASSERT_EQ(std::bit_cast<uint32_t>(x), std::bit_cast<uint32_t>(y))
            << "row " << a_row << ", column " << j << ": " << x << " and " << y;
    }
}

// Nor on the tiles that suit their number.
TEST(Gemm, rows_do_not_depend_on_their_number) {
    Runner runner;
    for (const CaseWeight& kind : kinds_of_weights()) {
        auto run = [&](int64_t n_rows, const Size& size) {
            return runner.run(prompt_of(n_rows, 768, {sized(kind, 150, true), sized(kind, 37)}),
                              size.matmul);
        };
        const Outputs all = run(300, kSizes[1]);
        for (const Size& size : kSizes) {
            for (int64_t n_rows : {1, 9, 64, 129, 300}) {
                SCOPED_TRACE(fmt::format("{}, {} rows, {} tiles, RIDGE_SEED={}",
                                         format_of(kind.format).name, n_rows, size.name,
                                         test_seed()));
                const Outputs some = run(n_rows, size);
                for (int64_t i = 0; i < n_rows; i++) expect_same_row(some, i, all, i);
                if (HasFailure()) return;
            }
        }
    }
}

constexpr SequenceSpan kMixed[] = {
    {0, 1, RowClass::kDecode, {}},   {1, 1, RowClass::kDecode, {}},
    {2, 70, RowClass::kPrompt, {}},  {72, 30, RowClass::kPrompt, {}},
    {102, 1, RowClass::kDecode, {}}, {103, 9, RowClass::kPrompt, {}}};
constexpr int64_t kMixedRows = 112;
constexpr SequenceSpan kDecode[] = {{0, kMixedRows, RowClass::kDecode, {}}};
constexpr SequenceSpan kPrompt[] = {{0, kMixedRows, RowClass::kPrompt, {}}};

// call(s) with a step of these rows, on the tables of the checkpoint. What is planned is a step of
// one class, as backends plan it.
template <const auto& spans, class Call>
void with_spans(const Step& given, const Config& config, Call call) {
    const Tables tables =
        resolve_tables(cuda_checkpoints(), "gemm", {.kernels = given.tables.kernels});
    Step s{tables,      tables.ops,   tables.stages, config,        given.rope_table,
           given.batch, given.memory, given.pool,    given.planning};
    s.spans = spans;
    if (s.planning && std::size(spans) > 1) s.spans = kPrompt;
    call(s);
}

template <const auto& spans>
void matmul_of(Step& given, Rows x, LinearGroup weights, Rows out) {
    with_spans<spans>(given, given.config, [&](Step& s) { s.ops.matmul(s, x, weights, out); });
}

void expect_same_by_class(Runner& runner, const Case& c, Matmul mixed, Matmul decode,
                          Matmul prompt) {
    SCOPED_TRACE(fmt::format("{}, RIDGE_SEED={}", c.name, test_seed()));
    const Outputs together = runner.run(c, mixed);
    const Outputs decode_alone = runner.run(c, decode), prompt_alone = runner.run(c, prompt);
    EXPECT_EQ(together.fault, "");
    for (const SequenceSpan& span : kMixed) {
        const bool is_decode = span.row_class == RowClass::kDecode;
        for (int64_t i = span.first_row; i < span.first_row + span.n_rows; i++) {
            expect_same_row(together, i, is_decode ? decode_alone : prompt_alone, i);
        }
    }
}

TEST(Gemm, rows_of_each_class_are_what_they_are_alone) {
    Runner runner;
    using enum FormatId;
    for (const std::vector<CaseWeight>& weights :
         {std::vector<CaseWeight>{{40, kQ4_K}, {30, kQ6_K, true}},
          {{40, kBF16}, {20, kF32}},
          {{17, kF32}}}) {
        expect_same_by_class(runner, prompt_of(kMixedRows, 512, weights), matmul_of<kMixed>,
                             matmul_of<kDecode>, matmul_of<kPrompt>);
    }
}

// Of gate and up [d_ff, d_in], and a third weight [d_in, d_in] whose bias is the norm: ffn_in, and
// attn_out added to the product itself.
template <const auto& spans>
void stages_of(Step& given, Rows x, LinearGroup weights, Rows out) {
    Layer layer;
    layer.gate = *weights.weights[0], layer.up = *weights.weights[1];
    layer.o = *weights.weights[2], layer.ffn_norm = weights.weights[2]->bias;
    const int64_t d_ff = layer.gate.weight.n_rows();
    const Rows residual = out.cols(2 * d_ff, x.n_cols);
    Config config = given.config;
    config.d_model = static_cast<int>(x.n_cols), config.d_ff = static_cast<int>(d_ff);
    with_spans<spans>(given, config, [&](Step& s) {
        s.ops.matmul(s, x, layer.o, residual);
        s.stages.ffn_in(s, layer, x, out.cols(0, d_ff));
        s.stages.attn_out(s, layer, x, residual);
    });
}

TEST(Gemm, stages_of_rows_of_each_class_are_what_they_are_alone) {
    Runner runner;
    using enum FormatId;
    for (FormatId format : {kBF16, kQ4_K, kQ6_K}) {
        expect_same_by_class(
            runner,
            prompt_of(kMixedRows, 512, {{70, format}, {70, format, true}, {512, format, true}}),
            stages_of<kMixed>, stages_of<kDecode>, stages_of<kPrompt>);
    }
    // Gate and up of two kinds: by the operators.
    expect_same_by_class(runner,
                         prompt_of(kMixedRows, 512, {{70, kQ4_K}, {70, kQ6_K}, {512, kF32, true}}),
                         stages_of<kMixed>, stages_of<kDecode>, stages_of<kPrompt>);
}

template <GemmTiles tiles>
void store_and_add(Step& s, Rows x, LinearGroup weights, Rows out) {
    ProductCall call{x, weights, out};
    cuda::run_gemm(s, call, tiles);
    call.epilogue = Epilogue::kAdd;
    cuda::run_gemm(s, call, tiles);
}

TEST(Gemm, adds_to_what_is_there) {
    Runner runner;
    using enum FormatId;
    constexpr std::pair<Matmul, Matmul> kPairs[] = {
        {in_tiles_of<GemmTiles::kLarge>, store_and_add<GemmTiles::kLarge>},
        {in_tiles_of<GemmTiles::kMedium>, store_and_add<GemmTiles::kMedium>},
        {in_tiles_of<GemmTiles::kSmall>, store_and_add<GemmTiles::kSmall>}};
    for (const auto& [once, twice] : kPairs) {
        const Case c = prompt_of(290, 256, {{150, kQ4_K, true}, {21, kQ6_K}});
        Outputs want = runner.run(c, once);
        for (float& value : want.values) value += value;
        const Outputs got = runner.run(c, twice);
        EXPECT_EQ(got.fault, "");
        for (int64_t i = 0; i < c.n_rows; i++) expect_same_row(want, i, got, i);
    }
}

// Of gate and up [d_ff, d_in], and a third weight [d_in, d_in] whose bias is the norm: SwiGLU in
// one call, and beside it by the operators.
template <GemmTiles tiles>
void swiglu_in_two_ways(Step& s, Rows x, LinearGroup weights, Rows out) {
    const Linear &gate = *weights.weights[0], &up = *weights.weights[1];
    const int64_t d_ff = gate.weight.n_rows();
    ProductCall call{x, {gate, up}, out.cols(0, d_ff)};
    call.norm = &weights.weights[2]->bias, call.eps = 1e-5f, call.epilogue = Epilogue::kSwiglu;
    cuda::run_gemm(s, call, tiles);
    const Rows h = s.scratch(x.n_rows, x.n_cols), both = s.scratch(x.n_rows, 2 * d_ff);
    s.ops.rms_norm(s, x, *call.norm, call.eps, h);
    cuda::run_gemm(s, {h, {gate, up}, both}, tiles);
    s.ops.swiglu(s, both, out.cols(d_ff, d_ff));
}

TEST(Gemm, multiplies_gate_and_up_of_normed_rows) {
    Runner runner;
    using enum FormatId;
    for (Matmul matmul :
         {swiglu_in_two_ways<GemmTiles::kFitting>, swiglu_in_two_ways<GemmTiles::kLarge>,
          swiglu_in_two_ways<GemmTiles::kMedium>, swiglu_in_two_ways<GemmTiles::kSmall>}) {
        for (FormatId format : {kBF16, kF16, kQ4_0, kQ8_0, kQ4_K, kQ6_K}) {
            for (int64_t d_ff : {1, 64, 203}) {
                const Case c = prompt_of(
                    275, 512, {{d_ff, format, true}, {d_ff, format, true}, {512, format, true}});
                SCOPED_TRACE(fmt::format("{}, RIDGE_SEED={}", c.name, test_seed()));
                const Outputs got = runner.run(c, matmul);
                EXPECT_EQ(got.fault, "");
                double error = 0, size = 0;
                for (int64_t i = 0; i < c.n_rows; i++) {
                    const float* row = got.values.data() + i * got.n_cols;
                    for (int64_t j = 0; j < d_ff; j++) {
                        error += std::pow(double{row[j]} - double{row[d_ff + j]}, 2);
                        size += std::pow(double{row[d_ff + j]}, 2);
                    }
                }
                EXPECT_GT(size, 0);
                // The norm's sum is in another order, which may tip a rounding to f16.
                EXPECT_LT(std::sqrt(error / size), 1e-3);
            }
        }
    }
}

}  // namespace
}  // namespace ridge
