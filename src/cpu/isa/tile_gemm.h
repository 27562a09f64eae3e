#pragma once

#include <cstdint>

#include "cpu/isa/compact_kernels.h"
#include "cpu/isa/gemm_kernels.h"

// Prompts on tiles of bf16, written once over a type T of tile registers (tiles_amx.h, and
// tiles_scalar.h, which does the same in plain C++ and lets every machine test this) and a vector
// type V.
//
// A tile holds 16 rows of 64 bytes. C [16 input rows][16 weight rows] f32 += A [16 input rows][32
// k] bf16 times B [16 pairs along k][16 weight rows][2] bf16: B is a block of a packed BF16 group
// as it lies, and what the other formats are unpacked to. Four C's share each load of two A's and
// two B's. Blocks of int8 have scales of their own every 32 elements, which is half a tile's
// length: taking sums out of the tiles that often costs more than bf16's products.

namespace ridge::cpu {
namespace {

// The elements of a slice as bf16 pairs: bit for bit what format/decode.h gives, rounded once more.
// Offsets are powers of two, so that one fused product and sum is exact up to its own rounding.
template <class V, class F>
void unpack_bf16(const uint8_t* group, const PackedShape& shape, int64_t first_block,
                 int64_t n_blocks, uint8_t* codes, float*, float*) {
    using Int = typename V::Int;
    using Float = typename V::Float;
    using Scales = typename F::template Scales<V>;
    constexpr int kOffset = F::kOffset - (F::Codes::kWide && !V::kUnsignedWide ? 128 : 0);
    constexpr float kNegatedOffset = -static_cast<float>(kOffset);
    const int64_t scale_bytes = F::scale_bytes(shape);
    const int64_t super_bytes = scale_bytes + F::kBlocks * F::kCodeBytes;
    group += first_block / F::kBlocks * super_bytes;
    for (int64_t s = 0; s < n_blocks / F::kBlocks; s++, group += super_bytes) {
        for (int row = 0; row < kGroupRows; row += V::kRows) {
            const Scales scales(group, shape, row);
            for (int b = 0; b < F::kBlocks; b++) {
                const uint8_t* block = group + scale_bytes + b * F::kCodeBytes + 4 * row;
                for (int i = 0; i < F::kCodeBytes / 64; i++) {
                    V::prefetch(block + V::kPrefetchBytes + 64 * i);
                }
                uint8_t* out = codes + 1024 * (s * F::kBlocks + b) + 4 * row;
                Int c[8];
                F::Codes::template load<V>(block, c);
                Float scale, shift;
                auto element = [&](Float code) {
                    if constexpr (Scales::kMins) return V::add(V::mul(scale, code), shift);
                    return V::fma(scale, code, shift);
                };
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++) {
                    if constexpr (Scales::kHalves) {
                        if (j % 4 == 0) {
                            scale = scales.scale(b, j / 4);
                            if constexpr (Scales::kMins) shift = scales.min(b, j / 4);
                        }
                    } else if (j == 0) {
                        scale = scales.scale(b);
                        if constexpr (Scales::kMins) shift = scales.min(b);
                    }
                    if constexpr (!Scales::kMins) {
                        shift = V::mul(scale, V::broadcast(&kNegatedOffset));
                    }
                    V::store_bf16_pairs(out + 128 * j, element(V::template code_floats<0>(c[j])),
                                        element(V::template code_floats<1>(c[j])));
                    V::store_bf16_pairs(out + 128 * j + 64,
                                        element(V::template code_floats<2>(c[j])),
                                        element(V::template code_floats<3>(c[j])));
                }
            }
        }
    }
}

template <class V>
void unpack_f16_as_bf16(const uint8_t* group, const PackedShape&, int64_t first_block,
                        int64_t n_blocks, uint8_t* codes, float*, float*) {
    group += first_block * kGeometryF16.code_bytes;
    for (int64_t pair = 0; pair < 16 * n_blocks; pair++) {
        for (int row = 0; row < kGroupRows; row += V::kRows) {
            typename V::Float w[2];
            FloatF16::load<V>(group, static_cast<int>(pair), row, w);
            V::store_bf16_pairs(codes + 64 * pair + 4 * row, w[0], w[1]);
        }
    }
}

// 32 input rows times the panel's 32 weight rows. Registers: C 0..3, A 4 and 5, B 6 and 7. A's
// tiles come from the second cache: they are asked for kAhead steps before they are loaded.
template <class T, class V>
inline void multiply_tiles(const uint8_t* const* codes, const uint16_t* const* halves,
                           int64_t n_blocks, float* sums) {
    constexpr int64_t kSumStride = kPanelRows * sizeof(float);
    constexpr int64_t kAhead = 4;
    T::template load<0>(sums, kSumStride);
    T::template load<1>(sums + 16, kSumStride);
    T::template load<2>(sums + 16 * kPanelRows, kSumStride);
    T::template load<3>(sums + 16 * kPanelRows + 16, kSumStride);
    for (int64_t b = 0; b < n_blocks; b++) {
        const uint16_t *high = halves[0] + kTileElements * b, *low = halves[1] + kTileElements * b;
        T::template load<6>(codes[0] + 1024 * b, 64);
        T::template load<4>(high, 64);
        T::template dot_bf16<0, 4, 6>();
        T::template load<7>(codes[1] + 1024 * b, 64);
        T::template dot_bf16<1, 4, 7>();
        T::template load<5>(low, 64);
        T::template dot_bf16<2, 5, 6>();
        T::template dot_bf16<3, 5, 7>();
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            V::prefetch(reinterpret_cast<const uint8_t*>(high + kTileElements * kAhead + 32 * i));
            V::prefetch(reinterpret_cast<const uint8_t*>(low + kTileElements * kAhead + 32 * i));
        }
    }
    T::template store<0>(sums, kSumStride);
    T::template store<1>(sums + 16, kSumStride);
    T::template store<2>(sums + 16 * kPanelRows, kSumStride);
    T::template store<3>(sums + 16 * kPanelRows + 16, kSumStride);
}

// Input rows and sums are there in multiples of 32 (kPaddedRows): what comes of the rows behind
// n_rows is nobody's.
template <class T, class V>
void multiply_bf16_tiles(const Panel& panel, const Activations& x, int64_t first_block,
                         int64_t n_blocks, int64_t n_rows, float* sums) {
    T::begin();
    for (int64_t row = 0; row < n_rows; row += 32) {
        const uint16_t* high = x.halves + row / 16 * x.half_stride + kTileElements * first_block;
        const uint16_t* halves[2] = {high, high + x.half_stride};
        multiply_tiles<T, V>(panel.codes, halves, n_blocks, sums + row * kPanelRows);
    }
    T::end();
}

constexpr int kTileSliceBlocks = 32;  // 64 KiB of a panel, in the second cache

template <class T, class V, class F>
constexpr GemmKernel tile_gemm() {
    return {Operands::kBF16, kTileSliceBlocks, 0, unpack_bf16<V, F>, multiply_bf16_tiles<T, V>};
}

template <class T, class V>
constexpr GemmKernel compact_tile_gemm() {
    return {Operands::kBF16, kTileSliceBlocks, 0, unpack_compact_bf16<V>,
            multiply_bf16_tiles<T, V>};
}

// All formats but F32, whose products stay float32; in the order of FormatId.
template <class T, class V>
void fill_tile_gemm_kernels(GemmKernel* table) {
    const GemmKernel kernels[kNumWeightFormats - 1] = {
        {Operands::kBF16, kTileSliceBlocks, 0, unpack_f16_as_bf16<V>, multiply_bf16_tiles<T, V>},
        {Operands::kBF16, kTileSliceBlocks, 0, nullptr, multiply_bf16_tiles<T, V>},
        tile_gemm<T, V, FormatQ4_0>(),
        tile_gemm<T, V, FormatQ4_1>(),
        tile_gemm<T, V, FormatQ5_0>(),
        tile_gemm<T, V, FormatQ5_1>(),
        tile_gemm<T, V, FormatQ8_0>(),
        tile_gemm<T, V, FormatQ2_K>(),
        tile_gemm<T, V, FormatQ3_K>(),
        tile_gemm<T, V, FormatQ4_K>(),
        tile_gemm<T, V, FormatQ5_K>(),
        tile_gemm<T, V, FormatQ6_K>(),
        tile_gemm<T, V, FormatIQ4_NL>(),
        tile_gemm<T, V, FormatIQ4_XS>(),
        tile_gemm<T, V, FormatAffine4>(),
        tile_gemm<T, V, FormatAffine8>(),
    };
    for (int i = 1; i < kNumWeightFormats; i++) table[i] = kernels[i - 1];
}

}  // namespace
}  // namespace ridge::cpu
