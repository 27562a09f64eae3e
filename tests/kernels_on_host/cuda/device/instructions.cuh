#pragma once

#include "cuda/device/fragments.cuh"

// The twin of src/cuda/device/instructions.cuh, of what matvec needs.

namespace ridge::cuda {

inline uint32_t two_f16(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}
inline float greater_or_nan(float x, float y) {
    y = std::abs(y);
    return std::isnan(x) || std::isnan(y) ? NAN : std::max(x, y);
}
template <class T>
inline void load_once(T& x, const uint8_t* at, bool wanted) {
    if (wanted) memcpy(&x, at, sizeof x);
}
template <class T>
inline void load_shared(T& x, SharedAddress at) {
    memcpy(&x, host_device::in_shared_memory(at, sizeof x), sizeof x);
}
template <int n>
inline void load_where(uint32_t (&x)[n], SharedAddress at, bool wanted) {
    if (wanted) load_shared(x, at);
}
inline void load_quad(float4& x, const float* at) {
    memcpy(&x, at, sizeof x);
}

}  // namespace ridge::cuda
