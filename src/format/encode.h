#pragma once

#include <cfloat>
#include <cstdint>

#include "base/half.h"
#include "format/blocks.h"

namespace ridge {

// Quantisers: float32 -> one block, x [kSmallBlock] or [kSuperBlock]. They minimise the plain
// squared error, and never write a scale that is infinite or NaN: what is too large for binary16
// saturates, a NaN counts as zero and an infinity as the largest float.
void encode_block(const float* x, BlockQ4_0& block);
void encode_block(const float* x, BlockQ4_1& block);
void encode_block(const float* x, BlockQ5_0& block);
void encode_block(const float* x, BlockQ5_1& block);
void encode_block(const float* x, BlockQ8_0& block);
void encode_block(const float* x, BlockIQ4_NL& block);
void encode_block(const float* x, BlockQ2_K& block);
void encode_block(const float* x, BlockQ3_K& block);
void encode_block(const float* x, BlockQ4_K& block);
void encode_block(const float* x, BlockQ5_K& block);
void encode_block(const float* x, BlockQ6_K& block);
void encode_block(const float* x, BlockIQ4_XS& block);

// x as quantisers see it.
inline float finite(float x) {
    if (x != x) return 0;
    return x < -FLT_MAX ? -FLT_MAX : x > FLT_MAX ? FLT_MAX : x;
}

// Nearest binary16 or bfloat16 that is finite, as bits.
inline uint16_t finite_f16(float x) {
    constexpr float kMax = 65504.0f;
    x = finite(x);
    return to_f16(x < -kMax ? -kMax : x > kMax ? kMax : x).bits;
}
inline uint16_t finite_bf16(float x) {
    const uint16_t bits = to_bf16(finite(x)).bits;
    return (bits & 0x7fffu) == 0x7f80u ? static_cast<uint16_t>(bits - 1) : bits;
}

// The integer in [low, high] nearest to x; a half goes up, a NaN to `low`.
inline int nearest(float x, int low, int high) {
    const float l = static_cast<float>(low), h = static_cast<float>(high);
    float clamped = x > l ? x : l;
    clamped = clamped < h ? clamped : h;
    return static_cast<int>(clamped - l + 0.5f) + low;
}

// The scale s for which s * q, q = nearest(x / s, low, -low - 1), is closest to x: some candidates
// around the one that puts the value of the largest magnitude on `low`, each refined by least
// squares. x [n], |x| <= 1; low < 0. Zero for a row of zeros.
float fit_scale(const float* x, int n, int low);

// The same for the levels of IQ4_NL.
float fit_iq4_scale(const float* x, int n);
int nearest_iq4_level(float x);  // index into kIq4Values

// The scale and the min (both >= 0) for which scale * q - min, q in [0, top], is closest to x.
// x [n], |x| <= 1.
struct FittedScaleMin {
    float scale, min;
};
FittedScaleMin fit_scale_min(const float* x, int n, int top);

}  // namespace ridge
