#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "cases/case_run.h"

namespace ridge {

// Weights, keys and values of a step come from memory, and so they do where one operator is timed:
// copies of them, together several times the last cache, take turns.

// Bytes of the last cache, of the processor or of a device (null: the processor); where the system
// does not tell, and for any device, as many as a large one has.
int64_t last_cache_bytes(const CaseDevice* device);

// As many copies of the case as that takes, one at the least and `n_most` at the most; fewer where
// they would take too much memory. `alive` is called before each is made, and while a long cache is
// filled, and may throw.
std::deque<CaseRun> copies_of(const Case& c, int64_t cache_bytes, int64_t n_most,
                              const std::function<void()>& alive);
constexpr int64_t kMostCopies = 64;

}  // namespace ridge
