#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/interleaved_geometry.h"
#include "cpu/kernels.h"
#include "format/tensor.h"

namespace ridge::cpu {

// Sixteen rows of a weight interleaved: what the CPU's fast kernels read (interleaved_geometry.h).
// The last group is filled up with rows of zeros, a row with super-blocks of zeros.
// BF16 weights become compact (compact.h) where that saves memory and the kernels are faster.
const Layout& interleaved_layout();

Geometry geometry_of(const Tensor& weight);
PackedShape packed_shape(const Tensor& weight);
int64_t group_bytes(const Tensor& weight);  // interleaved; a multiple of 64
inline int64_t n_groups(const Tensor& weight) {
    return (weight.n_rows() + kGroupRows - 1) / kGroupRows;
}

// Rows 16 group .. 16 group + 15 of a row_major weight, and how they are packed:
// out [group_bytes(weight)].
GroupRows rows_of_group(const Tensor& weight, int64_t group);
void pack_group(const Kernels& kernels, const Tensor& weight, int64_t group, std::byte* out);

// Group `group` of a weight that is interleaved or compact.
inline const uint8_t* group_data(const Tensor& weight, int64_t group) {
    return reinterpret_cast<const uint8_t*>(part_data(weight, group));
}

}  // namespace ridge::cpu
