#include "cpu/ranking.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "cpu/row_kernels.h"

namespace ridge::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kFirstSorted = 64;
// A heap of so few is hardly ever touched in a pass over many; quickselect is for more.
constexpr size_t kHeapLimit = 128;

// A strict order, so that every way of sorting gives the same result.
bool more_probable(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

}  // namespace

Ranking::Ranking(std::span<const float> logits, std::span<const float> maxima, float* maxima_room,
                 Candidate* room)
    : logits_(logits),
      maxima_(maxima),
      maxima_room_(maxima_room),
      all_(room),
      collected_from_(kInfinity),
      lowest_(-std::numeric_limits<float>::max()) {}

const Candidate* Ranking::at(size_t i) {
    if (i >= n_sorted_) {
        const size_t wanted = std::max(i + 1, std::max(kFirstSorted, 8 * n_sorted_));
        collect_until(wanted);
        sort_more(std::min(wanted, n_collected_));
    }
    return i < n_sorted_ ? all_ + i : nullptr;
}

void Ranking::keep_first(size_t n) {
    collect_until(n);
    if (n > n_collected_) return;
    if (n > n_sorted_ && n < n_collected_) select(n);
    n_collected_ = n;
    n_sorted_ = std::min(n_sorted_, n);
    complete_ = true;
}

void Ranking::keep_from(double lowest) {
    auto bound = static_cast<float>(lowest);  // the lowest logit that is kept
    if (double{bound} < lowest) bound = std::nextafter(bound, kInfinity);
    lowest_ = std::max(lowest_, bound);
    Candidate* end = std::remove_if(all_, all_ + n_collected_,
                                    [&](const Candidate& c) { return c.logit < lowest_; });
    n_collected_ = static_cast<size_t>(end - all_);
    n_sorted_ = std::min(n_sorted_, n_collected_);
    if (complete_) return;
    const auto n_blocks = std::count_if(maxima_.begin(), maxima_.end(),
                                        [&](float maximum) { return maximum >= lowest_; });
    // Few are collected at once, so that nobody has to read the logits for their sum.
    if (n_blocks <= static_cast<std::ptrdiff_t>(kHeapLimit)) collect_from(lowest_);
}

void Ranking::collect_until(size_t n) {
    while (n_collected_ < n && !complete_) collect_from(threshold_for(n));
}

// A threshold below the last one: more than n_collected_ logits reach the n-th largest maximum. For
// many candidates the lowest maximum comes first, which about a tenth of the logits reach, then
// everything.
float Ranking::threshold_for(size_t n) {
    float* end = std::copy_if(maxima_.begin(), maxima_.end(), maxima_room_,
                              [](float maximum) { return maximum > -kInfinity; });
    const auto n_maxima = static_cast<size_t>(end - maxima_room_);
    if (n > n_maxima / 2) {
        const float least = n_maxima == 0 ? lowest_ : *std::min_element(maxima_room_, end);
        return least < collected_from_ ? least : lowest_;
    }
    float* nth = maxima_room_ + n - 1;
    if (n <= kHeapLimit) {
        std::partial_sort(maxima_room_, nth + 1, end, std::greater<>());
    } else {
        std::nth_element(maxima_room_, nth, end, std::greater<>());
    }
    return *nth;
}

// Adds the logits from `threshold` up to the last threshold.
void Ranking::collect_from(float threshold) {
    threshold = std::max(threshold, lowest_);
    const size_t n = logits_.size();
    for (size_t piece = 0; piece * kLogitPiece < n; piece++) {
        const float* maxima = maxima_.data() + piece * kLogitLanes;
        const auto n_lanes = std::count_if(maxima, maxima + kLogitLanes,
                                           [&](float maximum) { return maximum >= threshold; });
        if (n_lanes == 0) continue;
        const size_t first = piece * kLogitPiece;
        const size_t n_here = std::min<size_t>(kLogitPiece, n - first);
        if (n_lanes > 2) {
            collect(first, 1, n_here, threshold);
            continue;
        }
        for (size_t lane = 0; lane < std::min<size_t>(kLogitLanes, n_here); lane++) {
            if (maxima[lane] < threshold) continue;
            collect(first + lane, kLogitLanes, (n_here - lane + kLogitLanes - 1) / kLogitLanes,
                    threshold);
        }
    }
    collected_from_ = threshold;
    complete_ = threshold <= lowest_;
}

void Ranking::collect(size_t first, size_t step, size_t n, float threshold) {
    for (size_t i = 0; i < n; i++) {
        const size_t token = first + i * step;
        const float logit = logits_[token];
        if (logit < threshold || logit >= collected_from_) continue;
        all_[n_collected_++] = {logit, static_cast<Token>(token)};
    }
}

// Puts the n first of the order at the front.
void Ranking::select(size_t n) {
    if (n - n_sorted_ <= kHeapLimit) {
        std::partial_sort(all_ + n_sorted_, all_ + n, all_ + n_collected_, more_probable);
        n_sorted_ = n;
    } else {
        std::nth_element(all_ + n_sorted_, all_ + n, all_ + n_collected_, more_probable);
    }
}

void Ranking::sort_more(size_t n) {
    if (n < n_collected_) select(n);
    if (n_sorted_ >= n) return;
    std::sort(all_ + n_sorted_, all_ + n, more_probable);
    n_sorted_ = n;
}

}  // namespace ridge::cpu
