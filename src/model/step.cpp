#include "model/step.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace ridge {

static constexpr uint8_t kGuardByte = 0xff;

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
    guards_.clear();
    overrun_ = false;
    region_ = 0;
    last_stage_ = 2;
}

Rows Scratch::take(int64_t n_rows, int64_t n_cols, DType dtype) {
    size_t bytes = static_cast<size_t>(n_rows * n_cols * dtype_bytes(dtype));
    Rows rows{buffer_, base_[region_] + used_[region_], dtype, n_rows, n_cols, n_cols};
    const size_t end = used_[region_] + bytes;
    used_[region_] += (bytes + guard_bytes_ + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
    if (buffer_ == nullptr) {
        peak_[region_] = std::max(peak_[region_], used_[region_]);
    } else {
        CHECK(used_[region_] <= peak_[region_]);
        if (guard_bytes_ > 0) {
            guards_.push_back({region_, end, used_[region_]});
            memset(buffer_->data() + base_[region_] + end, kGuardByte, used_[region_] - end);
        }
    }
    return rows;
}

// Those of the region's rooms from `used` on.
void Scratch::check_guards(int region, size_t used) {
    std::erase_if(guards_, [&](const Guard& guard) {
        if (guard.region != region || guard.end <= used) return false;
        const std::byte* at = buffer_->data() + base_[region];
        overrun_ = overrun_ || std::any_of(at + guard.begin, at + guard.end,
                                           [](std::byte b) { return b != std::byte{kGuardByte}; });
        return true;
    });
}

bool Scratch::is_overrun() {
    for (int region = 0; region < kRegions; region++) check_guards(region, 0);
    return overrun_;
}

}  // namespace ridge
