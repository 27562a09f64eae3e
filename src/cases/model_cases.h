#pragma once

#include <cstdint>
#include <vector>

#include "cases/case.h"
#include "model/config.h"
#include "model/weights.h"

namespace ridge {

// A step of a model, as far as shapes go.
struct StepShape {
    RowClass row_class = RowClass::kDecode;
    int32_t n_rows = 1;  // of a prompt, or sequences that decode
    int64_t n_ctx = 1;   // positions of each sequence, the step's own included
    DType k_dtype = DType::kF16, v_dtype = DType::kF16;
};

// The calls of operators that such a step makes at plain checkpoints, each shape and format once,
// in the order of the step: what `bench ops` times. Of the weights only shapes and formats are
// looked at. Logits are those of one row, and with decode rows of all; a draw is greedy.
std::vector<Case> model_cases(const Config& config, const Weights& weights, const StepShape& step);

}  // namespace ridge
