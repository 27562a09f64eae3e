#include "model/tuning.h"

#include <gtest/gtest.h>

#include <set>

namespace ridge {
namespace {

MatmulCall call_of(int64_t d_in, int64_t d_out, int size) {
    MatmulCall call{RowClass::kDecode, size, d_in, {}};
    call.weights[0] = {d_out, FormatId::kQ4_0};
    return call;
}

TEST(Tuning, gives_what_was_set_for_a_call_and_the_defaults_for_all_others) {
    Tuning tuning;
    EXPECT_EQ(tuning.of(call_of(64, 64, 1)), MatmulTuning());
    for (int i = 0; i < 40; i++) {  // in an order that is not theirs
        MatmulTuning values;
        values.grain_kib = 100 + i;
        tuning.set(call_of(64 + i * 7 % 40, 64, 1), values);
    }
    for (int i = 0; i < 40; i++) {
        EXPECT_EQ(tuning.of(call_of(64 + i * 7 % 40, 64, 1)).grain_kib, 100 + i);
    }
    EXPECT_EQ(tuning.n_choices(), 40u);
    MatmulCall other = call_of(64, 64, 1);
    for (MatmulCall call : {call_of(64, 65, 1), call_of(64, 64, 2), call_of(63, 64, 1)}) {
        EXPECT_EQ(tuning.of(call), MatmulTuning());
    }
    other.weights[1] = {64, FormatId::kQ4_0};
    EXPECT_EQ(tuning.of(other), MatmulTuning());
    other = call_of(64, 64, 1);
    other.row_class = RowClass::kPrompt;
    EXPECT_EQ(tuning.of(other), MatmulTuning());
    other = call_of(64, 64, 1);
    other.weights[0].format = FormatId::kQ4_1;
    EXPECT_EQ(tuning.of(other), MatmulTuning());
    MatmulTuning again;
    again.grain_kib = 7;
    tuning.set(call_of(64, 64, 1), again);
    EXPECT_EQ(tuning.of(call_of(64, 64, 1)), again);
    EXPECT_EQ(tuning.n_choices(), 40u);
}

TEST(Tuning, classes_hold_sizes_that_are_run_alike) {
    EXPECT_EQ(rows_class_of_cpu(RowClass::kDecode, 1), 1);
    EXPECT_EQ(rows_class_of_cpu(RowClass::kDecode, 2), rows_class_of_cpu(RowClass::kDecode, 16));
    EXPECT_EQ(rows_class_of_cpu(RowClass::kPrompt, 1), kFewPrompts);
    EXPECT_EQ(rows_class_of_cpu(RowClass::kPrompt, kFewPromptRows), kFewPrompts);
    EXPECT_EQ(rows_class_of_cpu(RowClass::kPrompt, kFewPromptRows + 1), kManyPrompts);
    EXPECT_EQ(rows_class_of_cuda(1), 1);
    EXPECT_EQ(rows_class_of_cuda(64), 1);
    EXPECT_EQ(rows_class_of_cuda(65), 2);
    const int64_t blocks[] = {1, 2, 3, 4, 5, 8, 9, 16, 17};
    const int classes[] = {0, 1, 2, 2, 3, 3, 4, 4, 5};
    for (size_t i = 0; i < std::size(blocks); i++) {
        EXPECT_EQ(blocks_class(blocks[i]), classes[i]) << blocks[i];
    }
}

// A default within the bounds of its parameter, which files may have.
template <class T>
void check_parameters() {
    std::set<std::string_view> names;
    for (const auto& parameter : parameters_of(static_cast<const T*>(nullptr))) {
        EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
        const int untuned = T{}.*parameter.value;
        EXPECT_LE(parameter.min, untuned) << parameter.name;
        EXPECT_GE(parameter.max, untuned) << parameter.name;
        EXPECT_EQ(untuned % parameter.multiple, 0) << parameter.name;
        EXPECT_EQ(parameter.max % parameter.multiple, 0) << parameter.name;
    }
}

TEST(Tuning, defaults_are_values_that_may_be_chosen) {
    check_parameters<MatmulTuning>();
    check_parameters<AttentionTuning>();
}

}  // namespace
}  // namespace ridge
