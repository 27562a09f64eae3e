#include "cmd/round_ratio.h"

#include <cmath>
#include <cstddef>

#include "base/check.h"
#include "cmd/step_profile.h"

namespace ridge {

RoundRatio ratio_of_rounds(const std::vector<double>& ratios) {
    const double median = median_of(ratios);
    std::vector<double> distances;
    for (double ratio : ratios) distances.push_back(std::abs(ratio - median));
    return {median, median_of(distances)};
}

RoundRatio ratio_of(const std::vector<double>& others, const std::vector<double>& own) {
    CHECK(!own.empty() && others.size() == own.size());
    std::vector<double> ratios;
    for (size_t i = 0; i < own.size(); i++) ratios.push_back(others[i] / own[i]);
    return ratio_of_rounds(ratios);
}

}  // namespace ridge
