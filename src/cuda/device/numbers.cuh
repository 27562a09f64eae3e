#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "cuda/device/instructions.cuh"

namespace ridge::cuda {

// x[..] = 0. Not by an initialiser: of arrays of arrays nvcc 13.0 then clears, at times, but the
// first.
template <class T>
__device__ __forceinline__ void clear(T& x) {
    x = 0;
}
template <class T, size_t n>
__device__ __forceinline__ void clear(T (&x)[n]) {
#pragma unroll
    for (T& part : x) clear(part);
}

// Two numbers of 16 bits to float32, exactly; x is the lower half.
__device__ inline float2 floats_of_f16(uint32_t pair) {
    __half2 halves;
    memcpy(&halves, &pair, sizeof pair);
    return __half22float2(halves);
}
__device__ inline float2 floats_of_bf16(uint32_t pair) {
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

// A power of two that brings magnitudes up to `greatest` (its bits) below 2^15, so that f16 holds
// them, and its inverse. Neither is subnormal; of zero, infinity and NaN both are finite.
struct PowerOfTwo {
    float power, inverse;
};
__device__ inline PowerOfTwo power_for_f16(uint32_t greatest) {
    // Of the exponents that f32 stores, which are kBias more than they are: kOf is that of
    // `greatest` when it has been multiplied.
    constexpr uint32_t kBias = 127, kOf = kBias + 14, kLeast = kOf - kBias + 1, kMost = 254;
    const uint32_t exponent = min(max(greatest >> 23, kLeast), kMost);
    return {__uint_as_float((kBias + kOf - exponent) << 23),
            __uint_as_float((kBias + exponent - kOf) << 23)};
}

// Rows in fixed point: an element is 256 high + low, both int8, times the inverse of a factor that
// brings magnitudes up to `greatest` (its bits) to 2^14 - 128 ... 2^15 - 256, less where it is
// below 2^-112. Of infinity and NaN the inverse is NaN.
struct FixedPoint {
    float factor, inverse;
};
__device__ inline FixedPoint fixed_point_for(uint32_t greatest) {
    constexpr uint32_t kInfinity = 0x7f800000u;
    const PowerOfTwo power = power_for_f16(greatest);
    return {power.power * (127.0f / 128),
            greatest >= kInfinity ? __uint_as_float(0x7fc00000u) : power.inverse * (128.0f / 127)};
}
// Four elements, in the order of codes' bytes (ChunkCodes::rows): 0, 2, 1, 3.
struct FixedQuad {
    uint32_t high, low;
    int sum;
};
__device__ inline FixedQuad fixed_quad(const float4& x, float factor) {
    // 1.5 * 2^23, whose last place is 1, and 128, with which the upper byte is `high`.
    constexpr float kPlaces = 12582912 + 128;
    auto places = [&](float e) { return __float_as_uint(fmaf(e, factor, kPlaces)); };
    const uint32_t a = places(x.x), b = places(x.y), c = places(x.z), d = places(x.w);
    const uint32_t even = __byte_perm(a, c, 0x5140), odd = __byte_perm(b, d, 0x5140);
    constexpr uint32_t kOfZero = 0x4b400080u;
    return {__byte_perm(even, odd, 0x7632), __byte_perm(even, odd, 0x5410) ^ 0x80808080u,
            static_cast<int>(a + b + c + d - 4 * kOfZero)};
}

// Four int8 codes, each of 128 more made unsigned (x ^ 0x80808080), to float32: code i is
// kCodeShift + code. A byte becomes bits 8 to 15 of 2^15's mantissa.
constexpr float kCodeShift = 32768 + 128;
__device__ inline float shifted_code(uint32_t biased, int i) {
    return __uint_as_float(
        __byte_perm(biased, 0x47000000u, 0x7404u | static_cast<uint32_t>(i) << 4));
}

}  // namespace ridge::cuda
