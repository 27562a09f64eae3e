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
    const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
    const uint32_t rest = uint32_t{bits & 0x7fffu} << 13;
    const uint32_t normal = rest + (112u << 23);
    const uint32_t special = rest + (224u << 23);  // infinity and NaN: exponent 31 -> 255
    const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(rest + (113u << 23)) -
                                                   std::bit_cast<float>(113u << 23));
    const uint32_t finite = rest < (1u << 23) ? small : normal;
    return std::bit_cast<float>(sign | (rest < (31u << 23) ? finite : special));
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
