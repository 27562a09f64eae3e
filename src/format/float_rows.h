#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace ridge {

// to_float(f16) of base/half.h without a branch, for loops over rows: compilers make vector code of
// it. Normal numbers only need the exponent moved from bias 15 to 127. Zero and subnormals get the
// exponent of 2^-14, an implicit one that is not theirs, and lose it by a subtraction (exact).
inline float half_to_float(uint16_t bits) {
    const int32_t sign = static_cast<int32_t>(uint32_t{bits & 0x8000u} << 16);
    const int32_t rest = (bits & 0x7fff) << 13;
    const float subnormal =
        std::bit_cast<float>(rest + (113 << 23)) - std::bit_cast<float>(113 << 23);
    const int32_t is_subnormal = -(rest < (1 << 23)), is_special = -(rest >= (31 << 23));
    const int32_t normal = rest + (112 << 23) + (is_special & (112 << 23));  // 31 becomes 255
    const int32_t magnitude =
        (std::bit_cast<int32_t>(subnormal) & is_subnormal) | (normal & ~is_subnormal);
    return std::bit_cast<float>(sign | magnitude);
}

// Rows of 16-bit floats at any alignment -> float32, exact. in [n], out [n].
inline void f16_row_to_float(const std::byte* __restrict in, int64_t n, float* __restrict out) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, in + 2 * i, sizeof(bits));
        out[i] = half_to_float(bits);
    }
}

inline void bf16_row_to_float(const std::byte* __restrict in, int64_t n, float* __restrict out) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, in + 2 * i, sizeof(bits));
        out[i] = std::bit_cast<float>(uint32_t{bits} << 16);
    }
}

}  // namespace ridge
