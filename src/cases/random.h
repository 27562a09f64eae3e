#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "base/split_mix.h"

namespace ridge {

// Numbers for test data. `stream` gives independent sequences of one seed.
class Random {
  public:
    explicit Random(uint64_t seed, uint64_t stream = 0)
        : state_(split_mix(seed) ^ split_mix(~stream)) {}

    uint64_t bits() { return split_mix(state_ += kSplitMixStep); }
    // In [0, n), n > 0; the bias of n / 2^64 does not matter here.
    int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
    // In (0, 1].
    double uniform() { return static_cast<double>((bits() >> 11) + 1) * 0x1p-53; }
    // Of mean 0 and variance 1 (Box and Muller 1958).
    float normal() {
        const double radius = std::sqrt(-2 * std::log(uniform()));
        return static_cast<float>(radius * std::cos(2 * std::numbers::pi * uniform()));
    }

  private:
    uint64_t state_;
};

}  // namespace ridge
