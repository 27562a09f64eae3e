#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/isa/group_kernels.h"
#include "cpu/kernels.h"

// Matrix products for prompts, over the same vector types as group_kernels.h: panels of 32 weight
// rows, unpacked once and then multiplied with every row of the input. A tile of kRegs registers of
// weight rows and kTile rows of the input stays in registers over the whole slice.

namespace ridge::cpu {
namespace {

// --- quantised weights: unpack to one byte a code, and float scales ---

// Whether V has its codes stored in an order of their own.
template <class V>
constexpr bool kPairsCodes = requires(typename V::Int* c) {
    V::pair_codes(c);
};

template <class V, class F>
void unpack_codes(const uint8_t* group, const PackedShape& shape, int64_t first_block,
                  int64_t n_blocks, uint8_t* codes, float* scales_out, float* mins_out) {
    using Int = typename V::Int;
    using Scales = typename F::template Scales<V>;
    constexpr int kPerBlock = Scales::kHalves ? 2 : 1;
    const int64_t scale_bytes = F::scale_bytes(shape);
    const int64_t super_bytes = scale_bytes + F::kBlocks * F::kCodeBytes;
    group += first_block / F::kBlocks * super_bytes;
    for (int64_t s = 0; s < n_blocks / F::kBlocks; s++, group += super_bytes) {
        for (int row = 0; row < kGroupRows; row += V::kRows) {
            const Scales scales(group, shape, row);
            for (int b = 0; b < F::kBlocks; b++) {
                const uint8_t* block = group + scale_bytes + b * F::kCodeBytes + 4 * row;
                for (int i = 0; i < 4; i++) V::prefetch(block + V::kPrefetchBytes + 64 * i);
                const int64_t at = s * F::kBlocks + b;
                Int c[8];
                F::Codes::template load<V>(block, c);
                if constexpr (kPairsCodes<V>) V::pair_codes(c);
                for (int j = 0; j < 8; j++) {
                    V::store_bytes(codes + 64 * (8 * at + j) + 4 * row, c[j]);
                }
                float* to = scales_out + 16 * kPerBlock * at + row;
                float* mins = mins_out + 16 * kPerBlock * at + row;
                if constexpr (!Scales::kHalves) {
                    V::store(to, scales.scale(b));
                    if constexpr (Scales::kMins) V::store(mins, scales.min(b));
                } else {
                    for (int h = 0; h < 2; h++) {
                        V::store(to + 16 * h, scales.scale(b, h));
                        if constexpr (Scales::kMins) V::store(mins + 16 * h, scales.min(b, h));
                    }
                }
            }
        }
    }
}

// One tile: a strip of input rows times kRegs registers of weight rows. All that a block of the
// strip has lies at fixed distances.
template <class V, class F, int kRegs>
inline void multiply_codes_tile(const Panel& panel, int first_weight_row, const Activations& x,
                                int64_t first_block, int64_t n_blocks, int64_t row, float* sums) {
    using Int = typename V::Int;
    using Float = typename V::Float;
    using Scales = typename F::template Scales<V>;
    constexpr bool kWide = F::Codes::kWide;
    constexpr int kOffset = F::kOffset - (kWide && !V::kUnsignedWide ? 128 : 0);
    constexpr int kHalves = Scales::kHalves ? 2 : 1, kSteps = 8 / kHalves;
    const uint8_t* codes[kRegs];
    const float *scales[kRegs], *mins[kRegs];
#pragma GCC unroll 8
    for (int g = 0; g < kRegs; g++) {
        const int at = first_weight_row + g * V::kRows;
        codes[g] = panel.codes[at / kGroupRows] + at % kGroupRows * 4;
        scales[g] = panel.scales[at / kGroupRows] + at % kGroupRows;
        mins[g] = panel.mins[at / kGroupRows] + at % kGroupRows;
    }
    float* to = sums + row * kPanelRows + first_weight_row;
    Float acc[kStripRows][kRegs];
#pragma GCC unroll 8
    for (int t = 0; t < kStripRows; t++) {
#pragma GCC unroll 8
        for (int g = 0; g < kRegs; g++) {
            acc[t][g] = V::load_floats(to + t * kPanelRows + g * V::kRows);
        }
    }
    const int64_t strip = row / kStripRows * x.block_stride;
    const int8_t* xc = x.codes + row / kStripRows * x.code_stride;
    for (int64_t b = 0; b < n_blocks; b++) {
        const int64_t block = kStripRows * (first_block + b);
        const int8_t* xb = xc + 32 * block;
        const float* x_scales = x.scales + strip + block;
        const int32_t* negated = Scales::kHalves ? x.negated_half_sums + strip + 2 * block
                                                 : x.negated_sums + strip + block;
        const float* scaled = Scales::kHalves ? x.scaled_half_sums + strip + 2 * block
                                              : x.scaled_sums + strip + block;
        Int c[kRegs][8];
#pragma GCC unroll 8
        for (int g = 0; g < kRegs; g++) {
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) c[g][j] = V::load(codes[g] + 64 * (8 * b + j));
        }
#pragma GCC unroll 8
        for (int t = 0; t < kStripRows; t++) {
            Int sum[kRegs][kHalves];
#pragma GCC unroll 2
            for (int h = 0; h < kHalves; h++) {
                const Int first = start<V, kOffset>(negated + kStripRows * h + t);
#pragma GCC unroll 8
                for (int g = 0; g < kRegs; g++) sum[g][h] = first;
                if constexpr (kHasCodeLanes<V>) {
#pragma GCC unroll 8
                    for (int g = 0; g < kRegs; g++) {
                        sum[g][h] = dots<V, kWide, kSteps>(first, c[g] + kSteps * h,
                                                           xb + 32 * t + 4 * kSteps * h);
                    }
                } else {
#pragma GCC unroll 8
                    for (int j = kSteps * h; j < kSteps * (h + 1); j++) {
#pragma GCC unroll 8
                        for (int g = 0; g < kRegs; g++) {
                            sum[g][h] = dot<V, kWide>(sum[g][h], c[g][j], xb + 32 * t + 4 * j);
                        }
                    }
                }
            }
            const Float x_scale = V::broadcast(x_scales + t);
#pragma GCC unroll 8
            for (int g = 0; g < kRegs; g++) {
                const float* scale = scales[g] + 16 * kHalves * b;
                if constexpr (Scales::kHalves) {
                    const Float both =
                        V::fma(V::to_float(sum[g][1]), V::load_floats(scale + 16),
                               V::mul(V::to_float(sum[g][0]), V::load_floats(scale)));
                    acc[t][g] = V::fma(both, x_scale, acc[t][g]);
                } else {
                    acc[t][g] = V::fma(V::to_float(sum[g][0]),
                                       V::mul(V::load_floats(scale), x_scale), acc[t][g]);
                }
                if constexpr (Scales::kMins) {
#pragma GCC unroll 2
                    for (int h = 0; h < kHalves; h++) {
                        acc[t][g] = V::fma(V::load_floats(mins[g] + 16 * (kHalves * b + h)),
                                           V::broadcast(scaled + kStripRows * h + t), acc[t][g]);
                    }
                }
            }
        }
    }
#pragma GCC unroll 8
    for (int t = 0; t < kStripRows; t++) {
#pragma GCC unroll 8
        for (int g = 0; g < kRegs; g++) {
            V::store(to + t * kPanelRows + g * V::kRows, acc[t][g]);
        }
    }
}

// Input and sums are there in whole strips: what comes of the rows behind n_rows is nobody's.
template <class V, class F>
void multiply_codes(const Panel& panel, const Activations& x, int64_t first_block, int64_t n_blocks,
                    int64_t n_rows, float* sums) {
    constexpr int kRegs = V::kGemmRegs;
    for (int w = 0; w < kPanelRows; w += kRegs * V::kRows) {
        for (int64_t row = 0; row < n_rows; row += kStripRows) {
            multiply_codes_tile<V, F, kRegs>(panel, w, x, first_block, n_blocks, row, sums);
        }
    }
}

// --- float weights ---

template <class V, class F>
void unpack_floats(const uint8_t* group, const PackedShape&, int64_t first_block, int64_t n_blocks,
                   uint8_t* codes, float*, float*) {
    group += first_block * F::kGeometry.code_bytes;
    auto* out = reinterpret_cast<float*>(codes);
    for (int64_t b = 0; b < n_blocks; b++, group += F::kGeometry.code_bytes) {
        for (int pair = 0; pair < 16; pair++) {
            for (int row = 0; row < kGroupRows; row += V::kRows) {
                typename V::Float w[2];
                F::template load<V>(group, pair, row, w);
                V::store(out + 16 * (32 * b + 2 * pair) + row, w[0]);
                V::store(out + 16 * (32 * b + 2 * pair + 1) + row, w[1]);
            }
        }
    }
}

template <class V, int kRegs, int kTile>
inline void multiply_floats_tile(const Panel& panel, int first_weight_row, const Activations& x,
                                 int64_t first_block, int64_t n_blocks, int64_t row, float* sums) {
    using Float = typename V::Float;
    const float* w[kRegs];
#pragma GCC unroll 8
    for (int g = 0; g < kRegs; g++) {
        const int at = first_weight_row + g * V::kRows;
        w[g] = reinterpret_cast<const float*>(panel.codes[at / kGroupRows]) + at % kGroupRows;
    }
    Float acc[kTile][kRegs];
#pragma GCC unroll 16
    for (int t = 0; t < kTile; t++) {
#pragma GCC unroll 8
        for (int g = 0; g < kRegs; g++) {
            acc[t][g] =
                V::load_floats(sums + (row + t) * kPanelRows + first_weight_row + g * V::kRows);
        }
    }
    const float* values = x.values + row * x.value_stride + 32 * first_block;
    for (int64_t k = 0; k < 32 * n_blocks; k++) {
        Float v[kRegs];
#pragma GCC unroll 8
        for (int g = 0; g < kRegs; g++) v[g] = V::load_floats(w[g] + 16 * k);
#pragma GCC unroll 16
        for (int t = 0; t < kTile; t++) {
            const Float xv = V::broadcast(values + t * x.value_stride + k);
#pragma GCC unroll 8
            for (int g = 0; g < kRegs; g++) acc[t][g] = V::fma(v[g], xv, acc[t][g]);
        }
    }
#pragma GCC unroll 16
    for (int t = 0; t < kTile; t++) {
#pragma GCC unroll 8
        for (int g = 0; g < kRegs; g++) {
            V::store(sums + (row + t) * kPanelRows + first_weight_row + g * V::kRows, acc[t][g]);
        }
    }
}

template <class V>
void multiply_floats(const Panel& panel, const Activations& x, int64_t first_block,
                     int64_t n_blocks, int64_t n_rows, float* sums) {
    constexpr int kRegs = V::kGemmFloatRegs, kTile = V::kGemmFloatTile;
    for (int w = 0; w < kPanelRows; w += kRegs * V::kRows) {
        int64_t row = 0;
        for (; row + kTile <= n_rows; row += kTile) {
            multiply_floats_tile<V, kRegs, kTile>(panel, w, x, first_block, n_blocks, row, sums);
        }
        for (; row < n_rows; row++) {
            multiply_floats_tile<V, kRegs, 1>(panel, w, x, first_block, n_blocks, row, sums);
        }
    }
}

// Slices that leave room in the first cache: 16 KiB of codes, 32 KiB of floats, 16 KiB of bf16.
// Multiples of every super-block.
constexpr int kCodeSliceBlocks = 16, kFloatSliceBlocks = 8, kBf16SliceBlocks = 8;

template <class V, class F>
constexpr GemmKernel codes_gemm() {
    return {Operands::kInt8,
            kCodeSliceBlocks,
            F::template Scales<V>::kHalves ? 2 : 1,
            unpack_codes<V, F>,
            multiply_codes<V, F>,
            {},
            true};
}
template <class V, class F>
constexpr GemmKernel floats_gemm() {
    return {Operands::kF32, kFloatSliceBlocks, 0, unpack_floats<V, F>, multiply_floats<V>};
}

// In the order of FormatId.
template <class V>
void fill_gemm_kernels(GemmKernel* table) {
    const GemmKernel kernels[kNumWeightFormats] = {
        floats_gemm<V, FloatF32>(),     floats_gemm<V, FloatF16>(),
        floats_gemm<V, FloatBF16>(),    codes_gemm<V, FormatQ4_0>(),
        codes_gemm<V, FormatQ4_1>(),    codes_gemm<V, FormatQ5_0>(),
        codes_gemm<V, FormatQ5_1>(),    codes_gemm<V, FormatQ8_0>(),
        codes_gemm<V, FormatQ2_K>(),    codes_gemm<V, FormatQ3_K>(),
        codes_gemm<V, FormatQ4_K>(),    codes_gemm<V, FormatQ5_K>(),
        codes_gemm<V, FormatQ6_K>(),    codes_gemm<V, FormatIQ4_NL>(),
        codes_gemm<V, FormatIQ4_XS>(),  codes_gemm<V, FormatAffine4>(),
        codes_gemm<V, FormatAffine8>(),
    };
    for (int i = 0; i < kNumWeightFormats; i++) table[i] = kernels[i];
}

}  // namespace
}  // namespace ridge::cpu
