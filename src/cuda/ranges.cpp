#include "cuda/ranges.h"

#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

namespace ridge::cuda {

void begin_range(const char* name) {
    nvtxRangePushA(name);
}

void end_range() {
    nvtxRangePop();
}

Range::Range(const char* what, int64_t number) {
    char name[64];
    *fmt::format_to_n(name, sizeof name - 1, "{} {}", what, number).out = 0;
    begin_range(name);
}

}  // namespace ridge::cuda
