#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/host_device.h"

namespace ridge {

// Storage types of 16 bits. Arithmetic is done in float; these only convert.
struct f16 {  // IEEE 754 binary16
    uint16_t bits;
};
struct bf16 {  // the upper half of a binary32
    uint16_t bits;
};

RIDGE_HOST_DEVICE inline float to_float(bf16 value) {
    return std::bit_cast<float>(uint32_t{value.bits} << 16);
}

// Round to nearest, ties to even; a NaN stays a NaN (quiet).
RIDGE_HOST_DEVICE inline bf16 to_bf16(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
    return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// Exact: every binary16 value, subnormals, infinities and NaNs included, is a binary32 value.
RIDGE_HOST_DEVICE inline float to_float(f16 value) {
    uint32_t sign = uint32_t{value.bits & 0x8000u} << 16;
    uint32_t rest = uint32_t{value.bits & 0x7fffu} << 13;  // exponent and mantissa in place
    uint32_t exponent = rest & 0x0f800000u;
    rest += 112u << 23;             // rebias 15 -> 127
    if (exponent == 0x0f800000u) {  // infinity or NaN
        rest += 112u << 23;
    } else if (exponent == 0) {  // zero or subnormal: renormalise by a subtraction
        rest += 1u << 23;
        rest =
            std::bit_cast<uint32_t>(std::bit_cast<float>(rest) - std::bit_cast<float>(113u << 23));
    }
    return std::bit_cast<float>(sign | rest);
}

// Round to nearest, ties to even; overflow gives infinity, a NaN stays a NaN (quiet).
RIDGE_HOST_DEVICE inline f16 to_f16(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
    bits &= 0x7fffffffu;
    if (bits >= 0x7f800000u) {  // infinity or NaN
        uint16_t mantissa =
            bits > 0x7f800000u ? static_cast<uint16_t>(0x200u | ((bits >> 13) & 0x3ffu)) : 0;
        return {static_cast<uint16_t>(sign | 0x7c00u | mantissa)};
    }
    if (bits >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds past 65504
    if (bits <
        0x38800000u) {  // below 2^-14: a subnormal, rounded by adding 0.5 = 2^23 units of 2^-24
        float shifted = std::bit_cast<float>(bits) + 0.5f;
        return {static_cast<uint16_t>(
            sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)))};
    }
    bits += 0xfffu + ((bits >> 13) & 1u) - (112u << 23);
    return {static_cast<uint16_t>(sign | (bits >> 13))};
}

}  // namespace ridge
