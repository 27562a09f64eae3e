#include <arm_neon.h>

#include <cstdint>

#include "cpu/isa/compact_kernels.h"
#include "cpu/isa/probes.h"
#include "cpu/isa/prompt_attention.h"
#include "cpu/isa/vector_neon_bf16.h"

// Prompts on float weights with bfmmla: the products of two rows of four bf16 with two others, 16
// products an instruction where fmla has four.

namespace ridge::cpu {
namespace {

// A slice of a group as bfmmla reads it: [k / 4][8 pairs of rows][2][4] bf16. Of four rows `low`
// has elements 4 i and 4 i + 1 of each, `high` the next two.
inline void store_row_pairs(uint8_t* out, uint16x8_t low, uint16x8_t high) {
    const uint32x4_t a = vreinterpretq_u32_u16(low), b = vreinterpretq_u32_u16(high);
    vst1q_u8(out, vreinterpretq_u8_u32(vzip1q_u32(a, b)));
    vst1q_u8(out + 16, vreinterpretq_u8_u32(vzip2q_u32(a, b)));
}

// Elements 2 pair and 2 pair + 1 of the four rows from first_row on.
inline uint16x8_t load_bf16(const uint8_t* group, int64_t pair, int first_row) {
    return vreinterpretq_u16_u8(vld1q_u8(group + 64 * pair + 4 * first_row));
}
inline uint16x4_t rounded(Neon4::Float v) {
    return vreinterpret_u16_bf16(vcvt_bf16_f32(v));
}
inline uint16x8_t load_f16(const uint8_t* group, int64_t pair, int first_row) {
    Neon4::Float w[2];
    FloatF16::load<Neon4>(group, static_cast<int>(pair), first_row, w);
    const uint16x4_t even = rounded(w[0]), odd = rounded(w[1]);
    return vcombine_u16(vzip1_u16(even, odd), vzip2_u16(even, odd));
}

template <uint16x8_t (*load)(const uint8_t*, int64_t, int)>
void unpack_row_pairs(const uint8_t* group, const PackedShape&, int64_t first_block,
                      int64_t n_blocks, uint8_t* codes, float*, float*) {
    group += first_block * kGeometryBF16.code_bytes;  // F16 has as many
    for (int64_t pair = 0; pair < 16 * n_blocks; pair += 2) {
        for (int row = 0; row < kGroupRows; row += 4) {
            store_row_pairs(codes + 64 * pair + 8 * row, load(group, pair, row),
                            load(group, pair + 1, row));
        }
    }
}

void unpack_compact_row_pairs(const uint8_t* group, const PackedShape& shape, int64_t first_block,
                              int64_t n_blocks, uint8_t* codes, float* scales, float* mins) {
    for_each_plain<Neon8>(
        group, shape, first_block, n_blocks, [&](int64_t b, const uint8_t* plain) {
            unpack_row_pairs<load_bf16>(plain, shape, 0, 1, codes + 1024 * b, scales, mins);
        });
}

// Four elements along k of two rows of the input, one half of what each row's eight are.
inline bfloat16x8_t halves_of(uint16x8_t a, uint16x8_t b, bool high) {
    const uint64x2_t wide_a = vreinterpretq_u64_u16(a), wide_b = vreinterpretq_u64_u16(b);
    return vreinterpretq_bf16_u64(high ? vzip2q_u64(wide_a, wide_b) : vzip1q_u64(wide_a, wide_b));
}

// Sums of a pair of weight rows and a pair of input rows lie as bfmmla has them: both input rows'
// of the first weight row, then those of the second.
constexpr int kRowPairs = kGroupRows / 2;

inline void load_sums(const float* first, const float* second, float32x4_t* acc) {
#pragma GCC unroll 4
    for (int four = 0; four < kGroupRows / 4; four++) {
        const float32x4_t a = vld1q_f32(first + 4 * four), b = vld1q_f32(second + 4 * four);
        acc[2 * four] = vzip1q_f32(a, b);
        acc[2 * four + 1] = vzip2q_f32(a, b);
    }
}
inline void store_sums(const float32x4_t* acc, float* first, float* second) {
#pragma GCC unroll 4
    for (int four = 0; four < kGroupRows / 4; four++) {
        vst1q_f32(first + 4 * four, vuzp1q_f32(acc[2 * four], acc[2 * four + 1]));
        vst1q_f32(second + 4 * four, vuzp2q_f32(acc[2 * four], acc[2 * four + 1]));
    }
}

// One group times four rows of the input, of which x [32 n_blocks] is the first in its row of
// tiles. Rows of x and of sums are there in multiples of kPaddedRows.
inline void multiply_four_rows(const uint8_t* codes, const uint16_t* x, int64_t n_blocks,
                               float* sums) {
    float32x4_t acc[2][kRowPairs];
    load_sums(sums, sums + kPanelRows, acc[0]);
    load_sums(sums + 2 * kPanelRows, sums + 3 * kPanelRows, acc[1]);
    for (int64_t eight = 0; eight < 4 * n_blocks; eight++) {
        const uint16_t* at = x + eight / 4 * kTileElements + eight % 4 * 8;
        uint16x8_t row[4];
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) row[r] = vld1q_u16(at + 32 * r);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++, codes += 16 * kRowPairs) {
            const bfloat16x8_t first = halves_of(row[0], row[1], half != 0);
            const bfloat16x8_t second = halves_of(row[2], row[3], half != 0);
#pragma GCC unroll 8
            for (int p = 0; p < kRowPairs; p++) {
                const auto w = vreinterpretq_bf16_u8(vld1q_u8(codes + 16 * p));
                acc[0][p] = vbfmmlaq_f32(acc[0][p], w, first);
                acc[1][p] = vbfmmlaq_f32(acc[1][p], w, second);
            }
        }
    }
    store_sums(acc[0], sums, sums + kPanelRows);
    store_sums(acc[1], sums + 2 * kPanelRows, sums + 3 * kPanelRows);
}

void multiply_bf16(const Panel& panel, const Activations& x, int64_t first_block, int64_t n_blocks,
                   int64_t n_rows, float* sums) {
    for (int64_t row = 0; row < n_rows; row += 4) {
        const uint16_t* bf16 =
            x.bf16 + row / 16 * x.bf16_stride + first_block * kTileElements + row % 16 * 32;
        for (int g = 0; g < kPanelGroups; g++) {
            multiply_four_rows(panel.codes[g], bf16, n_blocks,
                               sums + row * kPanelRows + g * kGroupRows);
        }
    }
}

struct MatrixProduct {
    using Sum = float32x4_t;
    static constexpr int kSums = 24;
    static constexpr int64_t kOps = 2 * 16;
    static Sum load_sum(const uint8_t* p) { return Neon4::load_f32(p); }
    static bfloat16x8_t load(const uint8_t* p) { return vreinterpretq_bf16_u8(vld1q_u8(p)); }
    static Sum multiply(Sum sum, bfloat16x8_t a, bfloat16x8_t b) { return vbfmmlaq_f32(sum, a, b); }
};

}  // namespace

// F32 weights and caches keep their float32 products.
void add_neon_bf16_kernels(Kernels& kernels) {
    kernels.gemm[kF16Index] = {Operands::kBF16, kBf16SliceBlocks, 0, unpack_row_pairs<load_f16>,
                               multiply_bf16};
    kernels.gemm[kBF16Index] = {Operands::kBF16, kBf16SliceBlocks, 0, unpack_row_pairs<load_bf16>,
                                multiply_bf16};
    kernels.compact.gemm = {Operands::kBF16, kBf16SliceBlocks, 0, unpack_compact_row_pairs,
                            multiply_bf16};
    kernels.attention.prompt_bf16 = bf16_prompt_unit<Neon4Bf16>();
    kernels.probes.arithmetic[kBf16Dot] = arithmetic_probe<Bf16Product<Neon4Bf16, 24>>("bfdot");
    kernels.probes.arithmetic[kBf16Matrix] = arithmetic_probe<MatrixProduct>("bfmmla");
}

}  // namespace ridge::cpu
