#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "support/seed.h"

// Less of the tests that take long, for machines that are slow, or emulated.

namespace ridge {

// RIDGE_TEST_ISA=NAME: of the kernels, those of this instruction set alone.
inline bool isa_is_tested(std::string_view name) {
    const char* given = std::getenv("RIDGE_TEST_ISA");
    return given == nullptr || name == given;
}

// RIDGE_TEST_THIN=N: every N-th of `all`, from one on that the seed and `stream` choose.
template <class T>
std::vector<T> thinned(std::vector<T> all, uint64_t stream) {
    const char* given = std::getenv("RIDGE_TEST_THIN");
    const uint64_t every = given == nullptr ? 1 : std::strtoull(given, nullptr, 10);
    if (every <= 1) return all;
    std::vector<T> some;
    for (uint64_t i = (test_seed() + stream) % every; i < all.size(); i += every) {
        some.push_back(std::move(all[i]));
    }
    std::printf("%zu of %zu, RIDGE_TEST_THIN=%s\n", some.size(), all.size(), given);
    return some;
}

}  // namespace ridge
