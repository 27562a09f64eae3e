#pragma once

#include <memory>

#include "model/backend.h"

namespace ridge {

// The CPU: weights stay where the file maps them, steps run on a pool of threads when they are
// submitted.
std::unique_ptr<Backend> make_cpu_backend(int n_threads);

}  // namespace ridge
