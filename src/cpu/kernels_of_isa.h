#pragma once

#include "cpu/isa.h"
#include "cpu/kernels.h"
#include "model/step.h"

namespace ridge::cpu {

// The functions of one instruction set, each of those below it replaced where it has a better one.
// The machine must have it (available_isas).
Kernels kernels_of_isa(Isa isa);

// Those that a step's tables were resolved for.
const Kernels& kernels_of(const Step& s);

}  // namespace ridge::cpu
