#include <immintrin.h>

#include "cpu/isa/probes.h"
#include "cpu/isa/prompt_attention.h"
#include "cpu/isa/tile_gemm.h"
#include "cpu/isa/vector_avx512_bf16.h"

namespace ridge::cpu {
namespace {

// multiply_bf16: pairs along k, two products and two sums an instruction; eight rows of the input,
// which lie in one tile at fixed distances, times both groups. Rows and sums are there in multiples
// of kPaddedRows: what comes of the rows behind n_rows is nobody's.
constexpr int kTileRows = 8;

inline void multiply_bf16_tile(const uint8_t* const* codes, const uint16_t* bf16, int64_t n_blocks,
                               float* sums) {
    __m512 acc[kTileRows][2];
#pragma GCC unroll 8
    for (int t = 0; t < kTileRows; t++) {
        acc[t][0] = _mm512_loadu_ps(sums + t * kPanelRows);
        acc[t][1] = _mm512_loadu_ps(sums + t * kPanelRows + kGroupRows);
    }
    const uint8_t *w0 = codes[0], *w1 = codes[1];
    for (int64_t b = 0; b < n_blocks; b++, bf16 += kTileElements, w0 += 1024, w1 += 1024) {
#pragma GCC unroll 4
        for (int pair = 0; pair < 16; pair++) {
            const auto v0 = (__m512bh)_mm512_loadu_si512(w0 + 64 * pair);
            const auto v1 = (__m512bh)_mm512_loadu_si512(w1 + 64 * pair);
#pragma GCC unroll 8
            for (int t = 0; t < kTileRows; t++) {
                int32_t two;
                memcpy(&two, bf16 + 32 * t + 2 * pair, sizeof two);
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
        const uint16_t* bf16 =
            x.bf16 + row / 16 * x.bf16_stride + first_block * kTileElements + row % 16 * 32;
        multiply_bf16_tile(panel.codes, bf16, n_blocks, sums + row * kPanelRows);
    }
}

// Sums of products of bf16 with pairs along k: two chains, of even and odd pairs, added at the end.
template <class V, int kN>
struct Bf16Sums {
    const StripRows<kN> rows;
    const uint16_t* bf16;
    int n_fours = 0;
    typename V::Float sums[2][kN];

    Bf16Sums(const Activations& x, int64_t first_row)
        : rows(x, first_row), bf16(x.bf16 + rows.strip * x.bf16_stride + kBlock * rows.first) {
#pragma GCC unroll 8
        for (int r = 0; r < kN; r++) sums[0][r] = sums[1][r] = V::zero_float();
    }
    // Pair i of the four that are next.
    [[gnu::always_inline]] void add_bf16(int i, typename V::Int pair) {
#pragma GCC unroll 8
        for (int r = 0; r < kN; r++) {
            uint32_t two;
            memcpy(&two, bf16 + kBlock * r + 2 * i, sizeof two);
            sums[i % 2][r] = V::dot_bf16(sums[i % 2][r], pair, V::splat_pair(two));
        }
    }
    // After four times four pairs are a block's end and the other rows'.
    void next_four() {
        n_fours = (n_fours + 1) % 4;
        bf16 += n_fours == 0 ? kBlock * (rows.step - 1) + 8 : 8;
    }
    void store(float* tile) const {
#pragma GCC unroll 8
        for (int r = 0; r < kN; r++) V::store(tile + 16 * r, V::add(sums[0][r], sums[1][r]));
    }
};

}  // namespace

// F32 weights and caches, and decode rows times F16, keep their float32 products.
void add_avx512_bf16_kernels(Kernels& kernels) {
    kernels.group[kBF16Index] = group_kernel<Avx512Bf16, Avx512Bf16, Bf16Group<Bf16Sums>>;
    kernels.group_operands[kBF16Index] = Operands::kBF16;
    kernels.compact.group = group_kernel<Avx512Bf16, Avx512Bf16, CompactBf16Group<Bf16Sums>>;
    kernels.gemm[kF16Index] = {Operands::kBF16, kBf16SliceBlocks, 0,
                               unpack_pieces<F16Piece<Avx512Bf16>>, multiply_bf16};
    kernels.gemm[kBF16Index] = {Operands::kBF16, kBf16SliceBlocks, 0, nullptr, multiply_bf16};
    kernels.compact.gemm = {Operands::kBF16, kBf16SliceBlocks, 0, unpack_compact_bf16<Avx512Bf16>,
                            multiply_bf16};
    kernels.attention.prompt_bf16 = bf16_prompt_unit<Avx512Bf16>();
    kernels.probes.arithmetic[kBf16Dot] =
        arithmetic_probe<Bf16Product<Avx512Bf16, 24>>("vdpbf16ps, 512 bits");
}

}  // namespace ridge::cpu
