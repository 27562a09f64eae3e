#pragma once

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

// By all threads of a block.
__device__ inline void find_turns(const FreshRows& f, int position, float2* turns) {
    for (int i = static_cast<int>(threadIdx.x); i < f.n_pairs; i += static_cast<int>(blockDim.x)) {
        turns[i] = sine_and_cosine(position, f.frequency[i]);
    }
}

// to[i * step] = scale * turned(normed(from))[i], by a warp. norm: [d] or null.
__device__ inline void prepare_head(const FreshRows& f, const float* from, const float* norm, int d,
                                    const float2* turns, float scale, float* to, int step) {
    constexpr int kMost = 8;  // elements of a lane: d is at most 256
    const int lane = lane_of_thread();
    float x[kMost], square = 0;
#pragma unroll
    for (int j = 0; j < kMost; j++) {
        x[j] = lane + 32 * j < d ? from[lane + 32 * j] : 0.0f;
        square = fmaf(x[j], x[j], square);
    }
    if (norm != nullptr) scale *= rsqrtf(warp_sum(square) / static_cast<float>(d) + f.eps);
#pragma unroll
    for (int j = 0; j < kMost; j++) {
        const int i = lane + 32 * j;
        if (i < d) to[i * step] = x[j] * (norm == nullptr ? scale : scale * norm[i]);
    }
    __syncwarp();  // the head is complete before its pairs are turned
    for (int pair = lane; pair < f.n_pairs; pair += 32) {
        float& first = to[(f.half_split ? pair : 2 * pair) * step];
        float& second = to[(f.half_split ? pair + f.n_pairs : 2 * pair + 1) * step];
        rotate(turns[pair], first, second);
    }
    __syncwarp();  // all pairs are turned before others read them
}

// x[i] as the cache's row holds it, by a warp; where `write`, to the cache.
__device__ inline void keep_row(const HostKvRow& row, int d, bool write, float* x) {
    for (int i = lane_of_thread(); i < d; i += 32) {
        if (row.dtype == DType::kQ8_0) {  // d is a multiple of 32, which share a scale
            static_assert(kKvScaleElements == 32);
            const f16 scale =
                q8_scale(__reduce_max_sync(kAllLanes, __float_as_uint(x[i]) & 0x7fffffffu));
            const int8_t code = q8_code(x[i], q8_inverse(scale));
            if (write) {
                write_as(code, row.element(i, 1));
                if (i % kKvScaleElements == 0) write_as(scale, row.scale(i / kKvScaleElements));
            }
            x[i] = to_float(scale) * static_cast<float>(code);
            continue;
        }
        if (write) store_element(x[i], row, i);
        if (row.dtype == DType::kF16) x[i] = to_float(to_f16(x[i]));
        if (row.dtype == DType::kBF16) x[i] = to_float(to_bf16(x[i]));
    }
}

}  // namespace ridge::cuda::decode
