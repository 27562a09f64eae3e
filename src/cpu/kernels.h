#pragma once

#include <cstdint>

namespace ridge::cpu {

// The functions that are written once for each instruction set: what the drivers in cpu/*.cpp call
// on the pieces that threads take. Pointers and integers alone, so that the files in cpu/isa can
// include this without sharing an inline function with the rest of the program.

constexpr int kGroupRows = 16;         // weight rows that lie interleaved (interleaved.h)
constexpr int kBlock = 32;             // elements of an activation row that share a scale
constexpr int kMaxTileRows = 8;        // activation rows of one call of a group kernel
constexpr int kNumWeightFormats = 17;  // in the order of FormatId (format/format.h)

// The rows that a matmul reads, padded with zeros to a multiple of kPaddedBlock elements.
//   x[i] = scales[i / 32] * codes[i], codes -127 .. 127, scale = max |x| / 127 of the block. Sums
//   of codes serve offsets and mins: sum (c - offset) x = sum c x - offset * sum x.
constexpr int kPaddedBlock = 256;
struct Activations {
    // float32, what matmuls on float weights read
    const float* values;  // [n_rows, value_stride]
    int64_t value_stride;
    // int8 blocks, what matmuls on quantised weights read
    const int8_t* codes;  // [n_rows, code_stride]
    int64_t code_stride;
    const float* scales;            // [n_rows, block_stride], a block of 32 each, as the next two
    const float* scaled_sums;       // scale * sum of the block's codes
    const int32_t* negated_sums;    // - sum of the block's codes
    const float* scaled_half_sums;  // the same of blocks of 16
    const int32_t* negated_half_sums;
    int64_t block_stride;  // from row to row of each of these five
};
// The same, to be written: one row.
struct QuantisedRow {
    int8_t* codes;  // [n_padded]
    float *scales, *scaled_sums, *scaled_half_sums;
    int32_t *negated_sums, *negated_half_sums;
};

// How a packed weight is laid out, as far as its format does not say it.
struct PackedShape {
    int64_t n_supers;  // super-blocks in a row
    int group_size;    // affine formats: elements that share a scale and a bias
    int scale_dtype;   // affine formats: 0 f32, 1 f16, 2 bf16
};

// tile[r, j] = sum_k x[first_row + r, k] * w[j, k] for the 16 rows j of one group and n_rows of x.
// tile [n_rows, 16] f32; n_rows 1 .. kMaxTileRows. The order over k is one for any n_rows.
using GroupKernel = void (*)(const uint8_t* group, const PackedShape& shape, const Activations& x,
                             int64_t first_row, int n_rows, float* tile);

struct Kernels {
    // x [n] to int8 blocks, zeros behind it up to n_padded
    void (*quantise_row)(const float* x, int64_t n, int64_t n_padded, const QuantisedRow& out);
    GroupKernel group[kNumWeightFormats];
};

// Each puts the functions of its instruction set in place of those that are there: one translation
// unit in cpu/isa each. kernels_of_isa.h calls them in order.
void add_scalar_kernels(Kernels& kernels);
void add_avx2_kernels(Kernels& kernels);
void add_avx512_kernels(Kernels& kernels);
void add_neon_kernels(Kernels& kernels);

}  // namespace ridge::cpu
