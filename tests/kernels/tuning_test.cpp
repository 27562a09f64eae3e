#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cases/tuned_call.h"
#include "support/all_kernels.h"
#include "support/seed.h"
#include "support/thin.h"

// No choice of `ridge tune` changes a bit of a result.

namespace ridge {
namespace {

constexpr int kThreads = 3, kBlockClasses = 12;

// The ends of each parameter and what lies between, one at a time, and then all ends at once.
template <class T>
std::vector<T> extremes() {
    std::vector<T> all;
    T least, most;
    for (const auto& parameter : parameters_of(static_cast<const T*>(nullptr))) {
        const int step = parameter.multiple;
        const int middle = (parameter.min + parameter.max) / 2 / step * step;
        for (int value : {parameter.min, parameter.min + step, middle, parameter.max}) {
            T values;
            values.*parameter.value = value;
            all.push_back(values);
        }
        least.*parameter.value = parameter.min, most.*parameter.value = parameter.max;
    }
    all.push_back(least), all.push_back(most);
    return all;
}

Tuning for_case(const Case& c, const MatmulTuning& values) {
    Tuning tuning;
    tuning.set(matmul_call_of(c, rows_class_of_cpu(c.row_class, c.n_rows)), values);
    return tuning;
}
Tuning for_case(const Case& c, const AttentionTuning& values) {
    Tuning tuning;
    for (int size : {kFewPrompts, kManyPrompts}) {
        tuning.set(attention_call_of(c, RowClass::kPrompt, size), values);
    }
    for (int size = 0; size < kBlockClasses; size++) {
        tuning.set(attention_call_of(c, RowClass::kDecode, size), values);
    }
    return tuning;
}

// Every subject of the op with every one of the values, on the cases.
template <class T>
void expect_the_same_bits(Op op, std::vector<Case> cases) {
    static const std::deque<IsaKernels> kernels = kernels_of_all_isas();
    ThreadPool pool(kThreads);
    uint64_t seed = test_seed();
    const std::vector<Subject> subjects = cpu_subjects(op, kernels, kThreads);
    for (const Case& c : thinned(std::move(cases), static_cast<uint64_t>(op))) {
        CaseRun run(c, ++seed);
        for (const Subject& subject : subjects) {
            if (subject.tables.kernels == nullptr) continue;
            Tables tables = subject.tables;
            const Outputs untuned = run.run(tables, pool);
            for (const T& values : extremes<T>()) {
                const Tuning tuning = for_case(c, values);
                tables.tuning = &tuning;
                const Outputs tuned = run.run(tables, pool);
                ASSERT_EQ(tuned.fault, "");
                ASSERT_TRUE(same_bits(untuned, tuned))
                    << fmt::format("{}, {}, RIDGE_SEED={}", c.name, subject.name(), test_seed());
                tables.tuning = nullptr;
            }
        }
    }
}

TEST(Tuning, changes_no_bit_of_a_matmul) {
    std::vector<Case> cases;
    for (const Case& c : all_cases()) {
        constexpr int64_t kLargeRows = 1024;
        if (c.op != Op::kMatmul || c.weights[0].d_out > kLargeRows) continue;
        cases.push_back(c);
        if (c.row_class == RowClass::kPrompt || c.n_rows > kFewPromptRows) continue;
        Case prompt = c;  // few rows of a prompt may run on the kernels of decode rows
        prompt.row_class = RowClass::kPrompt;
        cases.push_back(finish_case(prompt));
    }
    std::vector<Case> some;
    const size_t first = static_cast<size_t>(test_seed() % 3);
    for (size_t i = first; i < cases.size(); i += 3) some.push_back(cases[i]);
    expect_the_same_bits<MatmulTuning>(Op::kMatmul, std::move(some));
}

TEST(Tuning, changes_no_bit_of_attention) {
    std::vector<Case> some;
    for (const Case& c : all_cases()) {
        constexpr int64_t kMostPositions = 1200;
        const bool is_small =
            std::all_of(c.sequences.begin(), c.sequences.end(),
                        [](const CaseSequence& s) { return s.n_ctx <= kMostPositions; });
        if (c.op == Op::kAttention && is_small) some.push_back(c);
    }
    const size_t first = static_cast<size_t>(test_seed() % 3);
    std::vector<Case> thin;
    for (size_t i = first; i < some.size(); i += 3) thin.push_back(some[i]);
    expect_the_same_bits<AttentionTuning>(Op::kAttention, std::move(thin));
}

// Few prompt rows may run on the kernels of decode rows where both round their operands alike.
TEST(Tuning, lets_prompt_rows_run_as_decode_rows_only_where_operands_are_the_same) {
    for (const IsaKernels& isa : kernels_of_all_isas()) {
        const bool on_tiles = isa.kernels.gemm[static_cast<size_t>(FormatId::kQ4_0)].tiles;
        for (const Format& format : formats()) {
            const cpu::GemmKernel& gemm = isa.kernels.gemm[static_cast<size_t>(format.id)];
            if (!gemm.sums_as_groups) continue;
            EXPECT_FALSE(on_tiles);
            EXPECT_EQ(gemm.operands, cpu::Operands::kInt8);
            EXPECT_EQ(isa.kernels.group_operands[static_cast<size_t>(format.id)],
                      cpu::Operands::kInt8);
        }
    }
}

}  // namespace
}  // namespace ridge
