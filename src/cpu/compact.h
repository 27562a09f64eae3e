#pragma once

#include <cstdint>

#include "format/tensor.h"

namespace ridge::cpu {

// BF16 weights in twelve bits each, bit for bit (interleaved_geometry.h): the exponents of a
// trained weight are few, so the high byte of most elements is one of sixteen. Decode reads a
// quarter fewer bytes; a weight of other exponents stays as it is.
const Layout& compact_layout();

// The compact layout, for BF16 weights of which the kernels (cpu::Kernels) are faster; else null.
const Layout* compact_layout_for(const Tensor& row_major, const void* kernels);

inline bool is_compact(const Tensor& weight) {
    return weight.layout == &compact_layout();
}

}  // namespace ridge::cpu
