#pragma once

#include <cstdint>

#include "cpu/isa/prompt_attention.h"

// A prompt's attention on tiles of bf16 (isa/tile_gemm.h says what T is), what lies between the
// products in vectors V. The operands are those of bf16 vectors: pairs of K are B [16 pairs along
// d_head][16 positions][2], pairs of V are B [16 pairs of positions][16 elements][2].

namespace ridge::cpu {
namespace {

template <class T, class V>
struct TileUnit : Bf16Operands<V> {
    using O = Bf16Operands<V>;
    static constexpr int kTileRows = 32;
    static constexpr int kRows = 32;
    static_assert(kRows <= kPromptRows);
    static constexpr int kPairs = 16;  // of a tile
    static void begin() { T::begin(); }
    static void end() { T::end(); }

    // 32 rows times 32 positions at a time: C 0..3, A 4 and 5, B 6 and 7.
    static void make_scores(const PromptTile& t, int64_t row, int64_t, int n_positions) {
        constexpr int64_t kStride = kTilePositions * 4;  // of scores and of k, in bytes
        const int depth = O::depth(t.d_head);
        const uint32_t* q = static_cast<const uint32_t*>(t.q) + row * depth;
        for (int p = 0; p < n_positions; p += 32) {
            T::template zero<0>();
            T::template zero<1>();
            T::template zero<2>();
            T::template zero<3>();
            for (int d = 0; d < depth; d += kPairs) {
                const uint32_t* k = static_cast<const uint32_t*>(t.k) + d * kTilePositions + p;
                T::template load<4>(q + d, 4 * depth);
                T::template load<6>(k, kStride);
                T::template dot_bf16<0, 4, 6>();
                T::template load<7>(k + 16, kStride);
                T::template dot_bf16<1, 4, 7>();
                T::template load<5>(q + 16 * depth + d, 4 * depth);
                T::template dot_bf16<2, 5, 6>();
                T::template dot_bf16<3, 5, 7>();
            }
            float* scores = t.scores + p;
            T::template store<0>(scores, kStride);
            T::template store<1>(scores + 16, kStride);
            T::template store<2>(scores + 16 * kTilePositions, kStride);
            T::template store<3>(scores + 16 * kTilePositions + 16, kStride);
        }
    }

    // 32 rows times 32 elements at a time, then what is left of 16.
    static void sum_values(const PromptTile& t, int64_t row, int64_t, int n_positions) {
        int d = 0;
        for (; d + 32 <= t.d_head; d += 32) sum_columns<true>(t, row, d, n_positions);
        if (d < t.d_head) sum_columns<false>(t, row, d, n_positions);
    }

  private:
    template <bool kBoth>
    static void sum_columns(const PromptTile& t, int64_t row, int d, int n_positions) {
        constexpr int64_t kWeightStride = kTilePositions * 2;
        const int64_t stride = int64_t{t.d_head} * 4;  // of out and of v, in bytes
        float *high = t.out + row * t.d_head + d, *low = high + 16 * t.d_head;
        T::template load<0>(high, stride);
        T::template load<2>(low, stride);
        if constexpr (kBoth) {
            T::template load<1>(high + 16, stride);
            T::template load<3>(low + 16, stride);
        }
        for (int pair = 0; pair < n_positions / 2; pair += kPairs) {
            const uint32_t* weights = static_cast<const uint32_t*>(t.weights) + pair;
            const uint32_t* v = static_cast<const uint32_t*>(t.v) + pair * t.d_head + d;
            T::template load<4>(weights, kWeightStride);
            T::template load<6>(v, stride);
            T::template dot_bf16<0, 4, 6>();
            T::template load<5>(weights + 16 * kTilePositions / 2, kWeightStride);
            T::template dot_bf16<2, 5, 6>();
            if constexpr (kBoth) {
                T::template load<7>(v + 16, stride);
                T::template dot_bf16<1, 4, 7>();
                T::template dot_bf16<3, 5, 7>();
            }
        }
        T::template store<0>(high, stride);
        T::template store<2>(low, stride);
        if constexpr (kBoth) {
            T::template store<1>(high + 16, stride);
            T::template store<3>(low + 16, stride);
        }
    }
};

template <class T, class V>
constexpr PromptUnit tile_prompt_unit() {
    return prompt_unit<TileUnit<T, V>>(128);
}

}  // namespace
}  // namespace ridge::cpu
