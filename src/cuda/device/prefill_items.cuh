#pragma once

#include <climits>
#include <cstdint>

#include "cuda/context.h"
#include "cuda/device/kv_cache.cuh"

// What a prompt's attention works on: pairs of a row and a query head, cut into tiles that blocks
// of threads take, and positions, cut into pages and segments.

namespace ridge::cuda::prefill {

constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr int kAny = -1;  // of a template's parameter: known when the kernel runs

// Positions that are summed up together, before segments' sums are added in order. They begin at
// multiples of it: a row's own position says how many it has.
constexpr int kSegmentPages = 16, kSegmentPositions = kSegmentPages * kKvPagePositions;

__host__ __device__ constexpr int segments_of(int64_t n_positions) {
    return static_cast<int>((n_positions + kSegmentPositions - 1) / kSegmentPositions);
}

// What a launch works on: the rows of spans that lie beside each other, all of prompts.
struct PromptRows {
    KvTiles kv;
    const float* q = nullptr;  // of row 0 of the batch
    float* out = nullptr;
    int64_t q_stride = 0, out_stride = 0;
    const int32_t *positions = nullptr, *pages = nullptr;  // Mirror's
    const Sequence* sequences = nullptr;
    int first_span = 0, n_spans = 0;
    int first_row = 0, n_rows = 0;
    int n_tiles = 0;       // of a K/V head
    int heads_per_kv = 0;  // query heads that share one
    float scale = 0;       // of scores: log2(e) / sqrt(d_head)
    // Where a block of threads takes one segment alone: for each row, head and segment what
    // SegmentSums has. Else null.
    float* sums = nullptr;     // [n_rows][n_heads][n_segments][d_head]
    float2* states = nullptr;  // [n_rows][n_heads][n_segments]
    int n_segments = 0;

    explicit PromptRows(const KvLayer& layer) : kv(layer) {}
    __host__ __device__ int n_heads() const { return kv.n_kv_heads * heads_per_kv; }
    // Of a row and query head, both counted from the launch's first.
    __device__ int64_t part(int row, int head, int segment) const {
        return (int64_t{row} * n_heads() + head) * n_segments + segment;
    }
};

__host__ __device__ constexpr int tiles_of(int n_rows, int heads_per_kv, int n_pairs) {
    return (n_rows * heads_per_kv + n_pairs - 1) / n_pairs;
}

__device__ inline int max_of_warp(int x) {
    return __reduce_max_sync(kAllLanes, x);
}
__device__ inline int min_of_warp(int x) {
    return __reduce_min_sync(kAllLanes, x);
}

// Pairs of a row and one of the query heads that share a K/V head, of one span: pair i is row
// i / heads_per_kv of the span and head i % heads_per_kv of the group.
struct RowTile {
    Sequence sequence;
    int first_pair, end_pair;  // of the span's pairs; end_pair: of all of them
    int kv_head, heads_per_kv;
    int last;   // the last position that a row of the tile sees, -1 if all are masked
    int least;  // the last that all see but for masked ones

    // Tile number `number` of the launch, of n_pairs pairs. All lanes of a warp.
    __device__ RowTile(const PromptRows& a, int number, int n_pairs, int head, int lane)
        : kv_head(head), heads_per_kv(a.heads_per_kv), last(-1), least(INT_MAX) {
        int span = 0, left = number;
        for (int first = 0; first < a.n_spans; first += 32) {
            int n_tiles = 0;
            if (first + lane < a.n_spans) {
                const Sequence& of_lane = a.sequences[a.first_span + first + lane];
                n_tiles = tiles_of(of_lane.n_rows, heads_per_kv, n_pairs);
            }
            int end = n_tiles;
            for (int step = 1; step < 32; step *= 2) {
                const int before = __shfl_up_sync(kAllLanes, end, step);
                if (lane >= step) end += before;
            }
            const int n_before = __popc(__ballot_sync(kAllLanes, end <= left));
            if (n_before < 32) {
                span = first + n_before;
                left -= __shfl_sync(kAllLanes, end - n_tiles, n_before);
                break;
            }
            left -= __shfl_sync(kAllLanes, end, 31);
        }
        sequence = a.sequences[a.first_span + span];
        first_pair = left * n_pairs, end_pair = sequence.n_rows * heads_per_kv;
        const int last_pair = min(first_pair + n_pairs, end_pair) - 1;
        for (int row = first_pair / heads_per_kv + lane; row <= last_pair / heads_per_kv;
             row += 32) {
            const int position = a.positions[sequence.first_row + row];
            last = max(last, position);
            if (position >= 0) least = min(least, position);
        }
        last = max_of_warp(last), least = min_of_warp(least);
    }
    __device__ int row(int pair) const { return sequence.first_row + pair / heads_per_kv; }
    __device__ int head(int pair) const { return kv_head * heads_per_kv + pair % heads_per_kv; }
};

}  // namespace ridge::cuda::prefill
