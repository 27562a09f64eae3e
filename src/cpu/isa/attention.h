#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/attention_kernels.h"

// Attention and its cache, written once over a vector type V (isa/vector_*.h): tiles of the cache
// are converted in registers, exponentials are a polynomial.

namespace ridge::cpu {
namespace {

// --- elements of the cache ---

struct KvF32 {
    static constexpr int kBytes = 4;
    static constexpr bool kScales = false;
    template <class V>
    static typename V::Float load(const uint8_t* p) {
        return V::load_f32(p);
    }
    template <class V>
    static void store(uint8_t* p, typename V::Float v) {
        float lanes[V::kRows];
        V::store(lanes, v);
        memcpy(p, lanes, sizeof lanes);
    }
};
struct KvF16 {
    static constexpr int kBytes = 2;
    static constexpr bool kScales = false;
    template <class V>
    static typename V::Float load(const uint8_t* p) {
        return V::load_f16(p);
    }
    template <class V>
    static void store(uint8_t* p, typename V::Float v) {
        V::store_f16(p, v);
    }
};
struct KvBF16 {
    static constexpr int kBytes = 2;
    static constexpr bool kScales = false;
    template <class V>
    static typename V::Float load(const uint8_t* p) {
        return V::load_bf16(p);
    }
    template <class V>
    static void store(uint8_t* p, typename V::Float v) {
        V::store_bf16(p, v);
    }
};
// Codes; the scales lie behind the tile's codes.
constexpr int kScaleElements = 32;
struct KvQ8 {
    static constexpr int kBytes = 1;
    static constexpr bool kScales = true;
    template <class V>
    static typename V::Float load(const uint8_t* p) {
        return V::load_i8(p);
    }
};

inline const uint8_t* scales_of(const uint8_t* tile, int64_t d_head) {
    return tile + kTilePositions * d_head;
}

// --- exponentials ---

// 2^x for x <= 0, within 1.1e-7 of itself; 0 below -126, -inf included; NaN of NaN. x = n + r with
// |r| <= 1/2, a polynomial in r of least relative error (2e-9, and 2^0 is 1), and n added to the
// exponent.
template <class V>
inline typename V::Float exp2_of(typename V::Float x) {
    using Float = typename V::Float;
    const Float round = V::splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    const Float shifted = V::add(x, round);
    const Float r = V::sub(x, V::sub(shifted, round));
    Float p = V::splat(1.53533620e-4f);
    p = V::fma(p, r, V::splat(1.33988739e-3f));
    p = V::fma(p, r, V::splat(9.61843692e-3f));
    p = V::fma(p, r, V::splat(5.55033237e-2f));
    p = V::fma(p, r, V::splat(0.240226477f));
    p = V::fma(p, r, V::splat(0.693147182f));
    p = V::fma(p, r, V::splat(1.0f));
    return V::zero_below(x, V::splat(-126.0f), V::add_exponent(p, shifted));
}

// x[i] = 2^(x[i] - highest) for i < n, 0 up to the next multiple of 16; returns the sum, in lanes.
template <class V>
inline typename V::Float exp2_row(float* x, int n, float highest) {
    using Float = typename V::Float;
    Float sum = V::zero_float();
    const Float max = V::splat(highest);
    const int end = (n + kHeadMultiple - 1) / kHeadMultiple * kHeadMultiple;
    for (int i = 0; i < end; i += V::kRows) {
        const Float weight = exp2_of<V>(V::sub(V::load_floats(x + i), max));
        const Float kept = V::keep_first(weight, n - i, V::zero_float());
        V::store(x + i, kept);
        sum = V::add(sum, kept);
    }
    return sum;
}

template <class V>
inline float highest_of(const float* x, int n) {
    using Float = typename V::Float;
    const Float lowest = V::splat(-__builtin_inff());
    Float max = lowest;
    for (int i = 0; i < n; i += V::kRows) {
        max = V::max(max, V::keep_first(V::load_floats(x + i), n - i, lowest));
    }
    return V::reduce_max(max);
}

template <class V>
float exp_weights(float* x, int n, float* highest) {
    *highest = highest_of<V>(x, n);
    return V::reduce_add(exp2_row<V>(x, n, *highest));
}

// 2^x of one number, as the vectors have it.
template <class V>
inline float exp2_of_one(float x) {
    float lanes[V::kRows];
    V::store(lanes, exp2_of<V>(V::splat(x)));
    return lanes[0];
}

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
        for (int64_t at = ((first + i) * vector_bytes + 63) / 64 * 64; at < end; at += 64) {
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

// --- prompts ---

template <class V, class T>
void unpack_k_tile(const uint8_t* tile, int d_head, int n_positions, float* out) {
    for (int d = 0; d < d_head; d++) {
        for (int p = 0; p < n_positions; p += V::kRows) {
            const int64_t at = int64_t{d} * kTilePositions + p;
            typename V::Float k = T::template load<V>(tile + at * T::kBytes);
            if constexpr (T::kScales) {
                k = V::mul(k, V::load_f16(scales_of(tile, d_head) +
                                          2 * (d / kScaleElements * kTilePositions + p)));
            }
            V::store(out + at, k);
        }
    }
}

template <class V, class T>
void unpack_v_tile(const uint8_t* tile, int d_head, int n_positions, float* out) {
    for (int p = 0; p < n_positions; p++) {
        for (int d = 0; d < d_head; d += V::kRows) {
            const int64_t at = int64_t{p} * d_head + d;
            typename V::Float v = T::template load<V>(tile + at * T::kBytes);
            if constexpr (T::kScales) {
                const int scale = p * (d_head / kScaleElements) + d / kScaleElements;
                v = V::mul(v, V::splat_f16(scales_of(tile, d_head) + 2 * scale));
            }
            V::store(out + at, v);
        }
    }
    const int64_t begin = int64_t{n_positions} * d_head;
    const int64_t end = (n_positions + kHeadMultiple - 1) / kHeadMultiple * kHeadMultiple * d_head;
    for (int64_t i = begin; i < end; i += V::kRows) V::store(out + i, V::zero_float());
}

// c[i, j] (+)= sum_k a[i, k] * b[k, j] for kM rows i and kN vectors of columns j, k in order.
template <class V, int kM, int kN, bool kAdd>
inline void multiply_part(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                          int64_t n_k, float* c, int64_t c_stride) {
    using Float = typename V::Float;
    Float acc[kM][kN];
#pragma GCC unroll 16
    for (int i = 0; i < kM; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < kN; j++) {
            acc[i][j] = kAdd ? V::load_floats(c + i * c_stride + j * V::kRows) : V::zero_float();
        }
    }
    for (int64_t k = 0; k < n_k; k++) {
        Float row[kN];
#pragma GCC unroll 8
        for (int j = 0; j < kN; j++) row[j] = V::load_floats(b + k * b_stride + j * V::kRows);
#pragma GCC unroll 16
        for (int i = 0; i < kM; i++) {
            const Float x = V::broadcast(a + i * a_stride + k);
#pragma GCC unroll 8
            for (int j = 0; j < kN; j++) acc[i][j] = V::fma(row[j], x, acc[i][j]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kM; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < kN; j++) V::store(c + i * c_stride + j * V::kRows, acc[i][j]);
    }
}

// All of c [m, n]: m a multiple of kPromptTileRows, n of 16.
template <class V, bool kAdd>
inline void multiply(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t m,
                     int64_t n, int64_t n_k, float* c, int64_t c_stride) {
    constexpr int kM = V::kPromptRows, kN = V::kPromptVectors;
    static_assert(kPromptTileRows % kM == 0);
    int64_t j = 0;
    auto columns = [&](auto part, int vectors) {
        for (int64_t i = 0; i < m; i += kM) {
            part(a + i * a_stride, a_stride, b + j, b_stride, n_k, c + i * c_stride + j, c_stride);
        }
        j += vectors * V::kRows;
    };
    while (j + kN * V::kRows <= n) columns(multiply_part<V, kM, kN, kAdd>, kN);
    if constexpr (kN > 2) {
        while (j + 2 * V::kRows <= n) columns(multiply_part<V, kM, 2, kAdd>, 2);
    }
    while (j < n) columns(multiply_part<V, kM, 1, kAdd>, 1);
}

// One row's scores to weights; what it has summed before is brought to the new highest score.
template <class V>
inline void prompt_softmax(const PromptTile& t, int64_t row) {
    float* weights = t.weights + row * kTilePositions;
    const int visible = t.visible[row];
    for (int p = (visible + kHeadMultiple - 1) / kHeadMultiple * kHeadMultiple; p < t.n_positions;
         p += V::kRows) {
        V::store(weights + p, V::zero_float());
    }
    if (visible == 0) return;
    const float before = t.highest[row];
    const float found = highest_of<V>(weights, visible);
    const float highest = found < before ? before : found;
    const float sum = V::reduce_add(exp2_row<V>(weights, visible, highest));
    if (highest == before) {
        t.sum[row] += sum;
        return;
    }
    const float shrink = exp2_of_one<V>(before - highest);
    t.highest[row] = highest;
    t.sum[row] = t.sum[row] * shrink + sum;
    float* out = t.out + row * t.d_head;
    const typename V::Float s = V::splat(shrink);
    for (int64_t d = 0; d < t.d_head; d += V::kRows) {
        V::store(out + d, V::mul(V::load_floats(out + d), s));
    }
}

template <class V>
void prompt_tile(const PromptTile& t) {
    multiply<V, false>(t.q, t.d_head, t.k, kTilePositions, t.n_rows, t.n_positions, t.d_head,
                       t.weights, kTilePositions);
    for (int64_t row = 0; row < t.n_rows; row++) prompt_softmax<V>(t, row);
    multiply<V, true>(t.weights, kTilePositions, t.v, t.d_head, t.n_rows, t.d_head, t.n_positions,
                      t.out, t.d_head);
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
    kernels.unpack_k[type] = unpack_k_tile<V, T>;
    kernels.unpack_v[type] = unpack_v_tile<V, T>;
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
    kernels.prompt_tile = prompt_tile<V>;
}

}  // namespace
}  // namespace ridge::cpu
