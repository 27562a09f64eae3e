#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/device/decode_any.cuh"
#include "cuda/device/decode_queries.cuh"
#include "cuda/device/decode_units.cuh"

// The kernel of decode attention: what becomes of a block's units, and of a row's blocks.

namespace ridge::cuda::decode {

__device__ __forceinline__ void add_times(float factor, float x, float& sum) {
    sum = fmaf(factor, x, sum);
}
__device__ __forceinline__ void add_times(float factor, float4 x, float4& sum) {
    sum.x = fmaf(factor, x.x, sum.x), sum.y = fmaf(factor, x.y, sum.y);
    sum.z = fmaf(factor, x.z, sum.z), sum.w = fmaf(factor, x.w, sum.w);
}

// An element of a head's result, or four.
__device__ __forceinline__ void store(float* to, float sum, float total) {
    *to = __fdividef(sum, total);
}
__device__ __forceinline__ void store(float* to, float4 sum, float total) {
    const float inverse = __fdividef(1, total);
    to[0] = sum.x * inverse, to[1] = sum.y * inverse;
    to[2] = sum.z * inverse, to[3] = sum.w * inverse;
}
__device__ __forceinline__ float* result_of(const DecodeRows& a, const HeadGroup& heads,
                                            const Item& item) {
    return a.out + (a.first_row + item.row) * a.out_stride + int64_t{heads.first} * a.kv.d_head;
}

// The parts of a row and head group: [a.most_blocks][a.heads_at_once] heads, of which sums are
// [d_head / 4].
__device__ __forceinline__ int64_t first_part(const DecodeRows& a, const HeadGroup& heads,
                                              const Item& item) {
    const int64_t pair = int64_t{item.row} * a.n_head_groups() + heads.number;
    return pair * a.most_blocks * a.heads_at_once;
}

// The warps' sums together: the result where the row has one block, else a part of it. T: float or
// float4, so that most threads have one.
template <class T, class S>
__device__ __forceinline__ void add_warps(const S& s, const DecodeRows& a, const HeadGroup& heads,
                                          const Item& item, const Room<S>& room) {
    constexpr int kWidth = sizeof(T) / sizeof(float);
    const int n_of_head = s.d / kWidth;
    const int n_warps = min(S::kWarps, (item.n_in_block + kUnit - 1) / kUnit);
    float* result = result_of(a, heads, item);
    const int64_t part = first_part(a, heads, item) + item.block * a.heads_at_once;
    for (int i = static_cast<int>(threadIdx.x); i < heads.n * n_of_head; i += S::kThreads) {
        const int h = i / n_of_head, e = i % n_of_head * kWidth;
        float2 states[S::kWarps];
        T sums[S::kWarps];
        float highest = -INFINITY;
#pragma unroll
        for (int w = 0; w < S::kWarps; w++) {
            states[w] = {-INFINITY, 0}, sums[w] = {};
            if (w < n_warps) {
                states[w] = room.states[w * S::kHeads + h];
                sums[w] = *reinterpret_cast<const T*>(room.sums(s, w) + h * (s.d + kSumGap) + e);
            }
            highest = fmaxf(highest, states[w].x);
        }
        const float base = base_of(highest);
        T sum{};
        float total = 0;
#pragma unroll
        for (int w = 0; w < S::kWarps; w++) {
            const float factor = exp2_near(states[w].x - base);
            add_times(factor, sums[w], sum);
            total = fmaf(factor, states[w].y, total);
        }
        if (item.n_blocks == 1) {
            if (item.n_positions == 0) sum = {}, total = 1;  // a masked row
            store(result + i * kWidth, sum, total);
        } else {
            reinterpret_cast<T*>(a.sums)[part * n_of_head + i] = sum;
            if (e == 0) a.states[part + h] = {highest, total};
        }
    }
}

// Whether this item is the last of its row and head group: all others' parts can be seen then.
__device__ __forceinline__ bool is_last(const DecodeRows& a, const HeadGroup& heads,
                                        const Item& item, bool* shared) {
    __syncthreads();  // all threads' sums come before the arrival
    if (threadIdx.x == 0) {
        // For other blocks, too; and their sums come after their arrivals.
        uint32_t* arrivals = a.arrivals + item.row * a.n_head_groups() + heads.number;
        *shared = count_arrival(arrivals) == static_cast<uint32_t>(item.n_blocks - 1);
        if (*shared) *arrivals = 0;
    }
    __syncthreads();  // it is there
    return *shared;
}

// The parts of a row and head group, in the order of blocks. Teams of threads take blocks in turns,
// and add what they have in the order of teams: their number depends on the shape alone.
template <class S>
__device__ __forceinline__ void merge_blocks(const S& s, const DecodeRows& a,
                                             const HeadGroup& heads, const Item& item,
                                             const Room<S>& room, int warp, int lane) {
    static_assert(kMostBlocks == 64);
    auto* factors = reinterpret_cast<float*>(room.warps);              // [group][kMostBlocks]
    float* totals = factors + kMostGroup * kMostBlocks;                // [group]
    auto* team_sums = reinterpret_cast<float4*>(totals + kMostGroup);  // [kThreads]
    const int64_t first = first_part(a, heads, item);
    float* result = result_of(a, heads, item);
    const int vectors = s.d / 4, n = heads.n * vectors, n_blocks = item.n_blocks;
    const int width = min(n, S::kThreads), n_teams = S::kThreads / width;
    const int thread = static_cast<int>(threadIdx.x), team = thread / width;

    // A thread's first parts are on their way while it is found out what they count.
    constexpr int kAtOnce = 8;
    float4 parts[kAtOnce];
    auto fetch = [&](int i, int block) {
#pragma unroll
        for (int j = 0; j < kAtOnce; j++) {
            const int b = block + j * n_teams;
            if (b < n_blocks) {
                parts[j] = __ldcg(a.sums + (first + b * a.heads_at_once) * vectors + i);
            }
        }
    };
    if (team < n_teams) fetch(thread % width, team);

    for (int h = warp; h < heads.n; h += S::kWarps) {
        const float2 nothing{-INFINITY, 0};
        const float2* states = a.states + first + h;
        const float2 low = lane < n_blocks ? __ldcg(states + lane * a.heads_at_once) : nothing;
        const float2 high =
            lane + 32 < n_blocks ? __ldcg(states + (lane + 32) * a.heads_at_once) : nothing;
        const float base = base_of(warp_max(fmaxf(low.x, high.x)));
        const float factor = exp2_near(low.x - base), high_factor = exp2_near(high.x - base);
        const float total = warp_sum(fmaf(factor, low.y, high_factor * high.y));
        factors[h * kMostBlocks + lane] = factor;
        factors[h * kMostBlocks + lane + 32] = high_factor;
        if (lane == 0) totals[h] = total;
    }
    __syncthreads();  // factors and totals are there

    for (int i = thread % width; i < n && team < n_teams; i += width) {
        const float* factor = factors + i / vectors * kMostBlocks;
        float4 sum{};
        if (i >= width) fetch(i, team);
        for (int block = team; block < n_blocks; block += kAtOnce * n_teams) {
            if (block > team) fetch(i, block);
#pragma unroll
            for (int j = 0; j < kAtOnce; j++) {
                const int b = block + j * n_teams;
                if (b < n_blocks) add_times(factor[b], parts[j], sum);
            }
        }
        if (n_teams > 1) {
            team_sums[thread] = sum;  // width is n: the loop has one turn
        } else {
            store(result + 4 * i, sum, totals[i / vectors]);
        }
    }
    if (n_teams == 1) return;
    __syncthreads();  // team_sums are there
    if (team > 0) return;
    float4 sum = team_sums[thread];
    for (int t = 1; t < n_teams; t++) add_times(1, team_sums[t * width + thread], sum);
    store(result + 4 * thread, sum, totals[thread / vectors]);
}

// waits: for the kernel before, of which the cache's older positions are not the product.
template <class S>
__device__ __forceinline__ void run_item(const S& s, const DecodeRows& a, const HeadGroup& heads,
                                         const Item& item, const Room<S>& room, bool waits,
                                         int warp, int lane) {
    // What the loop over units brings is on its way while the kernel waits.
    auto attend = [&](auto&... tensor) {
        NewHeads<S> rows(s, a, heads, item, warp, lane);
        if (waits) wait_for_previous_kernel();
        rows.put(room);
        __syncthreads();  // queries are there, and the newest position
        keep_newest(s, a, heads, item, room, warp, lane);
        if constexpr (S::kIsTensor) {
            attend_units(s, item, room, tensor..., warp);
        } else {
            attend_units(s, a, heads.kv_head, item, room, warp, lane);
        }
    };
    if constexpr (S::kIsTensor) {
        Feed<S> feed(s, a, item, heads.kv_head, room.warps + warp * S::warp_bytes(s.d), warp, lane);
        Units<S> units(s, room, lane);
        attend(feed, units);
    } else {
        attend();
    }
    __syncthreads();  // all warps' sums are there
    if constexpr (S::kHeads * S::kMostD <= S::kThreads) {
        add_warps<float>(s, a, heads, item, room);
    } else {
        add_warps<float4>(s, a, heads, item, room);
    }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksAnSm)
    attend_decode_rows_kernel(const __grid_constant__ DecodeRows a) {
    extern __shared__ __align__(128) float4 shared[];  // pieces of units alternate in 128 bytes
    const S s(a.kv);
    const Room<S> room(s, reinterpret_cast<std::byte*>(shared));
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    let_next_kernel_start();
    const HeadGroup heads(a);
    const LaneRows rows(a, lane);
    const int n_items = rows.n_items();
    // The batch is nobody's product; q and the cache are, or what has just been projected.
    bool waits = a.fresh.is_there();
    if (!waits) wait_for_previous_kernel();
    for (int i = static_cast<int>(blockIdx.y); i < n_items; i += static_cast<int>(gridDim.y)) {
        const Item item = rows.item(i);
        run_item(s, a, heads, item, room, waits, warp, lane);
        waits = false;
        if (item.n_blocks > 1 && is_last(a, heads, item, room.is_last)) {
            merge_blocks(s, a, heads, item, room, warp, lane);
        }
        __syncthreads();  // shared memory has been read
    }
}

// A kernel, and what its launches need.
struct Kernel {
    void (*run)(DecodeRows);
    int n_threads, blocks_an_sm, shared_bytes;  // blocks: as registers have room for
};

template <class S>
Kernel kernel_of_shape(int d) {
    return {attend_decode_rows_kernel<S>, S::kThreads, S::kBlocksAnSm, Room<S>::bytes(d)};
}

// Of tensor units, for K and V of one type of f16, bf16 or q8_0, 4 or 8 query heads, and a d_head
// that is not compiled for by itself (decode_attention_any.cu).
Kernel kernel_of_any_head(DType type, int heads, int d);

}  // namespace ridge::cuda::decode
