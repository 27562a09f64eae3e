#pragma once

#include "cases/case.h"
#include "model/tuning.h"

namespace ridge {

// The calls that the kernels of a case look their choices up for. `size` as of the backend.
MatmulCall matmul_call_of(const Case& c, int size);
AttentionCall attention_call_of(const Case& c, RowClass row_class, int size);

}  // namespace ridge
