#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/device/block.cuh"
#include "cuda/device/kv_cache.cuh"
#include "cuda/device/turns.cuh"

// What decode attention does with rows that the projections have just made: their heads are normed
// and turned, and the newest K and V go to the cache, where that is not done before.

namespace ridge::cuda::decode {

constexpr int kMostPairs = 128;  // of a head that RoPE turns

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

// to[i * step] = scale * turned(normed(from))[i], by a warp. norm: [d] or null.
__device__ inline void prepare_head(const FreshRows& f, const float* from, const float* norm, int d,
                                    const float2* turns, float scale, float* to, int step) {
    constexpr int kMost = 8;  // elements of a lane: d is at most 256
    const int lane = lane_of_thread();
    float x[kMost], weight[kMost], square = 0;
#pragma unroll
    for (int j = 0; j < kMost; j++) {
        const bool is_there = lane + 32 * j < d;
        x[j] = is_there ? from[lane + 32 * j] : 0.0f;
        weight[j] = is_there && norm != nullptr ? norm[lane + 32 * j] : 1.0f;
    }
    if (norm != nullptr) {
#pragma unroll
        for (int j = 0; j < kMost; j++) square = fmaf(x[j], x[j], square);
        scale *= rsqrtf(warp_sum(square) / static_cast<float>(d) + f.eps);
    }
#pragma unroll
    for (int j = 0; j < kMost; j++) {
        const int i = lane + 32 * j;
        if (i < d) to[i * step] = x[j] * (scale * weight[j]);
    }
    __syncwarp();  // the head is complete before its pairs are turned
    for (int pair = lane; pair < f.n_pairs; pair += 32) {
        float& first = to[(f.half_split ? pair : 2 * pair) * step];
        float& second = to[(f.half_split ? pair + f.n_pairs : 2 * pair + 1) * step];
        rotate(turns[pair], first, second);
    }
    __syncwarp();  // all pairs are turned before others read them
}

// x as a cache of the type will hold it, not of q8_0.
__device__ inline float rounded_to(DType type, float x) {
    if (type == DType::kF16) return __half2float(__float2half_rn(x));
    return type == DType::kBF16 ? __bfloat162float(__float2bfloat16_rn(x)) : x;
}

// x [d] becomes what the cache's row will hold, by a warp. A row of q8_0 is kept at once, the
// others later, by keep_row; where not `keeps` nothing is.
__device__ inline void round_row(const HostKvRow& row, int d, bool keeps, float* x) {
    for (int i = lane_of_thread(); i < d; i += 32) {
        if (row.dtype != DType::kQ8_0) {
            x[i] = rounded_to(row.dtype, x[i]);
            continue;
        }
        static_assert(kKvScaleElements == 32);  // d is a multiple of it
        const f16 scale =
            q8_scale(__reduce_max_sync(kAllLanes, __float_as_uint(x[i]) & 0x7fffffffu));
        const int8_t code = q8_code(x[i], q8_inverse(scale));
        if (keeps) {
            write_as(code, row.element(i, 1));
            if (i % kKvScaleElements == 0) write_as(scale, row.scale(i / kKvScaleElements));
        }
        x[i] = to_float(scale) * static_cast<float>(code);
    }
}
// x [d] as round_row has left it, to the cache.
__device__ inline void keep_row(const HostKvRow& row, int d, const float* x) {
    for (int i = lane_of_thread(); i < d; i += 32) {
        if (row.dtype == DType::kF16) {
            write_as(__float2half_rn(x[i]), row.element(i, 2));
        } else if (row.dtype == DType::kBF16) {
            write_as(__float2bfloat16_rn(x[i]), row.element(i, 2));
        } else if (row.dtype == DType::kF32) {
            write_as(x[i], row.element(i, 4));
        }
    }
}

}  // namespace ridge::cuda::decode
