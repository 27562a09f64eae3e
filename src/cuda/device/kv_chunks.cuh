#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/async.cuh"
#include "cuda/device/numbers.cuh"
#include "model/rows.h"

namespace ridge::cuda {

// The cache's numbers travel in chunks of 8 that lie beside each other in a tile. A lane fetches
// chunks to its own places in a slot of shared memory, and reads them there as float32: f16, bf16
// and f32 exactly, int8 codes as kCodeShift + code, to which the caller applies their scale.
constexpr int kChunk = 8;

// What one chunk and its scales take of a lane's share of a slot.
constexpr int lane_bytes(DType type) {
    return type == DType::kQ8_0 ? 12 : type == DType::kF32 ? 32 : 16;
}

// Bytes to number i of a tile: q8_0's codes.
__device__ inline int chunk_place(DType type, int i) {
    return type == DType::kQ8_0 ? i : type == DType::kF32 ? 4 * i : 2 * i;
}

// Zeros instead where `wanted` is false: nothing is read.
template <int n_bytes>
__device__ inline void copy_async_or_zero(void* to, const void* from, bool wanted) {
    const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    if constexpr (n_bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from),
                     "r"(wanted ? 16 : 0)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(from),
                     "n"(n_bytes), "r"(wanted ? n_bytes : 0)
                     : "memory");
    }
}

// Chunk i of a slot, from `from` on.
__device__ inline void fetch_chunk(DType type, std::byte* slot, int i, int lane,
                                   const std::byte* from, bool wanted) {
    if (type == DType::kQ8_0) {
        copy_async_or_zero<8>(slot + (i * 32 + lane) * 8, from, wanted);
    } else if (type == DType::kF32) {
        copy_async_or_zero<16>(slot + (2 * i * 32 + lane) * 16, from, wanted);
        copy_async_or_zero<16>(slot + ((2 * i + 1) * 32 + lane) * 16, from + 16, wanted);
    } else {
        copy_async_or_zero<16>(slot + (i * 32 + lane) * 16, from, wanted);
    }
}
__device__ inline void read_chunk(DType type, const std::byte* slot, int i, int lane,
                                  float (&x)[kChunk]) {
    if (type == DType::kQ8_0) {
        const uint2 codes = *reinterpret_cast<const uint2*>(slot + (i * 32 + lane) * 8);
        const uint32_t low = codes.x ^ 0x80808080u, high = codes.y ^ 0x80808080u;
#pragma unroll
        for (int e = 0; e < 4; e++) x[e] = shifted_code(low, e), x[e + 4] = shifted_code(high, e);
    } else if (type == DType::kF32) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float4 four =
                *reinterpret_cast<const float4*>(slot + ((2 * i + half) * 32 + lane) * 16);
            x[4 * half] = four.x, x[4 * half + 1] = four.y, x[4 * half + 2] = four.z,
                  x[4 * half + 3] = four.w;
        }
    } else {
        const uint4 four = *reinterpret_cast<const uint4*>(slot + (i * 32 + lane) * 16);
        const uint32_t pairs[] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float2 two =
                type == DType::kF16 ? floats_of_f16(pairs[e]) : floats_of_bf16(pairs[e]);
            x[2 * e] = two.x, x[2 * e + 1] = two.y;
        }
    }
}

// Scales of q8_0 lie behind a slot's n_chunks chunks: 8 that chunks share, number by number (K), or
// for each chunk the pair that has its own (V).
__device__ inline void fetch_scales(std::byte* slot, int n_chunks, int lane,
                                    const std::byte* from) {
    copy_async_or_zero<16>(slot + n_chunks * 256 + lane * 16, from, true);
}
__device__ inline void read_scales(const std::byte* slot, int n_chunks, int lane,
                                   float (&scale)[kChunk]) {
    read_chunk(DType::kF16, slot + n_chunks * 256, 0, lane, scale);
}
__device__ inline void fetch_scale_pair(std::byte* slot, int n_chunks, int i, int lane,
                                        const std::byte* from, bool wanted) {
    copy_async_or_zero<4>(slot + n_chunks * 256 + (i * 32 + lane) * 4, from, wanted);
}
__device__ inline float read_scale(const std::byte* slot, int n_chunks, int i, int lane,
                                   int which) {
    const float2 pair = floats_of_f16(
        *reinterpret_cast<const uint32_t*>(slot + n_chunks * 256 + (i * 32 + lane) * 4));
    return which == 0 ? pair.x : pair.y;
}

}  // namespace ridge::cuda
