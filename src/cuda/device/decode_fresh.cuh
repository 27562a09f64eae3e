#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/device/block.cuh"
#include "cuda/device/kv_cache.cuh"

// What decode attention does with rows that the projections have just made: their heads are normed
// and turned, and the newest K and V go to the cache, where that is not done before.

namespace ridge::cuda::decode {

constexpr int kMostHead = 256;             // d_head
constexpr int kMostPairs = kMostHead / 2;  // of a head that RoPE turns

struct FreshRows {
    const float* qkv = nullptr;  // [n_rows, (n_heads + 2 n_kv_heads) d_head]; null: q and cache are
                                 // complete
    int64_t stride = 0;
    const float *q_norm = nullptr, *k_norm = nullptr;  // [d_head], or null
    float eps = 0;
    int n_heads = 0;
    const int64_t* slots = nullptr;     // [n_rows]; -1: nowhere
    const double* frequency = nullptr;  // [n_pairs]
    int n_pairs = 0;
    bool half_split = false;

    __device__ bool is_there() const { return qkv != nullptr; }
};

// The newest K or V of a K/V head in shared memory, as the cache is to hold it.
struct NewRow {
    float* x;        // [d]
    int8_t* codes;   // of q8_0: [d]
    __half* scales;  // [d / 32]
};
__host__ __device__ constexpr int new_row_bytes(int d) {
    return (5 * d + d / kKvScaleElements * 2 + 15) / 16 * 16;
}

// x as a cache of the type will hold it, not of q8_0.
__device__ inline float rounded_to(DType type, float x) {
    if (type == DType::kF16) return __half2float(__float2half_rn(x));
    return type == DType::kBF16 ? __bfloat162float(__float2bfloat16_rn(x)) : x;
}

}  // namespace ridge::cuda::decode
