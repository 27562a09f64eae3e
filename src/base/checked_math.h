#pragma once

#include <cstdint>
#include <optional>

namespace ridge {

// Sums and products of untrusted 64-bit numbers: empty where the result does not fit.
inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
    return sum;
}

inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
    return product;
}

// Smallest multiple of `step` (> 0) that is at least `value`; empty where it does not fit.
inline std::optional<uint64_t> checked_round_up(uint64_t value, uint64_t step) {
    uint64_t rest = value % step;
    return rest == 0 ? std::optional<uint64_t>(value) : checked_add(value, step - rest);
}

// The same of trusted numbers.
constexpr int64_t round_up(int64_t value, int64_t step) {
    return (value + step - 1) / step * step;
}

// Rounded up, of numbers that are not negative and whose sum fits.
constexpr int ceil_div(int value, int divisor) {
    return (value + divisor - 1) / divisor;
}

}  // namespace ridge
