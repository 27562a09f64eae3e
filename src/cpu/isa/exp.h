#pragma once

#include <cstdint>
#include <cstring>

// Functions of one number without branches and tables, so that loops over them become vectors.

namespace ridge::cpu {
namespace {

inline float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
inline uint32_t bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline double double_of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
inline uint64_t bits_of_double(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// condition ? a : b by masks: of a conditional expression g++ makes a branch where one side is a
// constant, and then no vectors of the loop around it.
inline float select(bool condition, float a, float b) {
    const uint32_t mask = 0 - static_cast<uint32_t>(condition);
    return float_of_bits((bits_of_float(a) & mask) | (bits_of_float(b) & ~mask));
}
inline double select(bool condition, double a, double b) {
    const uint64_t mask = 0 - static_cast<uint64_t>(condition);
    return double_of_bits((bits_of_double(a) & mask) | (bits_of_double(b) & ~mask));
}

// exp(x) in float32, within 2 units in the last place; infinity above 88.7, 0 below -104, NaN of
// NaN. x = n ln 2 + r with |r| <= ln 2 / 2 (Cody and Waite 1980: ln 2 in two parts, the first of
// which has n times it exact), a polynomial in r, and 2^n in two factors, since n may be out of the
// range of one exponent on either end.
inline float exp_float(float x) {
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    x = select(x < -104.0f, -104.0f, x);
    x = select(x > 89.0f, 89.0f, x);
    const float shifted = x * 1.44269504f + kRound;
    const float n = shifted - kRound;
    const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = (p * r) * r + r + 1.0f;
    const auto whole = static_cast<int32_t>(bits_of_float(shifted) - bits_of_float(kRound));
    const int32_t half = whole >> 1;
    const float low = float_of_bits(static_cast<uint32_t>(half + 127) << 23);
    const float high = float_of_bits(static_cast<uint32_t>(whole - half + 127) << 23);
    return p * low * high;
}

// exp(x) in float64 for x <= 0, within 3 units in the last place; 0 below -708. As above.
inline double exp_negative(double x) {
    constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
    const double in_range = select(x < -708.0, -708.0, x);
    const double shifted = in_range * 1.4426950408889634 + kRound;
    const double n = shifted - kRound;
    const double r = (in_range - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
    double p = 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = (p * r) * r + r + 1.0;
    const uint64_t exponent = bits_of_double(shifted) - bits_of_double(kRound) + 1023;
    const double result = p * double_of_bits(exponent << 52);
    return select(x < -708.0, 0.0, result);
}

}  // namespace
}  // namespace ridge::cpu
