#pragma once

#include <span>

#include "model/tables.h"

namespace ridge {

// The CPU's checkpoints, in the order in which each adds to the one before. "ref" is the scalar
// oracle.
std::span<const Checkpoint> cpu_checkpoints();

}  // namespace ridge
