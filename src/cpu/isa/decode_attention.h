#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/isa/attention_elements.h"
#include "cpu/isa/prompt_attention.h"

// Attention of decode rows, and how the cache is written, once over a vector type V
// (isa/vector_*.h). Prompts are in isa/prompt_attention.h.

namespace ridge::cpu {
namespace {

// --- decode ---

// Fetches the next tile into the first cache while this one is read, evenly over all passes over
// it: memory is asked for as much as a pass takes, in its own order. Counted in vectors that the
// passes load.
template <class V, class T>
struct Fetch {
    const uint8_t* next;
    int64_t vector_bytes, n_vectors;  // of the next tile for each vector; vectors of one pass
    int64_t first = 0;                // of this pass

    Fetch(const uint8_t* next, int64_t d_head, int64_t n_passes)
        : next(next), n_vectors(kTilePositions / V::kRows * d_head) {
        const int64_t scales = T::kScales ? d_head / kScaleElements * 2 : 0;
        const int64_t tile_bytes = kTilePositions * (d_head * T::kBytes + scales);
        const int64_t n = n_vectors * n_passes;
        vector_bytes = (tile_bytes + n - 1) / n;
    }
    void vectors(int64_t i, int64_t n) const {  // i .. i + n of this pass
        const int64_t end = (first + i + n) * vector_bytes;
        for (int64_t at = round_up_to((first + i) * vector_bytes, 64); at < end; at += 64) {
            V::prefetch(next + at);
        }
    }
};

// Scores of kHeads heads: positions in lanes, kN vectors of them at a time, so that the sums stay
// in registers and a vector of K is loaded and converted once for all heads.
template <class V, class T, int kHeads>
inline void score_heads(const uint8_t* tile, int d_head, const float* q, const Fetch<V, T>& fetch,
                        float* scores, int64_t score_stride) {
    using Float = typename V::Float;
    constexpr int kMost = V::kSumRegisters / kHeads, kAll = kTilePositions / V::kRows;
    constexpr int kFit = kMost >= 4 ? 4 : kMost >= 2 ? 2 : 1;
    constexpr int kN = kFit < kAll ? kFit : kAll;
    for (int p = 0; p < kTilePositions; p += kN * V::kRows) {
        const int block = T::kScales ? kScaleElements : d_head;
        for (int d0 = 0; d0 < d_head; d0 += block) {
            Float acc[kHeads][kN];
#pragma GCC unroll 8
            for (int h = 0; h < kHeads; h++) {
#pragma GCC unroll 8
                for (int n = 0; n < kN; n++) acc[h][n] = V::zero_float();
            }
            for (int d = d0; d < d0 + block; d++) {
                fetch.vectors(p / V::kRows * d_head + d * kN, kN);
                const uint8_t* row = tile + (int64_t{d} * kTilePositions + p) * T::kBytes;
                Float k[kN];
#pragma GCC unroll 8
                for (int n = 0; n < kN; n++) {
                    k[n] = T::template load<V>(row + n * V::kRows * T::kBytes);
                }
#pragma GCC unroll 8
                for (int h = 0; h < kHeads; h++) {
                    const Float qd = V::broadcast(q + h * d_head + d);
#pragma GCC unroll 8
                    for (int n = 0; n < kN; n++) acc[h][n] = V::fma(k[n], qd, acc[h][n]);
                }
            }
#pragma GCC unroll 8
            for (int n = 0; n < kN; n++) {
                const int at = p + n * V::kRows;
                Float scale{};
                if constexpr (T::kScales) {
                    scale = V::load_f16(scales_of(tile, d_head) +
                                        2 * (d0 / kScaleElements * kTilePositions + at));
                }
#pragma GCC unroll 8
                for (int h = 0; h < kHeads; h++) {
                    float* to = scores + h * score_stride + at;
                    if constexpr (T::kScales) {
                        const Float before = d0 == 0 ? V::zero_float() : V::load_floats(to);
                        V::store(to, V::fma(acc[h][n], scale, before));
                    } else {
                        V::store(to, acc[h][n]);
                    }
                }
            }
        }
    }
}

// Heads by fours: the later fours find the tile in the first cache.
template <class V, class T>
void tile_scores(const uint8_t* tile, int d_head, const float* q, int n_heads, const uint8_t* next,
                 float* scores, int64_t stride) {
    Fetch<V, T> fetch(next, d_head, (n_heads + 3) / 4);
    for (; n_heads >= 4; n_heads -= 4) {
        score_heads<V, T, 4>(tile, d_head, q, fetch, scores, stride);
        fetch.first += fetch.n_vectors, q += 4 * d_head, scores += 4 * stride;
    }
    if (n_heads == 3) score_heads<V, T, 3>(tile, d_head, q, fetch, scores, stride);
    if (n_heads == 2) score_heads<V, T, 2>(tile, d_head, q, fetch, scores, stride);
    if (n_heads == 1) score_heads<V, T, 1>(tile, d_head, q, fetch, scores, stride);
}

// kN vectors of V from `column` on, times the weights of kHeads heads.
template <class V, class T, int kHeads, int kN>
inline void sum_columns(const uint8_t* tile, int d_head, int n_positions, int column,
                        const float* weights, int64_t weight_stride, const Fetch<V, T>& fetch,
                        float* out) {
    using Float = typename V::Float;
    Float acc[kHeads][kN];
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; h++) {
#pragma GCC unroll 8
        for (int n = 0; n < kN; n++) {
            acc[h][n] = V::load_floats(out + h * d_head + column + n * V::kRows);
        }
    }
    for (int p = 0; p < n_positions; p++) {
        fetch.vectors(column / V::kRows * kTilePositions + p * kN, kN);
        const uint8_t* row = tile + (int64_t{p} * d_head + column) * T::kBytes;
        Float v[kN], scale{};
#pragma GCC unroll 8
        for (int n = 0; n < kN; n++) {
            v[n] = T::template load<V>(row + n * V::kRows * T::kBytes);
            if constexpr (T::kScales) {  // columns start at a scale, or within one to its end
                if (n * V::kRows % kScaleElements == 0) {
                    const int at =
                        p * (d_head / kScaleElements) + (column + n * V::kRows) / kScaleElements;
                    scale = V::splat_f16(scales_of(tile, d_head) + 2 * at);
                }
                v[n] = V::mul(v[n], scale);
            }
        }
#pragma GCC unroll 8
        for (int h = 0; h < kHeads; h++) {
            const Float w = V::broadcast(weights + h * weight_stride + p);
#pragma GCC unroll 8
            for (int n = 0; n < kN; n++) acc[h][n] = V::fma(v[n], w, acc[h][n]);
        }
    }
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; h++) {
#pragma GCC unroll 8
        for (int n = 0; n < kN; n++) V::store(out + h * d_head + column + n * V::kRows, acc[h][n]);
    }
}

template <class V, class T, int kHeads>
inline void sum_heads(const uint8_t* tile, int d_head, int n_positions, const float* weights,
                      int64_t weight_stride, const Fetch<V, T>& fetch, float* out) {
    constexpr int kMost = V::kSumRegisters / kHeads;
    int column = 0;
    auto take = [&](auto sum, int n) {
        sum(tile, d_head, n_positions, column, weights, weight_stride, fetch, out);
        column += n * V::kRows;
    };
    if constexpr (kMost >= 4) {
        while (column + 4 * V::kRows <= d_head) take(sum_columns<V, T, kHeads, 4>, 4);
    }
    if constexpr (kMost >= 2) {
        while (column + 2 * V::kRows <= d_head) take(sum_columns<V, T, kHeads, 2>, 2);
    }
    while (column < d_head) take(sum_columns<V, T, kHeads, 1>, 1);
}

template <class V, class T>
void tile_sum_values(const uint8_t* tile, int d_head, int n_positions, const float* weights,
                     int64_t stride, int n_heads, const uint8_t* next, float* out) {
    Fetch<V, T> fetch(next, d_head, (n_heads + 3) / 4);
    for (; n_heads >= 4; n_heads -= 4) {
        sum_heads<V, T, 4>(tile, d_head, n_positions, weights, stride, fetch, out);
        fetch.first += fetch.n_vectors, weights += 4 * stride, out += 4 * d_head;
    }
    if (n_heads == 3) sum_heads<V, T, 3>(tile, d_head, n_positions, weights, stride, fetch, out);
    if (n_heads == 2) sum_heads<V, T, 2>(tile, d_head, n_positions, weights, stride, fetch, out);
    if (n_heads == 1) sum_heads<V, T, 1>(tile, d_head, n_positions, weights, stride, fetch, out);
}

// out = sum_b w_b sums_b / sum_b w_b total_b, 16 weights at a time.
template <class V>
void merge_blocks(const float* sums, int64_t sum_stride, const float* highest, const float* total,
                  int64_t n_blocks, int64_t d_head, float* out) {
    using Float = typename V::Float;
    float max = -__builtin_inff();
    for (int64_t b = 0; b < n_blocks; b++) max = highest[b] < max ? max : highest[b];
    for (int64_t d = 0; d < d_head; d += V::kRows) V::store(out + d, V::zero_float());
    float all = 0;
    for (int64_t first = 0; first < n_blocks; first += kHeadMultiple) {
        const int64_t left = n_blocks - first;
        const int n = left < kHeadMultiple ? static_cast<int>(left) : kHeadMultiple;
        float weight[kHeadMultiple] = {};
        memcpy(weight, highest + first, static_cast<size_t>(n) * sizeof(float));
        exp2_row<V>(weight, n, max);
        for (int b = 0; b < n; b++) {
            const Float w = V::splat(weight[b]);
            const float* from = sums + (first + b) * sum_stride;
            all += weight[b] * total[first + b];
            for (int64_t d = 0; d < d_head; d += V::kRows) {
                V::store(out + d, V::fma(V::load_floats(from + d), w, V::load_floats(out + d)));
            }
        }
    }
    for (int64_t d = 0; d < d_head; d++) out[d] /= all;
}

// --- the cache is written ---

template <class V, class T>
void store_k_row(const float* x, int d_head, int position, uint8_t* tile) {
    uint8_t* to = tile + position * T::kBytes;
    for (int d = 0; d < d_head; d += V::kRows) {
        uint8_t lanes[V::kRows * T::kBytes];
        T::template store<V>(lanes, V::load_floats(x + d));
        for (int i = 0; i < V::kRows; i++) {
            memcpy(to + int64_t{d + i} * kTilePositions * T::kBytes, lanes + i * T::kBytes,
                   T::kBytes);
        }
    }
}
template <class V, class T>
void store_v_row(const float* x, int d_head, int position, uint8_t* tile) {
    uint8_t* to = tile + int64_t{position} * d_head * T::kBytes;
    for (int d = 0; d < d_head; d += V::kRows) {
        T::template store<V>(to + d * T::kBytes, V::load_floats(x + d));
    }
}

// A block of q8_0: codes, and the scale's f16 to `scale`.
template <class V>
inline void quantise_kv_block(const float* x, int8_t* codes, uint8_t* scale) {
    constexpr float kRound = 12582912.0f;
    uint32_t highest = 0;
    for (int i = 0; i < kScaleElements; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffffu;
        highest = bits > highest ? bits : highest;
    }
    float size;
    memcpy(&size, &highest, sizeof size);
    uint8_t halves[2 * V::kRows];
    V::store_f16(halves, V::splat(size / 127.0f));
    memcpy(scale, halves, 2);
    float rounded[V::kRows];
    V::store(rounded, V::load_f16(halves));
    const bool usable = rounded[0] > 0 && rounded[0] < __builtin_inff();
    const float inverse = usable ? 1.0f / rounded[0] : 0.0f;
    for (int i = 0; i < kScaleElements; i++) {
        const float code = x[i] * inverse;
        const float low = code < -127.0f ? -127.0f : code, in_range = low > 127.0f ? 127.0f : low;
        const float shifted = in_range + kRound;
        int32_t bits, zero;
        memcpy(&bits, &shifted, sizeof bits);
        memcpy(&zero, &kRound, sizeof zero);
        codes[i] = static_cast<int8_t>(bits - zero);
    }
    if (!usable) memset(codes, 0, kScaleElements);
}

template <class V>
void store_k_q8(const float* x, int d_head, int position, uint8_t* tile) {
    for (int d = 0; d < d_head; d += kScaleElements) {
        int8_t codes[kScaleElements];
        quantise_kv_block<V>(
            x + d, codes,
            tile + kTilePositions * d_head + 2 * (d / kScaleElements * kTilePositions + position));
        for (int i = 0; i < kScaleElements; i++) {
            tile[(d + i) * kTilePositions + position] = static_cast<uint8_t>(codes[i]);
        }
    }
}
template <class V>
void store_v_q8(const float* x, int d_head, int position, uint8_t* tile) {
    const int n_scales = d_head / kScaleElements;
    for (int block = 0; block < n_scales; block++) {
        int8_t codes[kScaleElements];
        quantise_kv_block<V>(x + block * kScaleElements, codes,
                             tile + kTilePositions * d_head + 2 * (position * n_scales + block));
        memcpy(tile + position * d_head + block * kScaleElements, codes, kScaleElements);
    }
}

template <class V, class T>
void fill_kv_type(AttentionKernels& kernels, int type) {
    kernels.scores[type] = tile_scores<V, T>;
    kernels.sum_values[type] = tile_sum_values<V, T>;
    if constexpr (T::kScales) {
        kernels.store_k[type] = store_k_q8<V>;
        kernels.store_v[type] = store_v_q8<V>;
    } else {
        kernels.store_k[type] = store_k_row<V, T>;
        kernels.store_v[type] = store_v_row<V, T>;
    }
}

template <class V>
void fill_attention_kernels(AttentionKernels& kernels) {
    fill_kv_type<V, KvF32>(kernels, 0);
    fill_kv_type<V, KvF16>(kernels, 1);
    fill_kv_type<V, KvBF16>(kernels, 2);
    fill_kv_type<V, KvQ8>(kernels, 3);
    kernels.exp_weights = exp_weights<V>;
    kernels.merge_blocks = merge_blocks<V>;
    kernels.prompt_f32 = float_prompt_unit<V>();
}

}  // namespace
}  // namespace ridge::cpu
