#pragma once

#include "cpu/isa.h"
#include "cpu/kernels.h"

namespace ridge::cpu {

// The functions of one instruction set, each of those below it replaced where it has a better one.
// The machine must have it (available_isas).
Kernels kernels_of_isa(Isa isa);

}  // namespace ridge::cpu
