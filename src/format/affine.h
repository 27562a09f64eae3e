#pragma once

#include <cstddef>
#include <cstdint>

#include "format/format.h"

namespace ridge {

// Affine formats, as MLX writes them: groups of 32, 64 or 128 elements of a row share a scale and a
// bias, and x = scale * code + bias in float32 (one product, one sum, each rounded). Codes of 4 or
// 8 bits fill little-endian uint32 words from the low bits up, so that byte i of a row holds
// elements 2 i (low nibble) and 2 i + 1, or element i. Scales and biases are planes of their own.

bool is_affine(FormatId format);
bool is_affine_group_size(int64_t group_size);  // 32, 64, 128

void decode_affine4_row(const RowPlanes& row, int64_t n, float* out);
void decode_affine8_row(const RowPlanes& row, int64_t n, float* out);

// Quantises a row: in each group the codes span its minimum and maximum. n is a multiple of
// group_size; bits 4 or 8; scale_format F32, F16 or BF16.
// x [n], codes [n * bits / 8] bytes, scales and biases [n / group_size] in scale_format.
void encode_affine(const float* x, int64_t n, int bits, int group_size, FormatId scale_format,
                   std::byte* codes, std::byte* scales, std::byte* biases);

}  // namespace ridge
