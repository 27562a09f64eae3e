#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/device/decode_shape.cuh"
#include "cuda/device/decode_units.cuh"

// Decode attention without tensor units: of every d_head and pair of types, in f32.

namespace ridge::cuda::decode {

// Number i of a tile, of which q8_0's scale is number `scale` of its scales.
__device__ __forceinline__ float read_number(const std::byte* tile, DType type, int d, int i,
                                             int scale) {
    if (type == DType::kF32) return read_as<float>(tile + 4 * i);
    if (type == DType::kF16) return __half2float(read_as<__half>(tile + 2 * i));
    if (type == DType::kBF16) return __bfloat162float(read_as<__nv_bfloat16>(tile + 2 * i));
    return __half2float(read_as<__half>(tile + kKvPagePositions * d + 2 * scale)) *
           static_cast<float>(read_as<int8_t>(tile + i));
}

// This warp's part of an item. Of a unit each lane has a position's scores and weights; then each
// has every 32nd element of all heads.
template <class S>
__device__ __forceinline__ void attend_units(const S& s, const DecodeRows& a, int kv_head,
                                             const Item& item, const Room<S>& room, int warp,
                                             int lane) {
    constexpr int kElements = kMostHead / 32;  // of a lane
    const auto* queries = reinterpret_cast<const float*>(room.queries);
    const int n_units = (item.n_in_block + kUnit - 1) / kUnit, d = s.d;
    const int newest = item.has_fresh ? item.n_in_block - 1 : -1;
    float highest[S::kHeads], total[S::kHeads], sums[S::kHeads][kElements];
#pragma unroll
    for (int h = 0; h < S::kHeads; h++) {
        highest[h] = -INFINITY, total[h] = 0;
#pragma unroll
        for (int j = 0; j < kElements; j++) sums[h][j] = 0;
    }
#pragma unroll 1
    for (int unit = warp; unit < n_units; unit += S::kWarps) {
        const int64_t page =
            item.sequence.page(a.pages, item.first_position / kKvPagePositions + unit / 2);
        const std::byte* keys = a.kv.k_tile(page, kv_head);
        const std::byte* values = a.kv.v_tile(page, kv_head);
        const int first = unit * kUnit, in_page = unit % 2 * kUnit;
        const int n_visible = min(kUnit, item.n_in_block - first);
        float weights[S::kHeads];
#pragma unroll
        for (int h = 0; h < S::kHeads; h++) weights[h] = 0;
        if (lane < n_visible) {
#pragma unroll 4
            for (int k = 0; k < d; k++) {
                const float x =
                    first + lane == newest
                        ? room.k.x[k]
                        : read_number(keys, a.kv.k_dtype, d, k * kKvPagePositions + in_page + lane,
                                      k / kKvScaleElements * kKvPagePositions + in_page + lane);
#pragma unroll
                for (int h = 0; h < S::kHeads; h++) {
                    weights[h] = fmaf(queries[h * d + k], x, weights[h]);
                }
            }
        }
#pragma unroll
        for (int h = 0; h < S::kHeads; h++) {
            const float score = lane < n_visible ? weights[h] : -INFINITY;
            const float now = fmaxf(highest[h], warp_max(score));
            const float base = base_of(now), shrink = exp2_near(highest[h] - base);
            weights[h] = exp2_near(score - base);
            highest[h] = now, total[h] = fmaf(total[h], shrink, weights[h]);
#pragma unroll
            for (int j = 0; j < kElements; j++) sums[h][j] *= shrink;
        }
#pragma unroll 2
        for (int p = 0; p < n_visible; p++) {
            float x[kElements];
#pragma unroll
            for (int j = 0; j < kElements; j++) {
                const int e = lane + 32 * j;
                x[j] = 0;
                if (e >= d) continue;
                x[j] = first + p == newest
                           ? room.v.x[e]
                           : read_number(
                                 values, a.kv.v_dtype, d, (in_page + p) * d + e,
                                 (in_page + p) * (d / kKvScaleElements) + e / kKvScaleElements);
            }
#pragma unroll
            for (int h = 0; h < S::kHeads; h++) {
                const float weight = __shfl_sync(kAllLanes, weights[h], p);
#pragma unroll
                for (int j = 0; j < kElements; j++) sums[h][j] = fmaf(weight, x[j], sums[h][j]);
            }
        }
    }
    if (warp >= n_units) return;
#pragma unroll
    for (int h = 0; h < S::kHeads; h++) {
        const float all = warp_sum(total[h]);
        if (lane == 0) room.states[warp * S::kHeads + h] = {highest[h], all};
#pragma unroll
        for (int j = 0; j < kElements; j++) {
            if (lane + 32 * j < d) {
                room.sums(s, warp)[h * (d + kSumGap) + lane + 32 * j] = sums[h][j];
            }
        }
    }
}

}  // namespace ridge::cuda::decode
