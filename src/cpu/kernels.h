#pragma once

#include <cstdint>

#include "cpu/attention_kernels.h"
#include "cpu/probe_kernels.h"
#include "cpu/row_kernels.h"

namespace ridge::cpu {

// The functions that are written once for each instruction set: what the drivers in cpu/*.cpp call
// on the pieces that threads take. Pointers and integers alone, so that the files in cpu/isa can
// include this without sharing an inline function with the rest of the program.

constexpr int kGroupRows = 16;       // weight rows that lie interleaved (interleaved_geometry.h)
constexpr int kBlock = 32;           // elements of an activation row that share a scale
constexpr int kDecodeStripRows = 8;  // activation rows of one call of a group kernel
constexpr int kF16Index = 1, kBF16Index = 2;  // in the tables of formats below
constexpr int kNumWeightFormats = 17;         // in the order of FormatId (format/format.h)

// The rows that a matmul reads, padded with zeros to a multiple of kPaddedBlock elements.
//   x[i] = scales[i / 32] * codes[i], codes -127 .. 127, scale = max |x| / 127 of the block. Sums
//   of codes serve offsets and mins: sum (c - offset) x = sum c x - offset * sum x.
constexpr int kPaddedBlock = 256;
constexpr int kStripRows = 4;  // prompts
struct Activations {
    // Decode rows lie in strips of kDecodeStripRows, so that all that a block of them has lies at
    // fixed distances, or alone where there is one; prompt rows in strips of kStripRows. S of them
    // in a strip:
    int64_t rows_in_strip;
    // float32, what matmuls on float weights read: element k of row r at
    //   decode  values[r / S * value_stride + k * S + r % S]
    //   prompt  values[r * value_stride + k]
    const float* values;
    int64_t value_stride;
    // int8 blocks, what matmuls on quantised weights read, block by block. Element k of row r at
    //   codes[r / S * code_stride + (k / 32 * S + r % S) * 32 + k % 32]
    // and what belongs to block b, or to the half h of it, at
    //   [r / S * block_stride + b * S + r % S]    [r / S * block_stride + (2 b + h) * S + r % S]
    const int8_t* codes;
    int64_t code_stride;
    const float* scales;
    const float* scaled_sums;       // scale * sum of the block's codes
    const int32_t* negated_sums;    // - sum of the block's codes
    const float* scaled_half_sums;  // the same of half blocks of 16
    const int32_t* negated_half_sums;
    int64_t block_stride;  // of each of these five
    // bf16, what is read where the machine multiplies it. Decode rows like codes, prompt rows in
    // tiles of 16 rows and 32 elements: element k of row r at
    //   decode  bf16[r / S * bf16_stride + (k / 32 * S + r % S) * 32 + k % 32]
    //   prompt  bf16[r / 16 * bf16_stride + k / 32 * 512 + r % 16 * 32 + k % 32]
    const uint16_t* bf16;
    int64_t bf16_stride;  // from one strip, or one tile's rows, to the next
};
// The same, to be written: one row. `step` is the number of rows in a strip: from one block of the
// row to its next.
struct QuantisedRow {
    int8_t* codes;  // [n_padded]
    float *scales, *scaled_sums, *scaled_half_sums;
    int32_t *negated_sums, *negated_half_sums;
    int64_t step;
};

// How a packed weight is laid out, as far as its format does not say it.
struct PackedShape {
    int64_t n_supers;  // super-blocks in a row
    int group_size;    // affine formats: elements that share a scale and a bias
    int scale_dtype;   // affine formats: 0 f32, 1 f16, 2 bf16
    // How far ahead of what is multiplied memory is asked for, in bytes.
    int64_t ahead_bytes;
};

// tile[r, j] = sum_k x[first_row + r, k] * w[j, k] for the 16 rows j of one group and n_rows of x.
// tile [n_rows, 16] f32; n_rows 1 .. kDecodeStripRows. The order over k is one for any n_rows.
using GroupKernel = void (*)(const uint8_t* group, const PackedShape& shape, const Activations& x,
                             int64_t first_row, int n_rows, float* tile);

// What a kernel rounds its operands to before it multiplies them.
enum class Operands : uint8_t {
    kF32,   // neither is rounded
    kInt8,  // activations to int8 blocks; the weights' codes are multiplied as they are
    kBF16,  // activations to bf16; weights too, where they are not
};

// Prompts: a slice along k of two groups (a panel of 32 weight rows), unpacked to what the unit
// multiplies, is held in the first cache and multiplied with all rows of the input.
constexpr int kPaddedRows = 32;  // input rows in bf16, and sums, are there in multiples of this
constexpr int kTileElements = 16 * 32;
constexpr int kPanelGroups = 2;
constexpr int kPanelRows = kPanelGroups * kGroupRows;
struct Panel {
    // Of each group, for the slice:
    //   kInt8  codes [k / 4][16][4], as the format's kernels multiply them; kF32 [k][16] f32;
    //   kBF16  [k / 2][16][2]. The NEON kernels have pairs of rows in place of single ones.
    const uint8_t* codes[kPanelGroups];
    const float* scales[kPanelGroups];  // kInt8: [blocks, or half blocks][16]
    const float* mins[kPanelGroups];    // the same, where the format has them
};
// Writes the slice of n_blocks blocks of 32 from first_block on; a multiple of the super-block's,
// from one of its starts on. codes, scales and mins are one group's of a Panel, 64-byte aligned.
using UnpackKernel = void (*)(const uint8_t* group, const PackedShape& shape, int64_t first_block,
                              int64_t n_blocks, uint8_t* codes, float* scales, float* mins);
// sums[i, j] += sum over the slice of x[i, k] * w[j, k] for all n_rows rows and the panel's 32 j.
// sums [n_rows, 32] f32. Each sum runs over k in order, whatever n_rows is.
using PanelKernel = void (*)(const Panel& panel, const Activations& x, int64_t first_block,
                             int64_t n_blocks, int64_t n_rows, float* sums);

// The same on tile registers. While a slice is multiplied the next one is unpacked, a piece of it
// between any two products, and the one behind that is fetched from memory.
struct TileSlice {
    // To be unpacked, from each group to `codes`; n_blocks 0: none.
    const uint8_t* groups[kPanelGroups];
    PackedShape shape;
    int64_t first_block, n_blocks;
    uint8_t* codes[kPanelGroups];
    // To be fetched: so many lines of 64 bytes of each group.
    const uint8_t* ahead[kPanelGroups];
    int64_t n_lines;
};
// Sums of strips of 32 input rows: four tiles [16 rows][16] each, rows 0 to 15 with both groups and
// then rows 16 to 31. The sums of a call's last strip stay in the registers until the next call.
constexpr int64_t kTileFloats = 256, kTileStripFloats = 5 * kTileFloats;
struct TileSums {
    float* sums;   // of the panel: [n_rows / 32][kTileStripFloats]
    bool are_new;  // they start from zero, with the panel's first slice
    float* held;   // where the sums in the registers belong; null: nowhere
};
// Of the format that is unpacked: what is multiplied is bf16 in any case.
using TileKernel = void (*)(const Panel& panel, const Activations& x, int64_t first_block,
                            int64_t n_blocks, int64_t n_rows, TileSums& sums,
                            const TileSlice& next);
struct TileControl {
    void (*begin)();              // on each thread, before the first call of a TileKernel
    void (*end)(TileSums& sums);  // after the last: stores what is held
};

struct GemmKernel {
    Operands operands;
    int slice_blocks;       // blocks of 32 along k in a slice: a multiple of 8
    int scales_per_block;   // kInt8: 1, or 2 where half blocks have their own
    UnpackKernel unpack;    // null: the packed group is already what is multiplied
    PanelKernel multiply;   // null: on tiles
    TileKernel tiles = {};  // null: by `multiply`
    // The sums of each row are those of the format's GroupKernel, bit for bit.
    bool sums_as_groups = false;
};

// The rows of a weight that go into a group, as files have them; and how they become a group
// (interleaved_geometry.h). Rows and super-blocks that are not there become zeros.
struct GroupRows {
    const uint8_t* plane[3][kGroupRows];  // format/tensor.h; the first of all but affine formats
    int n_rows;
    int64_t n_cols;
    int group_size, scale_dtype;  // as in PackedShape
};
using PackKernel = void (*)(const GroupRows& rows, uint8_t* out);

// Compact BF16 groups (interleaved_geometry.h), beside the plain ones.
struct CompactPlan {
    int64_t n_bytes;  // of the group
    uint32_t how;     // for `pack`
};
struct CompactKernels {
    // Than plain groups, on machines that this instruction set is for. On NEON it is assumed, and
    // not measured.
    bool faster;
    CompactPlan (*measure)(const GroupRows& rows);
    void (*pack)(const GroupRows& rows, const CompactPlan& plan, uint8_t* out);
    GroupKernel group;
    GemmKernel gemm;
};

struct Kernels {
    // x [n] to int8 blocks, zeros behind it up to n_padded; to out.codes + block * out.step * 32
    void (*quantise_row)(const float* x, int64_t n, int64_t n_padded, const QuantisedRow& out);
    RowKernels rows;
    AttentionKernels attention;
    int64_t ahead_bytes;  // for PackedShape, where nothing else was measured to be faster
    GroupKernel group[kNumWeightFormats];
    Operands group_operands[kNumWeightFormats];  // compact groups: those of BF16
    GemmKernel gemm[kNumWeightFormats];
    PackKernel pack[kNumWeightFormats];
    CompactKernels compact;
    TileControl tiles;
    // x [n] rounded to bf16, to nearest even, zeros from n up to n_padded: element k to
    // out[k / 32 * step + k % 32]
    void (*bf16_row)(const float* x, int64_t n, int64_t n_padded, int64_t step, uint16_t* out);
    ProbeKernels probes;
};

// Each puts the functions of its instruction set in place of those that are there: one translation
// unit in cpu/isa each. kernels_of_isa.cpp calls them in order.
void add_scalar_kernels(Kernels& kernels);
void add_avx2_kernels(Kernels& kernels);
void add_avx512_kernels(Kernels& kernels);
void add_avx512_bf16_kernels(Kernels& kernels);
void add_amx_kernels(Kernels& kernels);
void add_neon_kernels(Kernels& kernels);
void add_neon_bf16_kernels(Kernels& kernels);
void add_neon_i8mm_kernels(Kernels& kernels);
// AMX's in plain C++: for tests.
void add_scalar_tile_kernels(Kernels& kernels);

}  // namespace ridge::cpu
