#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/attention_kernels.h"
#include "cpu/interleaved_geometry.h"

// What decode's and prompts' attention share, over a vector type V: elements of the cache's types,
// converted in registers, and exponentials, which are a polynomial.

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
    const int end = round_up_to(n, kHeadMultiple);
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

}  // namespace
}  // namespace ridge::cpu
