#include "model/step.h"

#include <algorithm>
#include <numeric>

namespace ridge {

void note_fallback(Step& step, const Fallback& fallback) {
    if (step.fallbacks == nullptr) return;
    std::vector<Fallback>& all = *step.fallbacks;
    if (std::find(all.begin(), all.end(), fallback) == all.end()) all.push_back(fallback);
}

size_t Scratch::planned_bytes() const {
    return std::accumulate(peak_, peak_ + kRegions, size_t{0});
}

void Scratch::place(const Buffer& buffer) {
    CHECK(buffer.n_bytes() >= planned_bytes());
    buffer_ = &buffer;
    size_t at = 0;
    for (int i = 0; i < kRegions; i++) {
        base_[i] = at;
        at += peak_[i];
    }
}

void Scratch::begin_step() {
    std::fill(used_, used_ + kRegions, 0);
    region_ = 0;
    last_stage_ = 2;
}

Rows Scratch::take(int64_t n_rows, int64_t n_cols, DType dtype) {
    size_t bytes = static_cast<size_t>(n_rows * n_cols * dtype_bytes(dtype));
    Rows rows{buffer_, base_[region_] + used_[region_], dtype, n_rows, n_cols, n_cols};
    used_[region_] += (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
    if (buffer_ == nullptr) {
        peak_[region_] = std::max(peak_[region_], used_[region_]);
    } else {
        CHECK(used_[region_] <= peak_[region_]);
    }
    return rows;
}

}  // namespace ridge
