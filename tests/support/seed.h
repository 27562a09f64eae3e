#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/system.h"

namespace ridge {

// The seed of this run's random data: fresh, and printed; RIDGE_SEED=N brings a run back.
inline uint64_t test_seed() {
    static const uint64_t seed = [] {
        const char* given = std::getenv("RIDGE_SEED");
        const uint64_t value = given == nullptr ? random_seed() : std::strtoull(given, nullptr, 0);
        std::printf("random data of RIDGE_SEED=%" PRIu64 "\n", value);
        return value;
    }();
    return seed;
}

}  // namespace ridge
