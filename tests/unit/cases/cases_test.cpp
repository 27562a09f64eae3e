#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "cases/case_run.h"
#include "ref/host_kv.h"
#include "ref/ref.h"
#include "support/seed.h"

namespace ridge {
namespace {

Tables ref_tables() {
    Tables tables;
    ref::add_ref_ops(tables, "ref");
    return tables;
}

Difference difference_of(const Case& c, const Tables& wrong) {
    ThreadPool pool(1);
    CaseRun run(c, test_seed());
    const Outputs want = run.run(ref_tables(), pool);
    return compare(c, want, run.run(wrong, pool));
}

// What the harness says of an add that does something else.
std::string fault_of_add(void (*add)(Step&, Rows y, Rows x)) {
    Tables tables = ref_tables();
    tables.ops.add.set("wrong", add);
    return difference_of(finish_case({.op = Op::kAdd, .n_rows = 3, .d_in = 5}), tables).fault;
}

TEST(CaseRun, passes_what_is_right) {
    EXPECT_EQ(fault_of_add(ref::add), "");
}

TEST(CaseRun, sees_one_wrong_element) {
    const std::string fault = fault_of_add([](Step& s, Rows y, Rows x) {
        ref::add(s, y, x);
        x.row<float>(2)[4] = std::nextafter(x.row<float>(2)[4], 1e9f);
    });
    EXPECT_EQ(fault.substr(0, 17), "row 2, column 4: ");
}

TEST(CaseRun, can_be_given_up_while_a_long_cache_is_filled) {
    struct Enough {};
    Case c{.op = Op::kAttention, .n_heads = 1, .n_kv_heads = 1, .d_head = 4};
    c.sequences = {{.n_ctx = 5000, .n_rows = 1}};
    c = finish_case(std::move(c));
    int n_asked = 0;
    CaseRun(c, test_seed(), [&] { n_asked++; });
    EXPECT_GE(n_asked, 5000 / 256);
    n_asked = 0;
    EXPECT_THROW(CaseRun(c, test_seed(),
                         [&] {
                             if (++n_asked == 3) throw Enough();
                         }),
                 Enough);
}

// An op of every case is counted from what it is given as the case was from its description.
TEST(Work, of_an_op_is_what_its_case_says) {
    Tables tables;
    tables.ops.embed_rows.set("none", [](Step&, const Tensor&, Tokens, Rows) {});
    tables.ops.rms_norm.set("none", [](Step&, Heads, const Tensor&, float, Heads) {});
    tables.ops.matmul.set("none", [](Step&, Rows, LinearGroup, Rows) {});
    tables.ops.rope.set("none", [](Step&, Heads, Positions, const RopeTable&) {});
    tables.ops.kv_append.set("none", [](Step&, Heads, Heads, KvLayer) {});
    tables.ops.attention.set("none", [](Step&, Heads, KvLayer, Heads) {});
    tables.ops.swiglu.set("none", [](Step&, Rows, Rows) {});
    tables.ops.add.set("none", [](Step&, Rows, Rows) {});
    tables.ops.sample.set("none", [](Step&, Rows, std::span<Sampled>) {});
    ThreadPool pool(1);
    std::set<Op> seen;
    std::vector<Case> cases = all_cases();
    std::erase_if(cases, [](const Case& c) {
        return c.masked                 // described as if they were not
               || c.bytes > (4 << 20);  // what is made for them takes long
    });
    for (size_t i = test_seed() % 3; i < cases.size(); i += 3) {
        const Case& c = cases[i];
        CaseRun run(c, test_seed());
        run.bind(tables, pool);
        StepTrace trace;
        run.set_trace(&trace);
        run.run_op();
        ASSERT_EQ(trace.spans().size(), 1u);
        const NodeSpan& span = trace.spans()[0];
        EXPECT_EQ(span.node, op_name(c.op));
        EXPECT_EQ(span.work.bytes(), c.bytes) << c.name;
        EXPECT_EQ(span.work.flops, c.flops) << c.name;
        EXPECT_EQ(span.work.n_rows, c.n_rows) << c.name;
        seen.insert(c.op);
    }
    EXPECT_EQ(seen.size(), 9u);
}

// With a tolerance of 0 every bit counts; with another, what the values mean.
TEST(Compare, tells_apart_by_bits_where_nothing_is_tolerated) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float other_nan = std::bit_cast<float>(std::bit_cast<uint32_t>(nan) ^ 1);
    const float tiny = std::numeric_limits<float>::denorm_min();
    for (auto [a, b] : {std::pair{0.0f, -0.0f}, {nan, other_nan}, {nan, -nan}, {0.0f, tiny}}) {
        for (float tolerance : {0.0f, 1e-6f}) {
            const Case c = finish_case(
                {.op = Op::kAdd, .n_rows = 1, .d_in = 2, .tolerance = tolerance, .cancels = true});
            Outputs want, got;
            want.n_cols = got.n_cols = 2;
            want.values = {1, a}, got.values = {1, b};
            EXPECT_EQ(compare(c, want, want).fault, "");
            EXPECT_EQ(compare(c, want, got).fault.substr(0, 17),
                      tolerance == 0 ? "row 0, column 1: " : "")
                << a << ", " << b;
        }
    }
}

// What is no finite number does not hide what is wrong beside it.
TEST(Compare, sees_a_wrong_element_beside_infinities_and_nans) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const Case c =
        finish_case({.op = Op::kAdd, .n_rows = 1, .d_in = 3, .tolerance = 1e-3f, .cancels = true});
    for (float odd : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        Outputs want, got;
        want.n_cols = got.n_cols = 3;
        want.values = {1, odd, 2}, got.values = {1, odd, 2.5f};
        EXPECT_EQ(compare(c, want, want).fault, "");
        EXPECT_EQ(compare(c, want, got).fault.substr(0, 17), "row 0, column 2: ") << odd;
    }
}

TEST(Compare, tells_apart_log_probabilities_that_are_no_numbers) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    for (float tolerance : {0.0f, 1e-4f}) {
        const Case c = {.op = Op::kSample, .tolerance = tolerance};
        for (auto [a, b] : {std::pair{-1.0f, nan}, {nan, -1.0f}, {-infinity, -1.0f}}) {
            Outputs want, got;
            want.sampled = {{.token = 1, .logprob = a, .top = {}}};
            got.sampled = {{.token = 1, .logprob = b, .top = {}}};
            EXPECT_EQ(compare(c, want, want).fault, "");
            EXPECT_NE(compare(c, want, got).fault, "") << a << ", " << b;
        }
    }
}

TEST(CaseRun, sees_writes_outside_the_rows) {
    for (int64_t column : {int64_t{-1}, int64_t{5}}) {
        auto before = [](Step& s, Rows y, Rows x) {
            ref::add(s, y, x);
            x.row<float>(0)[-1] = 0;
        };
        auto behind = [](Step& s, Rows y, Rows x) {
            ref::add(s, y, x);
            x.row<float>(2)[5] = 0;
        };
        const std::string fault = column < 0 ? fault_of_add(before) : fault_of_add(behind);
        EXPECT_EQ(fault.substr(0, 31), "x was written outside its rows,") << column;
    }
}

TEST(CaseRun, sees_writes_behind_a_room_of_scratch) {
    auto behind = [](Step& s, Rows y, Rows x) {
        Rows room = s.scratch(2, 5), next = s.scratch(1, 5);
        if (s.planning) return;
        ref::add(s, y, x);
        next.row<float>(0)[4] = 1;
        room.row<float>(1)[5] = 1;
    };
    auto behind_one_given_back = [](Step& s, Rows y, Rows x) {
        Rows room;
        {
            ScratchScope scope(s.memory);
            room = s.scratch(2, 64);
            if (!s.planning) room.row<float>(1)[64 + 32] = 1;
        }
        Rows next = s.scratch(1, 1000);
        if (s.planning) return;
        ref::add(s, y, x);
        next.row<float>(0)[999] = 1;
    };
    const std::string want = "scratch was written behind a room's end";
    EXPECT_EQ(fault_of_add(behind), want);
    EXPECT_EQ(fault_of_add(behind_one_given_back), want);
}

TEST(CaseRun, sees_reads_outside_the_rows) {
    EXPECT_NE(fault_of_add([](Step& s, Rows y, Rows x) {
                  ref::add(s, y, x);
                  x.row<float>(1)[4] += 0 * y.row<float>(1)[5];
              }),
              "");
}

TEST(CaseRun, sees_inputs_that_were_written_to) {
    EXPECT_EQ(fault_of_add([](Step& s, Rows y, Rows x) {
                  ref::add(s, y, x);
                  y.row<float>(1)[3] += 1;
              }),
              "y, an input, was written to");
}

TEST(CaseRun, sees_rows_left_out) {
    Tables tables = ref_tables();
    tables.ops.swiglu.set("wrong", [](Step&, Rows, Rows) {});
    const Case c = finish_case({.op = Op::kSwiglu, .n_rows = 2, .d_in = 3, .tolerance = 1});
    EXPECT_EQ(difference_of(c, tables).fault.substr(0, 21), "row 0, column 0: nan,");
}

// One position too many reads the poison behind a sequence, in any type of cache.
TEST(CaseRun, sees_reads_behind_the_cache) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (bool paged : {false, true}) {
            Tables tables = ref_tables();
            tables.ops.attention.set("wrong", [](Step& s, Heads q, KvLayer kv, Heads out) {
                Batch batch = s.batch;
                std::vector<int32_t> later(batch.positions.begin(), batch.positions.end());
                for (int32_t& position : later) position++;
                batch.positions = later;
                Step step{s.tables, s.ops,    s.stages, s.config,  s.rope_table,
                          batch,    s.memory, s.pool,   s.planning};
                ref::attention(step, q, kv, out);
            });
            const Case c = finish_case({.op = Op::kAttention,
                                        .n_heads = 2,
                                        .d_head = 4,
                                        .sequences = {{9, 1}},
                                        .paged = paged,
                                        .k_dtype = dtype,
                                        .v_dtype = dtype,
                                        .tolerance = 1});
            EXPECT_EQ(difference_of(c, tables).fault.substr(0, 21), "row 0, column 0: nan,");
        }
    }
}

TEST(CaseRun, makes_the_same_inputs_of_one_seed_alone) {
    ThreadPool pool(1);
    const Tables tables = ref_tables();
    const Case c = finish_case({.op = Op::kAdd, .n_rows = 2, .d_in = 30});
    const Outputs a = run_case(c, 5, tables, pool), b = run_case(c, 5, tables, pool),
                  other = run_case(c, 6, tables, pool);
    EXPECT_TRUE(same_bits(a, b));
    EXPECT_FALSE(same_bits(a, other));
}

TEST(Case, counts_bytes_and_flops) {
    // 2 rows in and 2 out, 3 * 64 weights of 4.5 bits, 2 * 3 * 64 products.
    const Case matmul = finish_case(
        {.op = Op::kMatmul, .n_rows = 2, .d_in = 64, .weights = {{3, FormatId::kQ4_0, true}}});
    EXPECT_EQ(matmul.bytes, 2 * 64 * 4 + 2 * 3 * 4 + 3 * 36 + 3 * 4);
    EXPECT_EQ(matmul.flops, 2 * 2 * 3 * 64);
    // Codes, and a scale and a bias of two bytes for each 32.
    const Case affine = finish_case({.op = Op::kMatmul,
                                     .n_rows = 1,
                                     .d_in = 64,
                                     .weights = {{3, FormatId::kAffine4, false, 32}}});
    EXPECT_EQ(affine.bytes, 64 * 4 + 3 * 4 + 3 * (32 + 2 * 2 * 2));
    // Rows 8 and 9 of one sequence see 9 and 10 positions.
    const Case attention = finish_case({.op = Op::kAttention,
                                        .n_heads = 6,
                                        .n_kv_heads = 2,
                                        .d_head = 64,
                                        .sequences = {{10, 2}},
                                        .k_dtype = DType::kF32,
                                        .v_dtype = DType::kF16});
    EXPECT_EQ(attention.n_rows, 2);
    EXPECT_EQ(attention.bytes, 10 * 2 * 64 * (4 + 2) + 2 * (2 * 6 * 64) * 4);
    EXPECT_EQ(attention.flops, 4 * 6 * 64 * (9 + 10));
    const Case norm = finish_case({.op = Op::kRmsNorm, .n_rows = 8, .d_in = 100});
    EXPECT_EQ(norm.bytes, 2 * 8 * 100 * 4 + 100 * 4);
}

TEST(Case, has_a_name_and_a_cost) {
    std::set<std::string> names;
    for (const Case& c : all_cases()) {
        EXPECT_TRUE(names.insert(c.name).second) << "twice: " << c.name;
        EXPECT_EQ(c.name.find(op_name(c.op)), 0u);
        EXPECT_GT(c.bytes, 0) << c.name;
    }
}

template <class T>
bool has_all(const std::set<T>& have, std::initializer_list<T> want) {
    return std::all_of(want.begin(), want.end(), [&](const T& x) { return have.count(x) > 0; });
}

TEST(Case, covers_attention) {
    std::set<int64_t> lengths, queries;
    std::set<std::pair<int, int>> shapes;
    std::set<std::tuple<DType, DType, bool>> caches;
    for (const Case& c : all_cases()) {
        if (c.op != Op::kAttention) continue;
        for (const CaseSequence& s : c.sequences) {
            lengths.insert(s.n_ctx), queries.insert(s.n_rows);
        }
        shapes.insert({c.n_heads / c.n_kv_heads, c.d_head});
        caches.insert({c.k_dtype, c.v_dtype, c.paged});
    }
    EXPECT_TRUE(has_all<int64_t>(
        lengths, {1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 4097}));
    EXPECT_TRUE(has_all<int64_t>(queries, {1, 2, 7, 8, 9, 63, 64, 65}));
    for (int ratio : {1, 3, 4, 7, 8}) {
        for (int d_head : {64, 80, 96, 100, 128, 256}) {
            EXPECT_EQ(shapes.count({ratio, d_head}), 1u) << ratio << ", " << d_head;
        }
    }
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (bool paged : {false, true}) EXPECT_EQ(caches.count({dtype, dtype, paged}), 1u);
    }
}

TEST(Case, covers_every_format_at_every_row_count) {
    std::set<std::pair<FormatId, int64_t>> matmuls;
    std::set<FormatId> tables;
    std::set<size_t> group_sizes;
    for (const Case& c : all_cases()) {
        if (c.op == Op::kMatmul) {
            group_sizes.insert(c.weights.size());
            for (const CaseWeight& w : c.weights) matmuls.insert({w.format, c.n_rows});
        }
        if (c.op == Op::kEmbedRows) tables.insert(c.weights[0].format);
    }
    for (const Format& format : formats()) {
        for (int64_t n_rows : {1, 2, 3, 8, 65}) {
            EXPECT_EQ(matmuls.count({format.id, n_rows}), 1u) << format.name << ", " << n_rows;
        }
        EXPECT_EQ(tables.count(format.id), 1u) << format.name;
    }
    EXPECT_TRUE(has_all<size_t>(group_sizes, {1, 2, 3}));
}

}  // namespace
}  // namespace ridge
