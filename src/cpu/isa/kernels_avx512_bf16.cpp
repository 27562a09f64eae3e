#include <immintrin.h>

#include "cpu/isa/gemm_kernels.h"
#include "cpu/isa/vector_avx512.h"

namespace ridge::cpu {
namespace {

// F16 weights to pairs of bf16, as BF16 ones lie.
void unpack_f16_pairs(const uint8_t* group, const PackedShape&, int64_t first_block,
                      int64_t n_blocks, uint8_t* codes, float*, float*) {
    group += first_block * kGeometryF16.code_bytes;
    for (int64_t pair = 0; pair < 16 * n_blocks; pair++) {
        Avx512::Float w[2];
        FloatF16::load<Avx512>(group, static_cast<int>(pair), 0, w);
        const auto even = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(w[0]));
        const auto odd = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(w[1]));
        _mm512_storeu_si512(codes + 64 * pair, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
    }
}

// multiply_bf16_tile: pairs along k, two products and two sums an instruction; kTile rows of the
// input times both groups.
template <int kTile>
inline void multiply_bf16_tile(const uint8_t* const* codes, const Activations& x,
                               int64_t first_block, int64_t n_blocks, int64_t row, float* sums) {
    __m512 acc[kTile][2];
#pragma GCC unroll 16
    for (int t = 0; t < kTile; t++) {
        for (int g = 0; g < 2; g++) {
            acc[t][g] = _mm512_loadu_ps(sums + (row + t) * kPanelRows + g * kGroupRows);
        }
    }
    const uint16_t* rows[kTile];
#pragma GCC unroll 16
    for (int t = 0; t < kTile; t++) {
        rows[t] = x.halves + (row + t) / 16 * x.half_stride + first_block * kTileElements +
                  (row + t) % 16 * 32;
    }
    for (int64_t pair = 0; pair < 16 * n_blocks; pair++) {
        const auto w0 = (__m512bh)_mm512_loadu_si512(codes[0] + 64 * pair);
        const auto w1 = (__m512bh)_mm512_loadu_si512(codes[1] + 64 * pair);
        const int64_t at = pair / 16 * kTileElements + pair % 16 * 2;
#pragma GCC unroll 16
        for (int t = 0; t < kTile; t++) {
            int32_t two;
            memcpy(&two, rows[t] + at, sizeof two);
            const auto v = (__m512bh)_mm512_set1_epi32(two);
            acc[t][0] = _mm512_dpbf16_ps(acc[t][0], w0, v);
            acc[t][1] = _mm512_dpbf16_ps(acc[t][1], w1, v);
        }
    }
#pragma GCC unroll 16
    for (int t = 0; t < kTile; t++) {
        for (int g = 0; g < 2; g++) {
            _mm512_storeu_ps(sums + (row + t) * kPanelRows + g * kGroupRows, acc[t][g]);
        }
    }
}

void multiply_bf16(const Panel& panel, const Activations& x, int64_t first_block, int64_t n_blocks,
                   int64_t n_rows, float* sums) {
    constexpr int kTile = 12;
    int64_t row = 0;
    for (; row + kTile <= n_rows; row += kTile) {
        multiply_bf16_tile<kTile>(panel.codes, x, first_block, n_blocks, row, sums);
    }
    for (; row + 4 <= n_rows; row += 4) {
        multiply_bf16_tile<4>(panel.codes, x, first_block, n_blocks, row, sums);
    }
    for (; row < n_rows; row++) {
        multiply_bf16_tile<1>(panel.codes, x, first_block, n_blocks, row, sums);
    }
}

constexpr int kF16 = 1, kBF16 = 2;  // FormatId
constexpr int kHalfSliceBlocks = 8;

}  // namespace

// F32 weights keep their float32 products.
void add_avx512_bf16_kernels(Kernels& kernels) {
    kernels.gemm[kF16] = {Operands::kBF16, kHalfSliceBlocks, 0, unpack_f16_pairs, multiply_bf16};
    kernels.gemm[kBF16] = {Operands::kBF16, kHalfSliceBlocks, 0, nullptr, multiply_bf16};
}

}  // namespace ridge::cpu
