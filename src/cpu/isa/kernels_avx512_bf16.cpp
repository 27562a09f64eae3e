#include <immintrin.h>

#include "cpu/isa/prompt_attention.h"
#include "cpu/isa/tile_gemm.h"
#include "cpu/isa/vector_avx512_bf16.h"

namespace ridge::cpu {
namespace {

// multiply_bf16: pairs along k, two products and two sums an instruction; eight rows of the input,
// which lie in one tile at fixed distances, times both groups. Rows and sums are there in multiples
// of kPaddedRows: what comes of the rows behind n_rows is nobody's.
constexpr int kTileRows = 8;

inline void multiply_bf16_tile(const uint8_t* const* codes, const uint16_t* halves,
                               int64_t n_blocks, float* sums) {
    __m512 acc[kTileRows][2];
#pragma GCC unroll 8
    for (int t = 0; t < kTileRows; t++) {
        acc[t][0] = _mm512_loadu_ps(sums + t * kPanelRows);
        acc[t][1] = _mm512_loadu_ps(sums + t * kPanelRows + kGroupRows);
    }
    const uint8_t *w0 = codes[0], *w1 = codes[1];
    for (int64_t b = 0; b < n_blocks; b++, halves += kTileElements, w0 += 1024, w1 += 1024) {
#pragma GCC unroll 4
        for (int pair = 0; pair < 16; pair++) {
            const auto v0 = (__m512bh)_mm512_loadu_si512(w0 + 64 * pair);
            const auto v1 = (__m512bh)_mm512_loadu_si512(w1 + 64 * pair);
#pragma GCC unroll 8
            for (int t = 0; t < kTileRows; t++) {
                int32_t two;
                memcpy(&two, halves + 32 * t + 2 * pair, sizeof two);
                const auto x = (__m512bh)_mm512_set1_epi32(two);
                acc[t][0] = _mm512_dpbf16_ps(acc[t][0], v0, x);
                acc[t][1] = _mm512_dpbf16_ps(acc[t][1], v1, x);
            }
        }
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTileRows; t++) {
        _mm512_storeu_ps(sums + t * kPanelRows, acc[t][0]);
        _mm512_storeu_ps(sums + t * kPanelRows + kGroupRows, acc[t][1]);
    }
}

void multiply_bf16(const Panel& panel, const Activations& x, int64_t first_block, int64_t n_blocks,
                   int64_t n_rows, float* sums) {
    for (int64_t row = 0; row < n_rows; row += kTileRows) {
        const uint16_t* halves =
            x.halves + row / 16 * x.half_stride + first_block * kTileElements + row % 16 * 32;
        multiply_bf16_tile(panel.codes, halves, n_blocks, sums + row * kPanelRows);
    }
}

constexpr int kHalfSliceBlocks = 8;

}  // namespace

// F32 weights and caches keep their float32 products.
void add_avx512_bf16_kernels(Kernels& kernels) {
    kernels.gemm[kF16Index] = {Operands::kBF16, kHalfSliceBlocks, 0, unpack_f16_as_bf16<Avx512Bf16>,
                               multiply_bf16};
    kernels.gemm[kBF16Index] = {Operands::kBF16, kHalfSliceBlocks, 0, nullptr, multiply_bf16};
    kernels.compact.gemm = {Operands::kBF16, kHalfSliceBlocks, 0, unpack_compact_bf16<Avx512Bf16>,
                            multiply_bf16};
    kernels.attention.prompt_bf16 = bf16_prompt_unit<Avx512Bf16>();
}

}  // namespace ridge::cpu
