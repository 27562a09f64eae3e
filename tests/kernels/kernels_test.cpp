#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "cases/case_run.h"
#include "kernels/checkpoint_tables.h"
#include "ref/ref.h"
#include "support/seed.h"
#include "support/thin.h"

namespace ridge {
namespace {

std::vector<Case> cases_of(Op op) {
    std::vector<Case> cases = all_cases();
    std::erase_if(cases, [&](const Case& c) { return c.op != op; });
    return thinned(std::move(cases), static_cast<uint64_t>(op));
}

// A score's last bits may tip how its weight is rounded to bf16, by 2^-8 of the weight: of single
// elements that is much, of all of them little.
constexpr float kRoundedElement = 1.5e-2f, kRoundedAttention = 3e-3f;

Case judged_as(Case c, bool rounded) {
    if (rounded) c.tolerance = std::max(c.tolerance, kRoundedElement);
    return c;
}

class Kernels : public testing::TestWithParam<Op> {};

// Worst errors are printed: they are what the tolerances are chosen by.
TEST_P(Kernels, agree_with_the_reference_on_any_number_of_threads) {
    ThreadPool one(1), two(2), three(3);
    Tables ref_tables;
    ref::add_ref_ops(ref_tables, "ref");
    const std::vector<CheckpointTables> checkpoints = checkpoints_of(GetParam(), 3);
    std::map<std::string, Difference> worst;
    uint64_t seed = test_seed();
    for (const Case& c : cases_of(GetParam())) {
        CaseRun run(c, ++seed);
        Outputs want = run.run(ref_tables, one);
        ASSERT_EQ(want.fault, "") << c.name;
        for (const CheckpointTables& checkpoint : checkpoints) {
            if (c.op == Op::kMatmul || c.op == Op::kAttention) {
                want = run.run(reference_for(checkpoint), one);
            }
            SCOPED_TRACE(fmt::format("{}, checkpoint {}, RIDGE_SEED={}", c.name, checkpoint.name,
                                     test_seed()));
            const Outputs got = run.run(checkpoint.tables, one);
            const bool rounded = c.op == Op::kAttention && rounds_attention(checkpoint, c);
            const Difference difference = compare(judged_as(c, rounded), want, got);
            EXPECT_EQ(difference.fault, "");
            if (rounded) {
                EXPECT_LT(difference.relative_l2, kRoundedAttention);
            }
            EXPECT_TRUE(same_bits(got, run.run(checkpoint.tables, two))) << "on 2 threads";
            EXPECT_TRUE(same_bits(got, run.run(checkpoint.tables, three))) << "on 3 threads";
            if (c.op == Op::kMatmul && checkpoint.tables.matmul_layout != &row_major_layout()) {
                Tables unpacked = checkpoint.tables;
                unpacked.matmul_layout = &row_major_layout();
                EXPECT_TRUE(same_bits(got, run.run(unpacked, two))) << "weights as files have them";
            }
            Difference& w = worst[checkpoint.name];
            w.worst = std::max(w.worst, difference.worst);
            w.relative_l2 = std::max(w.relative_l2, difference.relative_l2);
        }
    }
    for (const auto& [name, w] : worst) {
        fmt::print("{} at {}: worst element {:.2e}, relative L2 {:.2e}\n", op_name(GetParam()),
                   name, w.worst, w.relative_l2);
    }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Kernels,
                         testing::Values(Op::kEmbedRows, Op::kRmsNorm, Op::kMatmul, Op::kRope,
                                         Op::kKvAppend, Op::kAttention, Op::kSwiglu, Op::kAdd,
                                         Op::kSample),
                         [](const testing::TestParamInfo<Op>& test) {
                             return std::string(op_name(test.param));
                         });

// Rows first..first + n of `all`.
std::vector<float> rows_of(const Outputs& all, int64_t first, int64_t n) {
    const auto begin = all.values.begin() + first * all.n_cols;
    return {begin, begin + n * all.n_cols};
}

// Compared as bits, so that -0 and 0 differ.
void expect_same_rows(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); i++) {
        ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i]))
            << "element " << i << ": " << a[i] << " and " << b[i];
    }
}

// Every operator on rows has its first rows come out alike, however many follow.
TEST(BatchInvariance, rows_do_not_depend_on_their_number) {
    ThreadPool pool(2);
    std::vector<Case> cases;
    for (const Format& format : formats()) {
        Case c{.op = Op::kMatmul, .d_in = 768};
        c.weights = {{37, format.id, true}, {13, format.id}};
        cases.push_back(c);
    }
    cases.push_back({.op = Op::kRmsNorm, .d_in = 100, .n_heads = 3});
    cases.push_back({.op = Op::kSwiglu, .d_in = 300});
    cases.push_back({.op = Op::kAdd, .d_in = 300});
    cases.push_back({.op = Op::kRope, .n_heads = 2, .d_head = 64, .d_rope = 64});
    for (Case& c : thinned(std::move(cases), 0)) {
        for (RowClass row_class : {RowClass::kDecode, RowClass::kPrompt}) {
            c.row_class = row_class;
            for (const CheckpointTables& checkpoint : checkpoints_of(c.op, 2)) {
                auto run = [&](int64_t n_rows) {
                    Case sized = c;
                    sized.n_rows = n_rows;
                    for (int32_t i = 0; sized.op == Op::kRope && i < n_rows; i++) {
                        sized.positions.push_back(5 * i + 3);
                    }
                    return run_case(sized, test_seed(), checkpoint.tables, pool);
                };
                SCOPED_TRACE(
                    fmt::format("{} {}, checkpoint {}, RIDGE_SEED={}", op_name(c.op),
                                c.weights.empty() ? "" : format_of(c.weights[0].format).name,
                                checkpoint.name, test_seed()));
                const Outputs all = run(67);
                for (int64_t n_rows : {1, 2, 3, 4, 5, 8, 9, 64, 65}) {
                    expect_same_rows(run(n_rows).values, rows_of(all, 0, n_rows));
                }
            }
        }
    }
}

std::vector<CaseSequence> eight_sequences() {
    const RowClass decode = RowClass::kDecode, prompt = RowClass::kPrompt;
    return {{1, 1, decode, 1},   {64, 1, decode, 2},  {300, 70, prompt, 3}, {33, 1, decode, 4},
            {65, 65, prompt, 5}, {257, 1, decode, 6}, {2, 2, prompt, 7},    {128, 1, decode, 8}};
}

Case attention_of(std::vector<CaseSequence> sequences, DType dtype, bool paged) {
    return finish_case({.op = Op::kAttention,
                        .n_heads = 6,
                        .n_kv_heads = 2,
                        .d_head = 64,
                        .sequences = std::move(sequences),
                        .paged = paged,
                        .k_dtype = dtype,
                        .v_dtype = dtype});
}

TEST(BatchInvariance, a_sequence_attends_alone_as_among_others) {
    ThreadPool pool(2);
    for (const CheckpointTables& checkpoint : checkpoints_of(Op::kAttention, 2)) {
        for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
            for (bool paged : {false, true}) {
                const std::vector<CaseSequence> sequences = eight_sequences();
                const Outputs together = run_case(attention_of(sequences, dtype, paged),
                                                  test_seed(), checkpoint.tables, pool);
                int64_t first_row = 0;
                for (const CaseSequence& s : sequences) {
                    SCOPED_TRACE(fmt::format("{} rows of {}, checkpoint {}", s.n_rows, s.n_ctx,
                                             checkpoint.name));
                    // Alone it lies the other way in the cache, too.
                    const Outputs alone = run_case(attention_of({s}, dtype, !paged), test_seed(),
                                                   checkpoint.tables, pool);
                    expect_same_rows(alone.values, rows_of(together, first_row, s.n_rows));
                    first_row += s.n_rows;
                }
            }
        }
    }
}

TEST(BatchInvariance, a_prompt_attends_alike_wherever_it_is_cut) {
    ThreadPool pool(2);
    const int64_t n_ctx = 200;
    for (const CheckpointTables& checkpoint : checkpoints_of(Op::kAttention, 2)) {
        auto run = [&](int64_t end, int32_t n_rows) {
            return run_case(attention_of({{end, n_rows, RowClass::kPrompt, 1}}, DType::kF16, true),
                            test_seed(), checkpoint.tables, pool);
        };
        const Outputs whole = run(n_ctx, n_ctx);
        for (int32_t chunk : {1, 7, 64, 65, 128}) {
            for (int64_t first = 0; first < n_ctx; first += chunk) {
                const auto n_rows = static_cast<int32_t>(std::min<int64_t>(chunk, n_ctx - first));
                SCOPED_TRACE(fmt::format("rows {} to {}, checkpoint {}", first, first + n_rows - 1,
                                         checkpoint.name));
                expect_same_rows(run(first + n_rows, n_rows).values, rows_of(whole, first, n_rows));
            }
        }
    }
}

// What a position holds is nothing to the rows before it, be it no number: the same bits come out.
// Those from it on have what the reference has.
TEST(Attention, rows_do_not_see_later_positions) {
    ThreadPool pool(2);
    const std::vector<CaseSequence> sequences = {{130, 130, RowClass::kPrompt, 1},
                                                 {110, 9, RowClass::kPrompt, 2},
                                                 {65, 5, RowClass::kPrompt, 3}};
    std::vector<Case> cases;
    for (DType dtype : {DType::kF16, DType::kF32, DType::kBF16}) {
        for (int64_t nonfinite_position : {64, 70, 105, 129}) {
            Case& c = cases.emplace_back(attention_of(sequences, dtype, true));
            c.masked = nonfinite_position == 105;
            c.nonfinite_position = nonfinite_position;
            c.tolerance = 2e-5f, c.cancels = true;
        }
    }
    for (const Case& c : thinned(std::move(cases), 1)) {
        Case finite_case = c;
        finite_case.nonfinite_position = -1;
        for (const CheckpointTables& checkpoint : checkpoints_of(Op::kAttention, 2)) {
            const Outputs finite = run_case(finite_case, test_seed(), checkpoint.tables, pool);
            const Outputs got = run_case(c, test_seed(), checkpoint.tables, pool);
            SCOPED_TRACE(fmt::format("{}, position {}, checkpoint {}, RIDGE_SEED={}", c.name,
                                     c.nonfinite_position, checkpoint.name, test_seed()));
            int64_t first_row = 0;
            for (const CaseSequence& s : sequences) {
                const int64_t n_before =
                    std::clamp<int64_t>(c.nonfinite_position - (s.n_ctx - s.n_rows), 0, s.n_rows);
                expect_same_rows(rows_of(got, first_row, n_before),
                                 rows_of(finite, first_row, n_before));
                first_row += s.n_rows;
            }
            const Outputs want = run_case(c, test_seed(), reference_for(checkpoint), pool);
            EXPECT_EQ(compare(judged_as(c, rounds_attention(checkpoint, c)), want, got).fault, "");
        }
    }
}

}  // namespace
}  // namespace ridge
