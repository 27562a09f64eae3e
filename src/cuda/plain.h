#pragma once

#include <string_view>

#include "model/tables.h"

namespace ridge::cuda {

// Sets every node of tables.ops to a kernel of the simplest kind, as entry `checkpoint`. Frozen:
// what faster kernels are held against. Activations are f32; weights lie as the file has them.
void add_plain_ops(Tables& tables, std::string_view checkpoint);

}  // namespace ridge::cuda
