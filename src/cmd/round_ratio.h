#pragma once

#include <vector>

namespace ridge {

// Samples of two that were taken in the same rounds: on a shared machine those of one round belong
// together.
struct RoundRatio {
    double median = 0;  // over the rounds, of the ratio of two samples
    double spread = 0;  // the median distance from it
};
RoundRatio ratio_of_rounds(const std::vector<double>& ratios);  // of at least one
// How many times as long the others took. As many of each, at least one.
RoundRatio ratio_of(const std::vector<double>& others, const std::vector<double>& own);

}  // namespace ridge
