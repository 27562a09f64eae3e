#pragma once

#include <cstdint>

#include "cuda/context.h"

// Rows of f32 four elements at a time: quad i of a row holds its elements 4 i to 4 i + 3.

namespace ridge::cuda {

inline int64_t quads_of(int64_t n) {
    return (n + 3) / 4;
}

// Whether every quad of every row lies in 16 bytes that one instruction loads. A row's arithmetic
// is the same either way.
inline bool has_aligned_quads(const Rows& rows, int64_t width) {
    const auto address = reinterpret_cast<uintptr_t>(rows.buffer->data()) + rows.offset_bytes;
    return address % 16 == 0 && width % 4 == 0 && (rows.n_rows <= 1 || rows.stride % 4 == 0);
}

// Elements past the row's end, of which the last quad may have some, are 0.
template <bool kAligned>
__device__ float4 load_quad(const float* row, int64_t quad, int64_t n) {
    if constexpr (kAligned) return reinterpret_cast<const float4*>(row)[quad];
    const float* at = row + 4 * quad;
    const int64_t left = n - 4 * quad;
    return {at[0], left > 1 ? at[1] : 0, left > 2 ? at[2] : 0, left > 3 ? at[3] : 0};
}
template <bool kAligned>
__device__ void store_quad(float4 value, float* row, int64_t quad, int64_t n) {
    if constexpr (kAligned) {
        reinterpret_cast<float4*>(row)[quad] = value;
        return;
    }
    float* at = row + 4 * quad;
    const int64_t left = n - 4 * quad;
    at[0] = value.x;
    if (left > 1) at[1] = value.y;
    if (left > 2) at[2] = value.z;
    if (left > 3) at[3] = value.w;
}

}  // namespace ridge::cuda
