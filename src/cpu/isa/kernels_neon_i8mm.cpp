#include <arm_neon.h>

#include <cstdint>

#include "cpu/isa/gemm_kernels.h"
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

// A tile is eight weight rows and four rows of the input, in pairs. Sums lie as smmla has them:
// both input rows' of a pair's first weight row, then those of the second.
constexpr int kWeightPairs = 4, kInputPairs = 2, kInputRows = 2 * kInputPairs;

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
inline float32x4_t spread_input(const float* p, int64_t first, int64_t second) {
    const float32x4_t a = vdupq_n_f32(p[first]), b = vdupq_n_f32(p[second]);
    return vzip1q_f32(a, b);
}

// acc = acc + sum of one piece of a block (all of it, or a half) times its scales.
//   codes: of the piece, 128 bytes for each 8 elements; x: [row] the piece's codes
template <int kOffset, int kPiece>
inline void multiply_piece(const uint8_t* codes, const int8_t* const* x, const int32_t* negated,
                           const int64_t* at, const float32x4_t* weight_scale,
                           const float32x4_t* input_scale, float32x4_t (*acc)[kWeightPairs]) {
    int32x4_t sum[kInputPairs][kWeightPairs];
#pragma GCC unroll 2
    for (int i = 0; i < kInputPairs; i++) {
        const int32x4_t first = vdupq_n_s32(kOffset * negated[at[2 * i]]);
        const int32x4_t second = vdupq_n_s32(kOffset * negated[at[2 * i + 1]]);
        const int32x4_t both = kOffset == 0 ? vdupq_n_s32(0) : vzip1q_s32(first, second);
#pragma GCC unroll 4
        for (int w = 0; w < kWeightPairs; w++) sum[i][w] = both;
    }
#pragma GCC unroll 2
    for (int k = 0; k < kPiece; k += 16) {
        int8x16_t input[2][kInputPairs];  // eight codes of two rows, twice
#pragma GCC unroll 2
        for (int i = 0; i < kInputPairs; i++) {
            const int64x2_t first = vreinterpretq_s64_s8(vld1q_s8(x[2 * i] + k));
            const int64x2_t second = vreinterpretq_s64_s8(vld1q_s8(x[2 * i + 1] + k));
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
#pragma GCC unroll 2
    for (int i = 0; i < kInputPairs; i++) {
#pragma GCC unroll 4
        for (int w = 0; w < kWeightPairs; w++) {
            acc[i][w] = vfmaq_f32(acc[i][w], vcvtq_f32_s32(sum[i][w]),
                                  vmulq_f32(weight_scale[w], input_scale[i]));
        }
    }
}

template <class F>
inline void multiply_pairs_tile(const Panel& panel, int first_weight_row, const Activations& x,
                                int64_t first_block, int64_t n_blocks, const int64_t* rows,
                                float* sums) {
    using Scales = typename F::template Scales<NeonPairs>;
    constexpr int kOffset = F::kOffset - (F::Codes::kWide ? 128 : 0);
    constexpr int kPieces = Scales::kHalves ? 2 : 1, kPiece = 32 / kPieces;
    const int group = first_weight_row / kGroupRows, row_in_group = first_weight_row % kGroupRows;
    const uint8_t* codes = panel.codes[group] + 4 * row_in_group;
    const float* scales = panel.scales[group] + row_in_group;
    const float* mins = panel.mins[group] + row_in_group;

    float32x4_t acc[kInputPairs][kWeightPairs];
    float* to[kInputRows];
#pragma GCC unroll 4
    for (int r = 0; r < kInputRows; r++) to[r] = sums + rows[r] * kPanelRows + first_weight_row;
#pragma GCC unroll 2
    for (int i = 0; i < kInputPairs; i++) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const float32x4_t a = vld1q_f32(to[2 * i] + 4 * half);
            const float32x4_t b = vld1q_f32(to[2 * i + 1] + 4 * half);
            acc[i][2 * half] = vzip1q_f32(a, b);
            acc[i][2 * half + 1] = vzip2q_f32(a, b);
        }
    }
    for (int64_t b = 0; b < n_blocks; b++) {
        int64_t block[kInputRows], piece_at[kInputRows];
        float32x4_t input_scale[kInputPairs];
#pragma GCC unroll 4
        for (int r = 0; r < kInputRows; r++) block[r] = rows[r] * x.block_stride + first_block + b;
#pragma GCC unroll 2
        for (int i = 0; i < kInputPairs; i++) {
            input_scale[i] = spread_input(x.scales, block[2 * i], block[2 * i + 1]);
        }
#pragma GCC unroll 2
        for (int piece = 0; piece < kPieces; piece++) {
            const int8_t* input[kInputRows];
#pragma GCC unroll 4
            for (int r = 0; r < kInputRows; r++) {
                input[r] =
                    x.codes + rows[r] * x.code_stride + 32 * (first_block + b) + kPiece * piece;
                piece_at[r] = rows[r] * x.block_stride + kPieces * (first_block + b) + piece;
            }
            float32x4_t weight[kWeightPairs];
            spread_weights(scales + 16 * (kPieces * b + piece), weight);
            multiply_piece<kOffset, kPiece>(codes + 64 * 8 * b + 16 * kPiece * piece, input,
                                            Scales::kHalves ? x.negated_half_sums : x.negated_sums,
                                            piece_at, weight, input_scale, acc);
            if constexpr (Scales::kMins) {
                spread_weights(mins + 16 * (kPieces * b + piece), weight);
#pragma GCC unroll 2
                for (int i = 0; i < kInputPairs; i++) {
                    const float32x4_t sum =
                        spread_input(Scales::kHalves ? x.scaled_half_sums : x.scaled_sums,
                                     piece_at[2 * i], piece_at[2 * i + 1]);
#pragma GCC unroll 4
                    for (int w = 0; w < kWeightPairs; w++) {
                        acc[i][w] = vfmaq_f32(acc[i][w], weight[w], sum);
                    }
                }
            }
        }
    }
#pragma GCC unroll 2
    for (int i = 0; i < kInputPairs; i++) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const float32x4_t a = acc[i][2 * half], b = acc[i][2 * half + 1];
            vst1q_f32(to[2 * i] + 4 * half, vuzp1q_f32(a, b));
            vst1q_f32(to[2 * i + 1] + 4 * half, vuzp2q_f32(a, b));
        }
    }
}

template <class F>
void multiply_pairs(const Panel& panel, const Activations& x, int64_t first_block, int64_t n_blocks,
                    int64_t n_rows, float* sums) {
    for (int64_t row = 0; row < n_rows; row += kInputRows) {
        // What is behind the last row is that row again: the same sums, stored once more.
        int64_t rows[kInputRows];
        for (int r = 0; r < kInputRows; r++) rows[r] = row + r < n_rows ? row + r : n_rows - 1;
        for (int w = 0; w < kPanelRows; w += 2 * kWeightPairs) {
            multiply_pairs_tile<F>(panel, w, x, first_block, n_blocks, rows, sums);
        }
    }
}

template <class F>
constexpr GemmKernel pairs_gemm() {
    return {Operands::kInt8, kCodeSliceBlocks, F::template Scales<NeonPairs>::kHalves ? 2 : 1,
            unpack_codes<NeonPairs, F>, multiply_pairs<F>};
}

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
}

}  // namespace ridge::cpu
