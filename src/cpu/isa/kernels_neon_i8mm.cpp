#include <arm_neon.h>

#include <cstdint>

#include "cpu/isa/gemm_kernels.h"
#include "cpu/isa/probes.h"
#include "cpu/isa/vector_neon.h"

// Prompts on quantised weights with smmla: the products of two rows of eight codes with two others,
// 32 products an instruction where sdot has 16.

namespace ridge::cpu {
namespace {

// A register of codes holds eight of each of two rows.
struct NeonPairs : Neon8 {
    // Of codes 4 j .. 4 j + 3 and 4 j + 4 .. 4 j + 7 of rows: all eight of the first two rows of
    // each register, and then of the other two.
    static void pair_codes(Int* c) {
#pragma GCC unroll 4
        for (int j = 0; j < 8; j += 2) {
            const Int a = c[j], b = c[j + 1];
            c[j] = {zip<false>(a.low, b.low), zip<false>(a.high, b.high)};
            c[j + 1] = {zip<true>(a.low, b.low), zip<true>(a.high, b.high)};
        }
    }

  private:
    template <bool high>
    static uint8x16_t zip(uint8x16_t a, uint8x16_t b) {
        const uint32x4_t x = vreinterpretq_u32_u8(a), y = vreinterpretq_u32_u8(b);
        return vreinterpretq_u8_u32(high ? vzip2q_u32(x, y) : vzip1q_u32(x, y));
    }
};

// A tile is eight weight rows and a strip of the input, in pairs. Sums lie as smmla has them: both
// input rows' of a pair's first weight row, then those of the second.
constexpr int kWeightPairs = 4, kInputPairs = kStripRows / 2;

// What belongs to weight rows, once for each of two input rows.
inline void spread_weights(const float* p, float32x4_t* out) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        const float32x4_t four = vld1q_f32(p + 4 * half);
        out[2 * half] = vzip1q_f32(four, four);
        out[2 * half + 1] = vzip2q_f32(four, four);
    }
}
// What belongs to two input rows, once for each of two weight rows.
inline float32x4_t spread_input(const float* p) {
    const float32x2_t two = vld1_f32(p);
    return vcombine_f32(two, two);
}
inline int32x4_t spread_input(const int32_t* p) {
    const int32x2_t two = vld1_s32(p);
    return vcombine_s32(two, two);
}

// Dot products of one piece of a block: all of it, or a half.
//   codes: the piece's, 128 bytes for each 8 elements; x: the first row's, rows are 32 apart
template <int kOffset, int kPiece>
inline void multiply_piece(const uint8_t* codes, const int8_t* x, const int32_t* negated,
                           int32x4_t (*sum)[kWeightPairs]) {
#pragma GCC unroll 2
    for (int i = 0; i < kInputPairs; i++) {
        const int32x4_t first =
            kOffset == 0 ? vdupq_n_s32(0) : vmulq_n_s32(spread_input(negated + 2 * i), kOffset);
#pragma GCC unroll 4
        for (int w = 0; w < kWeightPairs; w++) sum[i][w] = first;
    }
#pragma GCC unroll 2
    for (int k = 0; k < kPiece; k += 16) {
        int8x16_t input[2][kInputPairs];  // eight codes of two rows, twice
#pragma GCC unroll 2
        for (int i = 0; i < kInputPairs; i++) {
            const int64x2_t first = vreinterpretq_s64_s8(vld1q_s8(x + 64 * i + k));
            const int64x2_t second = vreinterpretq_s64_s8(vld1q_s8(x + 64 * i + 32 + k));
            input[0][i] = vreinterpretq_s8_s64(vzip1q_s64(first, second));
            input[1][i] = vreinterpretq_s8_s64(vzip2q_s64(first, second));
        }
#pragma GCC unroll 2
        for (int eight = 0; eight < 2; eight++) {
            // Weight rows 0, 1 and 4, 5 lie in the first of two vectors, 2, 3 and 6, 7 in the next.
#pragma GCC unroll 4
            for (int w = 0; w < kWeightPairs; w++) {
                const uint8_t* p = codes + 16 * (k + 8 * eight) + 64 * (w % 2) + 16 * (w / 2);
                const int8x16_t weights = vreinterpretq_s8_u8(vld1q_u8(p));
#pragma GCC unroll 2
                for (int i = 0; i < kInputPairs; i++) {
                    sum[i][w] = vmmlaq_s32(sum[i][w], weights, input[eight][i]);
                }
            }
        }
    }
}

template <class F>
inline void multiply_pairs_tile(const Panel& panel, int first_weight_row, const Activations& x,
                                int64_t first_block, int64_t n_blocks, int64_t row, float* sums) {
    using Scales = typename F::template Scales<NeonPairs>;
    constexpr int kOffset = F::kOffset - (F::Codes::kWide ? 128 : 0);
    constexpr int kPieces = Scales::kHalves ? 2 : 1, kPiece = 32 / kPieces;
    const int group = first_weight_row / kGroupRows, row_in_group = first_weight_row % kGroupRows;
    const uint8_t* codes = panel.codes[group] + 4 * row_in_group;
    const float* scales = panel.scales[group] + row_in_group;
    const float* mins = panel.mins[group] + row_in_group;
    float* to = sums + row * kPanelRows + first_weight_row;

    float32x4_t acc[kInputPairs][kWeightPairs];
#pragma GCC unroll 4
    for (int at = 0; at < 4; at++) {
        const float* from = to + at / 2 * 2 * kPanelRows + at % 2 * 4;
        const float32x4_t a = vld1q_f32(from), b = vld1q_f32(from + kPanelRows);
        acc[at / 2][at % 2 * 2] = vzip1q_f32(a, b);
        acc[at / 2][at % 2 * 2 + 1] = vzip2q_f32(a, b);
    }
    const int64_t strip = row / kStripRows * x.block_stride;
    const int8_t* strip_codes = x.codes + row / kStripRows * x.code_stride;
    for (int64_t b = 0; b < n_blocks; b++) {
        const int64_t block = kStripRows * (first_block + b);
        const int64_t piece_at = strip + kPieces * block;
        const int32_t* negated =
            (Scales::kHalves ? x.negated_half_sums : x.negated_sums) + piece_at;
        const float* scaled = (Scales::kHalves ? x.scaled_half_sums : x.scaled_sums) + piece_at;
#pragma GCC unroll 2
        for (int piece = 0; piece < kPieces; piece++) {
            int32x4_t sum[kInputPairs][kWeightPairs];
            multiply_piece<kOffset, kPiece>(codes + 512 * b + 16 * kPiece * piece,
                                            strip_codes + 32 * block + kPiece * piece,
                                            negated + kStripRows * piece, sum);
            float32x4_t scale[kWeightPairs], min[kWeightPairs];
            spread_weights(scales + 16 * (kPieces * b + piece), scale);
            if constexpr (Scales::kMins) spread_weights(mins + 16 * (kPieces * b + piece), min);
#pragma GCC unroll 2
            for (int i = 0; i < kInputPairs; i++) {
                const float32x4_t x_scale = spread_input(x.scales + strip + block + 2 * i);
#pragma GCC unroll 4
                for (int w = 0; w < kWeightPairs; w++) {
                    acc[i][w] = vfmaq_f32(acc[i][w], vcvtq_f32_s32(sum[i][w]),
                                          vmulq_f32(scale[w], x_scale));
                }
                if constexpr (Scales::kMins) {
                    const float32x4_t x_sum = spread_input(scaled + kStripRows * piece + 2 * i);
#pragma GCC unroll 4
                    for (int w = 0; w < kWeightPairs; w++) {
                        acc[i][w] = vfmaq_f32(acc[i][w], min[w], x_sum);
                    }
                }
            }
        }
    }
#pragma GCC unroll 4
    for (int at = 0; at < 4; at++) {
        float* out = to + at / 2 * 2 * kPanelRows + at % 2 * 4;
        const float32x4_t a = acc[at / 2][at % 2 * 2], b = acc[at / 2][at % 2 * 2 + 1];
        vst1q_f32(out, vuzp1q_f32(a, b));
        vst1q_f32(out + kPanelRows, vuzp2q_f32(a, b));
    }
}

// Input and sums are there in whole strips.
template <class F>
void multiply_pairs(const Panel& panel, const Activations& x, int64_t first_block, int64_t n_blocks,
                    int64_t n_rows, float* sums) {
    for (int w = 0; w < kPanelRows; w += 2 * kWeightPairs) {
        for (int64_t row = 0; row < n_rows; row += kStripRows) {
            multiply_pairs_tile<F>(panel, w, x, first_block, n_blocks, row, sums);
        }
    }
}

template <class F>
constexpr GemmKernel pairs_gemm() {
    return {Operands::kInt8, kCodeSliceBlocks, F::template Scales<NeonPairs>::kHalves ? 2 : 1,
            unpack_codes<NeonPairs, F>, multiply_pairs<F>};
}

struct MatrixProduct {
    using Sum = int32x4_t;
    static constexpr int kSums = 24;
    static constexpr int64_t kOps = 2 * 32;
    static Sum load_sum(const uint8_t* p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
    static int8x16_t load(const uint8_t* p) { return vreinterpretq_s8_u8(vld1q_u8(p)); }
    static Sum multiply(Sum sum, int8x16_t a, int8x16_t b) { return vmmlaq_s32(sum, a, b); }
};

}  // namespace

// In the order of FormatId, behind the three of floats.
void add_neon_i8mm_kernels(Kernels& kernels) {
    constexpr int kFloatFormats = 3;
    const GemmKernel pairs[kNumWeightFormats - kFloatFormats] = {
        pairs_gemm<FormatQ4_0>(),    pairs_gemm<FormatQ4_1>(),    pairs_gemm<FormatQ5_0>(),
        pairs_gemm<FormatQ5_1>(),    pairs_gemm<FormatQ8_0>(),    pairs_gemm<FormatQ2_K>(),
        pairs_gemm<FormatQ3_K>(),    pairs_gemm<FormatQ4_K>(),    pairs_gemm<FormatQ5_K>(),
        pairs_gemm<FormatQ6_K>(),    pairs_gemm<FormatIQ4_NL>(),  pairs_gemm<FormatIQ4_XS>(),
        pairs_gemm<FormatAffine4>(), pairs_gemm<FormatAffine8>(),
    };
    for (int i = kFloatFormats; i < kNumWeightFormats; i++) {
        kernels.gemm[i] = pairs[i - kFloatFormats];
    }
    kernels.probes.arithmetic[kInt8Matrix] = arithmetic_probe<MatrixProduct>("smmla");
}

}  // namespace ridge::cpu
