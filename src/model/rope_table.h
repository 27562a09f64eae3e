#pragma once

#include <vector>

#include "model/config.h"

namespace ridge {

// RoPE's frequencies, in radians a position: frequency[i] = theta^(-2i / d_rope) / factor[i], made
// in float64. An angle is position * frequency in float64: float32 products are off by 2.8e-3 rad
// at position 131,071. Source: Su et al. 2021 (RoFormer), equation 15; factors:
// Config::rope_factors.
struct RopeTable {
    std::vector<double> frequency;  // [d_rope / 2]
    RopeStyle style = RopeStyle::kHalfSplit;

    int d_rope() const { return 2 * static_cast<int>(frequency.size()); }
};

RopeTable make_rope_table(const Config& config);

}  // namespace ridge
