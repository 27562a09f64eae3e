#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "cases/case_run.h"
#include "cuda/checkpoints.h"
#include "cuda/prefill_attention.h"
#include "device/device_cases.h"
#include "support/seed.h"

// What attention promises about rows beside each other, on a GPU, at every checkpoint that changes
// it.

namespace ridge {
namespace {

struct NamedTables {
    std::string_view name;
    Tables tables;
};

std::vector<NamedTables> attention_checkpoints(const Caps& caps) {
    std::vector<NamedTables> found;
    size_t n_before = 0;
    for (const Checkpoint& checkpoint : cuda_checkpoints()) {
        Tables tables = resolve_tables(cuda_checkpoints(), checkpoint.name, caps);
        const size_t n = tables.ops.attention.entries().size();
        if (n > n_before) found.push_back({checkpoint.name, std::move(tables)});
        n_before = n;
    }
    return found;
}

Case attention_of(std::vector<CaseSequence> sequences, int ratio, int d_head, DType k_dtype,
                  DType v_dtype, bool paged) {
    return finish_case({.op = Op::kAttention,
                        .n_heads = 2 * ratio,
                        .n_kv_heads = 2,
                        .d_head = d_head,
                        .sequences = std::move(sequences),
                        .paged = paged,
                        .k_dtype = k_dtype,
                        .v_dtype = v_dtype});
}

// Where two matrices differ: told at length, since some ways to err show in few rows, by little.
struct RowDifferences {
    int64_t n_rows = 0, first_row = -1, first_column = 0, last_column = 0, n_columns = 0;
    int64_t worst_row = 0, worst_column = 0;
    double worst = -1;  // of elements, beside the greatest magnitude of the row
    float worst_x = 0, worst_y = 0;

    void add(int64_t row, std::span<const float> x, std::span<const float> y) {
        float highest = 0;
        for (float one : x) highest = std::max(highest, std::abs(one));
        bool differs = false;
        for (size_t c = 0; c < x.size(); c++) {
            if (std::bit_cast<uint32_t>(x[c]) == std::bit_cast<uint32_t>(y[c])) continue;
            const auto column = static_cast<int64_t>(c);
            if (first_row < 0) first_row = row, first_column = column;
            if (row == first_row) last_column = column, n_columns++;
            differs = true;
            const double error = std::abs(double{x[c]} - double{y[c]}) / double{highest};
            if (error <= worst) continue;
            worst = error, worst_row = row, worst_column = column, worst_x = x[c], worst_y = y[c];
        }
        n_rows += differs ? 1 : 0;
    }
    std::string text() const {
        return fmt::format(
            "{} rows differ: first row {}, in {} columns of {} to {}; most row {}, column {}, by "
            "{:.2e} of the row's greatest: {:.9g} and {:.9g}",
            n_rows, first_row, n_columns, first_column, last_column, worst_row, worst_column, worst,
            worst_x, worst_y);
    }
};

// Compared as bits, so that -0 and 0 differ.
void expect_same_rows(const Outputs& a, int64_t a_first, const Outputs& b, int64_t b_first,
                      int64_t n) {
    ASSERT_EQ(a.n_cols, b.n_cols);
    const auto row_of = [](const Outputs& of, int64_t row) {
        return std::span(of.values).subspan(static_cast<size_t>(row * of.n_cols),
                                            static_cast<size_t>(of.n_cols));
    };
    RowDifferences differences;
    for (int64_t i = 0; i < n; i++)
        differences.add(i, row_of(a, a_first + i), row_of(b, b_first + i));
    EXPECT_EQ(differences.n_rows, 0) << differences.text();
}

// Forty sequences of all kinds and lengths: one block of positions, some, and many.
std::vector<CaseSequence> company() {
    std::vector<CaseSequence> sequences;
    for (uint64_t i = 0; i < 40; i++) {
        const auto n_ctx = static_cast<int64_t>(1 + i * 97 % 700);
        if (i % 9 == 4 && n_ctx > 5) {
            sequences.push_back({n_ctx, 5, RowClass::kPrompt, i + 1});
        } else {
            sequences.push_back({n_ctx, 1, RowClass::kDecode, i + 1});
        }
    }
    sequences.push_back({3000, 1, RowClass::kDecode, 50});
    sequences.push_back({8200, 1, RowClass::kDecode, 51});
    sequences.push_back({600, 4, RowClass::kDecode, 52});
    sequences.push_back({2300, 130, RowClass::kPrompt, 53});
    sequences.push_back({70, 70, RowClass::kPrompt, 54});
    return sequences;
}

TEST(Attention, a_sequence_attends_alone_as_among_others) {
    CudaCases cuda = make_cuda_cases({.threads = 2});
    ThreadPool pool(2);
    const std::vector<CaseSequence> sequences = company();
    constexpr DType kF16 = DType::kF16, kQ8_0 = DType::kQ8_0, kBF16 = DType::kBF16;
    for (const NamedTables& checkpoint : attention_checkpoints(cuda.caps)) {
        for (const std::pair<DType, DType>& types :
             {std::pair(kF16, kF16), {kQ8_0, kQ8_0}, {kF16, kBF16}}) {
            for (bool paged : {false, true}) {
                const int ratio = paged ? 4 : 3;
                auto run = [&](std::vector<CaseSequence> some, bool is_paged) {
                    return run_case(attention_of(std::move(some), ratio, 64, types.first,
                                                 types.second, is_paged),
                                    test_seed(), checkpoint.tables, pool, cuda.device.get());
                };
                const Outputs together = run(sequences, paged);
                int64_t first_row = 0;
                for (const CaseSequence& s : sequences) {
                    SCOPED_TRACE(fmt::format("{} rows of {}, checkpoint {}, RIDGE_SEED={}",
                                             s.n_rows, s.n_ctx, checkpoint.name, test_seed()));
                    // Alone it lies the other way in the cache, too.
                    const Outputs alone = run({s}, !paged);
                    expect_same_rows(alone, 0, together, first_row, s.n_rows);
                    first_row += s.n_rows;
                }
            }
        }
    }
}

struct Piece {
    int64_t first;
    int32_t n_rows;
};

// Of n_ctx rows: all in pieces of 512, some in less, about where the sums of positions are cut.
std::vector<Piece> pieces(int64_t n_ctx) {
    std::vector<Piece> all;
    const auto add = [&](int64_t first, int64_t n_rows) {
        all.push_back({first, static_cast<int32_t>(std::min(n_rows, n_ctx - first))});
    };
    for (int64_t first = 0; first < n_ctx; first += 512) add(first, 512);
    for (int64_t first = 0; first < n_ctx; first += 5 * 64) add(first, 64);
    for (int64_t first : {0, 17, 1003, 1020, 1037, 2033, 2050}) add(first, 17);
    for (int64_t first : {0, 1, 63, 64, 65, 1023, 1024, 1500, 2047, 2048}) add(first, 1);
    return all;
}

// How a prompt's rows are attended by: "blocks of all segments", "3 segments apart".
std::string path_of(const Case& c, const Caps& caps) {
    const KvLayer kv{.k_dtype = c.k_dtype,
                     .v_dtype = c.v_dtype,
                     .n_slots = c.sequences[0].n_ctx,
                     .n_kv_heads = c.n_kv_heads,
                     .d_head = c.d_head};
    const int n = cuda::segments_apart(caps, kv, c.n_heads, c.sequences[0].n_rows,
                                       static_cast<int>(c.sequences[0].n_ctx) - 1);
    return n == 0 ? "blocks of all segments" : fmt::format("{} segments apart", n);
}

// Whole, blocks of threads take all positions of their rows; in small pieces, some of them each.
TEST(Attention, a_prompt_attends_alike_wherever_it_is_cut) {
    CudaCases cuda = make_cuda_cases({.threads = 2});
    ThreadPool pool(2);
    struct Kind {
        int d_head;
        DType k_dtype, v_dtype;
    };
    constexpr Kind kKinds[] = {{64, DType::kF16, DType::kF16},
                               {128, DType::kF16, DType::kF16},
                               {64, DType::kBF16, DType::kBF16},
                               {128, DType::kQ8_0, DType::kQ8_0},
                               {96, DType::kQ8_0, DType::kF32}};
    const int32_t n_ctx = 2200;
    for (const NamedTables& checkpoint : attention_checkpoints(cuda.caps)) {
        if (checkpoint.name == "plain") continue;
        for (const Kind& kind : kKinds) {
            auto case_of = [&](int64_t end, int32_t n_rows) {
                return attention_of({{end, n_rows, RowClass::kPrompt, 1}}, 8, kind.d_head,
                                    kind.k_dtype, kind.v_dtype, true);
            };
            auto run = [&](const Case& c) {
                return run_case(c, test_seed(), checkpoint.tables, pool, cuda.device.get());
            };
            const Case whole_case = case_of(n_ctx, n_ctx);
            const Outputs whole = run(whole_case);
            for (const Piece& piece : pieces(n_ctx)) {
                const Case piece_case = case_of(piece.first + piece.n_rows, piece.n_rows);
                SCOPED_TRACE(fmt::format(
                    "{} rows from {} by {}, of {} by {}; d_head {}, checkpoint {}, RIDGE_SEED={}",
                    piece.n_rows, piece.first, path_of(piece_case, cuda.caps), n_ctx,
                    path_of(whole_case, cuda.caps), kind.d_head, checkpoint.name, test_seed()));
                const Outputs alone = run(piece_case);
                expect_same_rows(alone, 0, whole, piece.first, piece.n_rows);
            }
        }
    }
}

// What a position holds is nothing to the rows before it, be it no number: the same bits come out.
// Those from it on have what the reference has.
TEST(Attention, rows_do_not_see_later_positions) {
    DeviceCases device;
    auto& [cuda, pool, ref_tables] = device;
    const RowClass decode = RowClass::kDecode, prompt = RowClass::kPrompt;
    const std::vector<CaseSequence> sequences = {{130, 70, decode, 1},  {110, 9, prompt, 2},
                                                 {65, 5, decode, 3},    {600, 100, decode, 4},
                                                 {140, 140, prompt, 5}, {520, 90, prompt, 6}};
    for (DType dtype : {DType::kF16, DType::kF32, DType::kBF16}) {
        for (int64_t position : {0, 31, 32, 64, 105, 129, 300, 511}) {
            Case finite_case =
                attention_of(sequences, 3, dtype == DType::kF32 ? 80 : 64, dtype, dtype, true);
            finite_case.tolerance = 2e-4f, finite_case.cancels = true;
            Case c = finite_case;
            c.nonfinite_position = position;
            for (const NamedTables& checkpoint : attention_checkpoints(cuda.caps)) {
                SCOPED_TRACE(fmt::format("{}, position {}, checkpoint {}, RIDGE_SEED={}", c.name,
                                         position, checkpoint.name, test_seed()));
                auto run = [&](const Case& one) {
                    return run_case(one, test_seed(), checkpoint.tables, pool, cuda.device.get());
                };
                const Outputs finite = run(finite_case), got = run(c);
                int64_t first_row = 0;
                for (const CaseSequence& s : sequences) {
                    const int64_t n_before =
                        std::clamp<int64_t>(position - (s.n_ctx - s.n_rows), 0, s.n_rows);
                    expect_same_rows(got, first_row, finite, first_row, n_before);
                    first_row += s.n_rows;
                }
                if (checkpoint.name != "plain" && checkpoint.name != "decode_attention") continue;
                const Outputs want = run_case(c, test_seed(), ref_tables, pool);
                EXPECT_EQ(compare(c, want, got).fault, "");
            }
        }
    }
}

}  // namespace
}  // namespace ridge
