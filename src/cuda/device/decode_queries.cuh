#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/decode_feed.cuh"

// Decode attention: a block's shared memory, and how an item's queries and newest position come
// there.

namespace ridge::cuda::decode {

// A block's shared memory.
struct Room {
    std::byte* rings;  // [kWarps][ring_bytes]
    float* queries;    // [d][G], scaled
    float* weights;    // [kWarps][weight_floats]
    float *k, *v;      // [d] of the position that the cache has not yet, as it will hold it
    float2* turns;     // [kMostPairs]
    float2* states;    // [kWarps][G], and of that position [G]
    bool* is_last;

    template <class S>
    __device__ Room(const S& s, std::byte* at) : rings(at) {
        queries = reinterpret_cast<float*>(rings + kWarps * s.ring_bytes);
        weights = queries + S::kGroup * s.d;
        k = weights + kWarps * weight_floats(S::kGroup), v = k + s.d;
        turns = reinterpret_cast<float2*>(v + s.d), states = turns + kMostPairs;
        is_last = reinterpret_cast<bool*>(states + (kWarps + 1) * S::kGroup);
    }
};

// The queries of an item, scaled, to shared memory.
template <class S>
__device__ __forceinline__ void fetch_queries(const S& s, const DecodeRows& a,
                                              const HeadGroup& heads, const Item& item,
                                              const Room& room) {
    constexpr int G = S::kGroup;
    const float* q =
        a.q + (a.first_row + item.row) * a.q_stride + (heads.first + item.first_head) * s.d;
    for (int i = static_cast<int>(threadIdx.x); i < G * s.d; i += kThreads) {
        const int h = i / s.d, k = i % s.d;
        room.queries[k * G + h] = h < item.n_heads ? q[i] * a.scale : 0.0f;
    }
}

// The item that brings the new position to the cache, of those that have it.
__device__ __forceinline__ bool keeps_fresh(const Item& item) {
    return item.first_head == 0 && blockIdx.z == 0;
}
__device__ __forceinline__ HostKvRow fresh_row(const DecodeRows& a, const HeadGroup& heads,
                                               const Item& item, bool is_k) {
    const int64_t page = item.slot / kKvPagePositions;
    const int p = static_cast<int>(item.slot % kKvPagePositions);
    return is_k ? a.kv.k_row(page, p, heads.kv_head) : a.kv.v_row(page, p, heads.kv_head);
}

// The same from what the projections have made; and where the item has it, the position that the
// cache has not yet: K and V to shared memory, and by one of the items to the cache.
template <class S>
__device__ __forceinline__ void make_queries(const S& s, const DecodeRows& a,
                                             const HeadGroup& heads, const Item& item,
                                             const Room& room, int warp, int lane) {
    constexpr int G = S::kGroup;
    const FreshRows& f = a.fresh;
    const int row = a.first_row + item.row;
    const float* qkv = f.qkv + row * f.stride;
    for (int h = warp; h < G; h += kWarps) {
        if (h < item.n_heads) {
            prepare_head(f, qkv + (heads.first + item.first_head + h) * s.d, f.q_norm, s.d,
                         room.turns, a.scale, room.queries + h, G);
        } else {
            for (int i = lane; i < s.d; i += 32) room.queries[i * G + h] = 0;
        }
    }
    if (!item.has_fresh || warp < kWarps - 2) return;
    const float* k = qkv + (f.n_heads + heads.kv_head) * s.d;
    if (warp == kWarps - 1) {
        prepare_head(f, k, f.k_norm, s.d, room.turns, 1, room.k, 1);
        round_row(fresh_row(a, heads, item, true), s.d, keeps_fresh(item), room.k);
    } else {
        const float* v = k + a.kv.n_kv_heads * s.d;
        for (int i = lane; i < s.d; i += 32) room.v[i] = v[i];
        round_row(fresh_row(a, heads, item, false), s.d, keeps_fresh(item), room.v);
    }
}

// The new position to the cache, by the warps that have least to do at an item's end.
template <class S>
__device__ __forceinline__ void keep_fresh(const S& s, const DecodeRows& a, const HeadGroup& heads,
                                           const Item& item, const Room& room, int warp) {
    if (!item.has_fresh || !keeps_fresh(item) || warp < kWarps - 2) return;
    const bool is_k = warp == kWarps - 1;
    keep_row(fresh_row(a, heads, item, is_k), s.d, is_k ? room.k : room.v);
}

// The scores of the position that the cache has not yet.
template <class S>
__device__ __forceinline__ void score_fresh(const S& s, const Item& item, const Room& room,
                                            int warp, int lane) {
    constexpr int G = S::kGroup;
    for (int h = warp; h < G; h += kWarps) {
        float score = 0;
        for (int i = lane; i < s.d; i += 32) {
            score = fmaf(room.queries[i * G + h], room.k[i], score);
        }
        score = warp_sum(score);
        if (lane == 0) room.states[kWarps * G + h] = {score, 1};
    }
}

}  // namespace ridge::cuda::decode
