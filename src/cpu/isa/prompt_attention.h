#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/interleaved_geometry.h"
#include "cpu/isa/attention_elements.h"

// A prompt's attention, written once over a vector type V and over what multiplies: vectors of
// float32, vectors of bf16 pairs, or tiles (isa/tile_attention.h). In vectors, lanes are positions
// where scores are made and elements of V where values are summed; sums stay in registers, and
// nothing is added across lanes.

namespace ridge::cpu {
namespace {

// --- operands ---

// Vectors of elements of a K tile, from element (d, position) on; of a V tile from (position, d).
template <class V, class T>
inline typename V::Float k_elements(const uint8_t* tile, int d_head, int d, int position) {
    const int64_t at = int64_t{d} * kTilePositions + position;
    const typename V::Float k = T::template load<V>(tile + at * T::kBytes);
    if constexpr (!T::kScales) return k;
    const int64_t scale = int64_t{d / kScaleElements} * kTilePositions + position;
    return V::mul(k, V::load_f16(scales_of(tile, d_head) + 2 * scale));
}
template <class V, class T>
inline typename V::Float v_elements(const uint8_t* tile, int d_head, int position, int d) {
    const int64_t at = int64_t{position} * d_head + d;
    const typename V::Float v = T::template load<V>(tile + at * T::kBytes);
    if constexpr (!T::kScales) return v;
    const int64_t scale = int64_t{position} * (d_head / kScaleElements) + d / kScaleElements;
    return V::mul(v, V::splat_f16(scales_of(tile, d_head) + 2 * scale));
}

// 2^x for x <= 0 as exp2_of, within 2.9e-6 of itself: enough for what is rounded to bf16.
template <class V>
inline typename V::Float exp2_for_bf16(typename V::Float x) {
    using Float = typename V::Float;
    const Float round = V::splat(12582912.0f);
    const Float shifted = V::add(x, round);
    const Float r = V::sub(x, V::sub(shifted, round));
    Float p = V::splat(9.58285294e-3f);
    p = V::fma(p, r, V::splat(5.59064262e-2f));
    p = V::fma(p, r, V::splat(0.240240991f));
    p = V::fma(p, r, V::splat(0.693124175f));
    p = V::fma(p, r, V::splat(1.0f));
    return V::zero_below(x, V::splat(-126.0f), V::add_exponent(p, shifted));
}

// The bits of x, 0 where it is a finite number: of a float32, of each of a pair of bf16.
inline uint32_t nonfinite_float(uint32_t x) {
    return (x & 0x7f800000u) == 0x7f800000u ? 0xffffffffu : 0;
}
inline uint32_t nonfinite_pair(uint32_t x) {
    return ((x & 0x7f800000u) == 0x7f800000u ? 0xffff0000u : 0) |
           ((x & 0x7f80u) == 0x7f80u ? 0xffffu : 0);
}

// What a product is made of along what it sums over: one number at a time, all in float32.
template <class V>
struct FloatOperands {
    using Vector = V;
    using Float = typename V::Float;
    using Element = float;
    static constexpr int kNumbers = 1;  // in an Element
    static constexpr int kPositions = 16;

    static Float load(const float* p) { return V::load_floats(p); }
    static Float broadcast(const float* p) { return V::broadcast(p); }
    static Float add_product(Float acc, Float a, Float b) { return V::fma(a, b, acc); }

    static int depth(int d_head) { return d_head; }
    static void set_query(const float* x, float scale, int d_head, int64_t row, void* q) {
        float* to = static_cast<float*>(q) + row * d_head;
        for (int d = 0; d < d_head; d++) to[d] = x[d] * scale;
    }
    template <class T>
    static void unpack_k(const uint8_t* tile, int d_head, int n_positions, void* out) {
        auto* k = static_cast<float*>(out);
        for (int d = 0; d < d_head; d++) {
            for (int p = 0; p < n_positions; p += V::kRows) {
                V::store(k + int64_t{d} * kTilePositions + p, k_elements<V, T>(tile, d_head, d, p));
            }
        }
    }
    template <class T>
    static void unpack_v(const uint8_t* tile, int d_head, int n_positions, void* out) {
        auto* v = static_cast<float*>(out);
        for (int p = 0; p < n_positions; p++, v += d_head) {
            for (int d = 0; d < d_head; d += V::kRows) {
                V::store(v + d, v_elements<V, T>(tile, d_head, p, d));
            }
        }
        for (int p = n_positions; p % kPositions != 0; p++, v += d_head) {
            for (int d = 0; d < d_head; d += V::kRows) V::store(v + d, V::zero_float());
        }
    }
    static uint32_t nonfinite(uint32_t x) { return nonfinite_float(x); }
    static float value(const void* v, int d_head, int position, int d) {
        return static_cast<const float*>(v)[int64_t{position} * d_head + d];
    }
    static float weight(const float* weights, int position) { return weights[position]; }

    // weights[p] = exp2(scores[p] - highest) for all positions of a row's n; returns their sum.
    template <class Score>
    static Float put_weights(Score score, int n, Float highest, Float sum, float* weights) {
#pragma GCC unroll 4
        for (int p = 0; p < n; p += V::kRows) {
            const Float w = exp2_of<V>(V::sub(score(p), highest));
            V::store(weights + p, w);
            sum = V::add(sum, w);
        }
        return sum;
    }
};

// Pairs of bf16, whose sums are float32. V has besides what it has for float32
//   Int pack_bf16(Float a, Float b)                   a's numbers rounded, then b's
//   void store_bf16_pairs(uint8_t*, Float a, Float b) [kRows][2]
//   Float dot_bf16(Float acc, Int a, Int b)           acc[i] += a[i][0] b[i][0] + a[i][1] b[i][1]
//   Int splat_pair(uint32_t)
template <class V>
struct Bf16Operands {
    using Vector = V;
    using Float = typename V::Float;
    using Int = typename V::Int;
    using Element = uint32_t;
    static constexpr int kNumbers = 2;
    static constexpr int kPositions = 32;

    static Int load(const uint32_t* p) { return V::load(reinterpret_cast<const uint8_t*>(p)); }
    static Int broadcast(const uint32_t* p) { return V::splat_pair(*p); }
    static Float add_product(Float acc, Int a, Int b) { return V::dot_bf16(acc, a, b); }

    static int depth(int d_head) { return round_up_to(d_head, kPromptDepth) / 2; }  // pairs
    static void set_query(const float* x, float scale, int d_head, int64_t row, void* q) {
        uint32_t* to = static_cast<uint32_t*>(q) + row * depth(d_head);
        const Float s = V::splat(scale);
        for (int d = 0; d < 2 * depth(d_head); d += 2 * V::kRows) {
            auto part = [&](int from) {
                return from < d_head ? V::mul(V::load_floats(x + from), s) : V::zero_float();
            };
            V::store_bytes(reinterpret_cast<uint8_t*>(to + d / 2),
                           V::pack_bf16(part(d), part(d + V::kRows)));
        }
    }
    template <class T>
    static void unpack_k(const uint8_t* tile, int d_head, int n_positions, void* out) {
        auto* k = static_cast<uint8_t*>(out);
        constexpr int64_t kRowBytes = kTilePositions * sizeof(uint32_t);
        for (int d = 0; d < d_head; d += 2, k += kRowBytes) {
            for (int p = 0; p < n_positions; p += V::kRows) {
                V::store_bf16_pairs(k + p * sizeof(uint32_t), k_elements<V, T>(tile, d_head, d, p),
                                    k_elements<V, T>(tile, d_head, d + 1, p));
            }
        }
        memset(k, 0, static_cast<size_t>((depth(d_head) - d_head / 2) * kRowBytes));
    }
    template <class T>
    static void unpack_v(const uint8_t* tile, int d_head, int n_positions, void* out) {
        auto* v = static_cast<uint8_t*>(out);
        const int64_t row_bytes = d_head * int64_t{sizeof(uint32_t)};
        for (int p = 0; p < n_positions; p += 2, v += row_bytes) {
            for (int d = 0; d < d_head; d += V::kRows) {
                const Float second = p + 1 < n_positions ? v_elements<V, T>(tile, d_head, p + 1, d)
                                                         : V::zero_float();
                V::store_bf16_pairs(v + d * sizeof(uint32_t), v_elements<V, T>(tile, d_head, p, d),
                                    second);
            }
        }
        const int n_pairs = (round_up_to(n_positions, kPositions) - n_positions) / 2;
        memset(v, 0, static_cast<size_t>(n_pairs * row_bytes));
    }
    static uint32_t nonfinite(uint32_t x) { return nonfinite_pair(x); }
    static float number(const void* bf16, int64_t i) {
        uint16_t high;
        memcpy(&high, static_cast<const uint8_t*>(bf16) + 2 * i, sizeof high);
        const uint32_t bits = uint32_t{high} << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    static float value(const void* v, int d_head, int position, int d) {
        return number(v, 2 * (int64_t{position / 2} * d_head + d) + position % 2);
    }
    static float weight(const uint32_t* weights, int position) { return number(weights, position); }

    // The sum is that of the rounded weights: what is lost by rounding them is an average with
    // other weights, not a smaller one.
    template <class Score>
    static Float put_weights(Score score, int n, Float highest, Float sum, uint32_t* weights) {
        const Int ones = V::splat_pair(0x3f803f80u);
#pragma GCC unroll 2
        for (int p = 0; p < n; p += 2 * V::kRows) {
            const Float a = exp2_for_bf16<V>(V::sub(score(p), highest));
            const Float b = exp2_for_bf16<V>(V::sub(score(p + V::kRows), highest));
            const Int both = V::pack_bf16(a, b);
            V::store_bytes(reinterpret_cast<uint8_t*>(weights + p / 2), both);
            sum = V::dot_bf16(sum, both, ones);
        }
        return sum;
    }
};

// --- products in vectors ---

// c[i, j] (+)= sum_k a[i, k] * b[k, j] for kM rows i and kN vectors of columns j, k in order, in
// steps of an Element.
template <class O, int kM, int kN, bool kAdd>
inline void multiply_part(const typename O::Element* a, int64_t a_stride,
                          const typename O::Element* b, int64_t b_stride, int64_t n_k, float* c,
                          int64_t c_stride) {
    using V = typename O::Vector;
    typename V::Float acc[kM][kN];
#pragma GCC unroll 16
    for (int i = 0; i < kM; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < kN; j++) {
            acc[i][j] = kAdd ? V::load_floats(c + i * c_stride + j * V::kRows) : V::zero_float();
        }
    }
    for (int64_t k = 0; k < n_k; k++) {
        decltype(O::load(b)) row[kN];
#pragma GCC unroll 8
        for (int j = 0; j < kN; j++) row[j] = O::load(b + k * b_stride + j * V::kRows);
#pragma GCC unroll 16
        for (int i = 0; i < kM; i++) {
            const auto x = O::broadcast(a + i * a_stride + k);
#pragma GCC unroll 8
            for (int j = 0; j < kN; j++) acc[i][j] = O::add_product(acc[i][j], row[j], x);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kM; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < kN; j++) V::store(c + i * c_stride + j * V::kRows, acc[i][j]);
    }
}

// All of c [m, n]: m a multiple of V::kPromptRows, n of 16.
template <class O, bool kAdd>
inline void multiply(const typename O::Element* a, int64_t a_stride, const typename O::Element* b,
                     int64_t b_stride, int64_t m, int64_t n, int64_t n_k, float* c,
                     int64_t c_stride) {
    using V = typename O::Vector;
    constexpr int kM = V::kPromptRows, kN = V::kPromptVectors;
    int64_t j = 0;
    auto columns = [&](auto part, int vectors) {
        for (int64_t i = 0; i < m; i += kM) {
            part(a + i * a_stride, a_stride, b + j, b_stride, n_k, c + i * c_stride + j, c_stride);
        }
        j += vectors * V::kRows;
    };
    while (j + kN * V::kRows <= n) columns(multiply_part<O, kM, kN, kAdd>, kN);
    if constexpr (kN > 2) {
        while (j + 2 * V::kRows <= n) columns(multiply_part<O, kM, 2, kAdd>, 2);
    }
    while (j < n) columns(multiply_part<O, kM, 1, kAdd>, 1);
}

template <class O, int kBlockRows>
struct VectorUnit : O {
    using Element = typename O::Element;
    static constexpr int kTileRows = O::Vector::kPromptRows;
    static constexpr int kRows = kBlockRows;  // at a time
    static_assert(kRows <= kPromptRows);
    static void begin() {}
    static void end() {}

    static void make_scores(const PromptTile& t, int64_t row, int64_t n_rows, int n_positions) {
        const int64_t depth = O::depth(t.d_head);
        multiply<O, false>(static_cast<const Element*>(t.q) + row * depth, depth,
                           static_cast<const Element*>(t.k), kTilePositions, n_rows, n_positions,
                           t.d_head / O::kNumbers, t.scores, kTilePositions);
    }
    static void sum_values(const PromptTile& t, int64_t row, int64_t n_rows, int n_positions) {
        multiply<O, true>(static_cast<const Element*>(t.weights), kTilePositions / O::kNumbers,
                          static_cast<const Element*>(t.v), t.d_head, n_rows, t.d_head,
                          n_positions / O::kNumbers, t.out + row * t.d_head, t.d_head);
    }
};

// --- a tile ---

// One row's scores to weights, of n_positions. The row's highest is a whole number: what it has
// summed before is brought to a new one exactly, and how a weight is rounded does not depend on it.
template <class U, bool kSeesAll>
inline void weigh_row(const PromptTile& t, int64_t row, int n_positions, const float* scores,
                      typename U::Element* weights) {
    using V = typename U::Vector;
    using Float = typename V::Float;
    const int visible = t.visible[row];
    const Float lowest = V::splat(-__builtin_inff());
    auto score = [&](int p) {
        const Float x = V::load_floats(scores + p);
        if constexpr (kSeesAll) return x;
        return V::keep_first(x, visible > p ? visible - p : 0, lowest);
    };
    const int n = kSeesAll ? kTilePositions : n_positions;
    Float max = lowest;
#pragma GCC unroll 4
    for (int p = 0; p < n; p += V::kRows) max = V::max(max, score(p));
    const float before = t.highest[row], found = __builtin_ceilf(V::reduce_max(max));
    const float highest = found < before ? before : found;
    float* sum = t.sum + row * kPromptSumLanes;
    if (highest != before) {
        t.highest[row] = highest;
        const Float shrink = V::splat(exp2_of_one<V>(before - highest));
        V::store(sum, V::mul(V::load_floats(sum), shrink));
        float* out = t.out + row * t.d_head;
        for (int d = 0; d < t.d_head; d += V::kRows) {
            V::store(out + d, V::mul(V::load_floats(out + d), shrink));
        }
    }
    V::store(sum, U::put_weights(score, n, V::splat(highest), V::load_floats(sum), weights));
}

// What hide_nonfinite took out of v, for the rows that see it.
template <class U>
void add_nonfinite(const PromptTile& t, int64_t row, int64_t n_rows) {
    const auto* weights = static_cast<const typename U::Element*>(t.weights);
    for (int64_t i = 0; i < n_rows; i++, weights += kTilePositions / U::kNumbers) {
        float* out = t.out + (row + i) * t.d_head;
        for (int p = 0; p < t.visible[row + i]; p++) {
            for (int d = 0; d < t.d_head; d++) {
                const float value = U::value(t.nonfinite_v, t.d_head, p, d);
                uint32_t bits;
                memcpy(&bits, &value, sizeof bits);
                if (nonfinite_float(bits) != 0) out[d] += U::weight(weights, p) * value;
            }
        }
    }
}

template <class U>
void attend_tile(const PromptTile& t) {
    U::begin();
    for (int64_t row = 0; row < t.n_rows; row += U::kRows) {
        const int64_t n_rows = t.n_rows - row < U::kRows ? t.n_rows - row : U::kRows;
        int seen = 0;
        for (int64_t i = 0; i < n_rows; i++) {
            seen = t.visible[row + i] > seen ? t.visible[row + i] : seen;
        }
        if (seen == 0) continue;
        const int n_positions = round_up_to(seen, U::kPositions);
        U::make_scores(t, row, n_rows, n_positions);
        auto* weights = static_cast<typename U::Element*>(t.weights);
        for (int64_t i = 0; i < n_rows; i++, weights += kTilePositions / U::kNumbers) {
            const float* scores = t.scores + i * kTilePositions;
            if (t.visible[row + i] == kTilePositions) {
                weigh_row<U, true>(t, row + i, n_positions, scores, weights);
            } else if (t.visible[row + i] > 0) {
                weigh_row<U, false>(t, row + i, n_positions, scores, weights);
            } else {
                memset(weights, 0,
                       static_cast<size_t>(n_positions / U::kNumbers) * sizeof *weights);
            }
        }
        U::sum_values(t, row, n_rows, n_positions);
        if (t.nonfinite_v != nullptr) add_nonfinite<U>(t, row, n_rows);
    }
    U::end();
}

template <class U>
bool hide_nonfinite(const void* v, int d_head, int n_positions, void* finite) {
    const int64_t n = int64_t{round_up_to(n_positions, U::kPositions)} / U::kNumbers * d_head;
    const auto* from = static_cast<const uint8_t*>(v);
    uint32_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, from + 4 * i, sizeof bits);
        found |= U::nonfinite(bits);
    }
    if (found == 0) return false;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, from + 4 * i, sizeof bits);
        bits &= ~U::nonfinite(bits);
        memcpy(static_cast<uint8_t*>(finite) + 4 * i, &bits, sizeof bits);
    }
    return true;
}

template <class U>
constexpr PromptUnit prompt_unit(int block_rows) {
    return {
        U::kTileRows,
        block_rows,
        U::kPositions,
        U::set_query,
        {U::template unpack_k<KvF32>, U::template unpack_k<KvF16>, U::template unpack_k<KvBF16>,
         U::template unpack_k<KvQ8>},
        {U::template unpack_v<KvF32>, U::template unpack_v<KvF16>, U::template unpack_v<KvBF16>,
         U::template unpack_v<KvQ8>},
        hide_nonfinite<U>,
        attend_tile<U>,
    };
}

template <class V>
constexpr PromptUnit float_prompt_unit() {
    return prompt_unit<VectorUnit<FloatOperands<V>, 60>>(60);
}
template <class V>
constexpr PromptUnit bf16_prompt_unit() {
    return prompt_unit<VectorUnit<Bf16Operands<V>, 12>>(120);
}

}  // namespace
}  // namespace ridge::cpu
