#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/check.h"

namespace ridge {

// The middle one of measured values (not empty): their median where they are odd in number, else
// the upper of the two in the middle.
inline double middle_of(std::vector<double> values) {
    CHECK(!values.empty());
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace ridge
