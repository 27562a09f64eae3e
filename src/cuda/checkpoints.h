#pragma once

#include <span>

#include "model/tables.h"

namespace ridge {

// The entries of the CUDA backend, in their order (docs/architecture.md).
std::span<const Checkpoint> cuda_checkpoints();

}  // namespace ridge
