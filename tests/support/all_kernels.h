#pragma once

#include <deque>

#include "base/error.h"
#include "cpu/case_subjects.h"
#include "support/thin.h"

namespace ridge {

// The kernels of every instruction set that this machine has and that RIDGE_TEST_ISA does not leave
// out.
inline std::deque<IsaKernels> kernels_of_all_isas() {
    std::deque<IsaKernels> all = kernels_of_all_isas(isa_is_tested);
    if (all.empty()) {
        throw Error(ErrorKind::kUsage, "RIDGE_TEST_ISA: not a set that this machine has");
    }
    return all;
}

}  // namespace ridge
