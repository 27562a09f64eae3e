#pragma once

#include <cstdlib>
#include <type_traits>

#include "kernels_on_host/host_device.h"

// The twin of src/cuda/device/mma.cuh, of what matvec needs: products as the PTX ISA defines them,
// sums of f16 in float64, rounded once.

namespace ridge::cuda {

// d[r], of row 8 (r / 2) + g and column 2 t + r % 2, += f(a's register, b's, k of the register) for
// all registers along k of that row and column.
template <class Sum, class T, size_t n, class F>
inline void for_elements(T (&d)[4], const uint32_t (&a)[n], const uint32_t (&b)[n / 2], F f) {
    using namespace host_device;
    LaneWords words{};
    memcpy(words.data(), a, sizeof a);
    memcpy(words.data() + 4, b, sizeof b);
    const auto& lanes = exchange(words);
    const int g = lane() / 4, t = lane() % 4;
    for (int r = 0; r < 4; r++) {
        Sum sum = d[r];
        for (size_t half = 0; half < n / 2; half++) {
            for (int of = 0; of < 4; of++) {
                const LaneWords& row = lanes[static_cast<size_t>(4 * g + of)];
                const LaneWords& column = lanes[static_cast<size_t>(4 * (2 * t + r % 2) + of)];
                sum += f(row[2 * half + static_cast<size_t>(r / 2)], column[4 + half]);
            }
        }
        d[r] = static_cast<T>(sum);
        if (std::is_integral_v<T> && static_cast<Sum>(d[r]) != sum) std::abort();  // an overflow
    }
    end_exchange();
}

inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    for_elements<double>(d, a, b, [](uint32_t x, uint32_t y) {
        __half2 left, right;
        memcpy(&left, &x, sizeof x), memcpy(&right, &y, sizeof y);
        const float2 l = __half22float2(left), r = __half22float2(right);
        return double{l.x} * double{r.x} + double{l.y} * double{r.y};
    });
}

inline int64_t products_of_codes(uint32_t a, uint32_t b) {
    int64_t sum = 0;
    for (int i = 0; i < 4; i++) {
        sum += int64_t{static_cast<uint8_t>(a >> (8 * i))} * static_cast<int8_t>(b >> (8 * i));
    }
    return sum;
}
inline void mma_codes(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    for_elements<int64_t>(d, a, b, products_of_codes);
}
inline void mma_codes(int (&d)[4], const uint32_t (&a)[2], uint32_t b) {
    const uint32_t only[1] = {b};
    for_elements<int64_t>(d, a, only, products_of_codes);
}

template <uint32_t mask, uint32_t bits>
inline uint32_t and_or(uint32_t a) {
    return (a & mask) | bits;
}
template <uint32_t mask>
inline uint32_t and_or(uint32_t a, uint32_t bits) {
    return (a & mask) | bits;
}

}  // namespace ridge::cuda
