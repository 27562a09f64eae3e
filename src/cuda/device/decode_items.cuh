#pragma once

#include <cstdint>

#include "cuda/attention_blocks.h"
#include "cuda/context.h"
#include "cuda/device/decode_fresh.cuh"
#include "cuda/device/kv_cache.cuh"

// What decode attention works on: rows of a launch, cut into items that blocks of threads take.

namespace ridge::cuda::decode {

constexpr int kMostRows = 32;  // of a launch: each has a lane

// What a launch works on.
struct DecodeRows {
    KvTiles kv;
    const float* q = nullptr;  // of row 0 of the batch
    FreshRows fresh;           // where these are there, they take q's place
    float* out = nullptr;
    int64_t q_stride = 0, out_stride = 0;
    const int32_t *positions = nullptr, *sequence_of_row = nullptr, *pages = nullptr;  // Mirror's
    const Sequence* sequences = nullptr;
    int first_row = 0, n_rows = 0;                         // at most kMostRows
    int heads_per_kv = 0, heads_at_once = 0, n_turns = 0;  // see HeadGroup
    BlockCut cut{};
    int most_blocks = 0;  // of a row
    float scale = 0;      // of q: log2(e) / sqrt(d_head)
    // For each row and head group [most_blocks][heads_at_once][d_head / 4],
    // [most_blocks][heads_at_once] and one.
    float4* sums = nullptr;
    float2* states = nullptr;      // the highest score, and the sum of weights
    uint32_t* arrivals = nullptr;  // zeros

    explicit DecodeRows(const KvLayer& layer) : kv(layer) {}
    __host__ __device__ int n_head_groups() const { return kv.n_kv_heads * n_turns; }
};

// The query heads that a block of threads of place (K/V head, any, turn) in the grid works for:
// those of one K/V head, or where there are too many as many as it takes at once.
struct HeadGroup {
    int kv_head, first, n;
    int number;  // among all head groups

    __device__ explicit HeadGroup(const DecodeRows& a) {
        const int turn = static_cast<int>(blockIdx.z);
        kv_head = static_cast<int>(blockIdx.x);
        first = kv_head * a.heads_per_kv + turn * a.heads_at_once;
        n = min(a.heads_at_once, a.heads_per_kv - turn * a.heads_at_once);
        number = kv_head * a.n_turns + turn;
    }
};

// What a block of threads does at a time: a block of positions of one row, for all query heads of
// its group.
struct Item {
    int row;                    // of the launch
    int n_positions, n_blocks;  // of the row
    int block, first_position, n_in_block;
    bool has_fresh;     // the last of these is what the projections have just made: the cache has
    int64_t slot;       // it not yet, but is to have it there
    Sequence sequence;  // where its pages are

    __device__ int n_cached() const { return n_in_block - (has_fresh ? 1 : 0); }
};

// A launch's rows, one in each lane; of a single row every lane has what the others would be asked
// for.
class LaneRows {
  public:
    __device__ LaneRows(const DecodeRows& a, int lane) : is_single_(a.n_rows == 1) {
        if (is_single_ || lane < a.n_rows) {
            const int row = a.first_row + (is_single_ ? 0 : lane), index = a.sequence_of_row[row];
            // Most often every row is a sequence of its own: so the second load waits for none.
            sequence_ = a.sequences[row];
            n_positions_ = a.positions[row] + 1;
            if (a.fresh.is_there()) slot_ = a.fresh.slots[row];
            if (index != row) sequence_ = a.sequences[index];
            if (n_positions_ == 0) slot_ = -1;
            block_positions_ = a.cut.block_positions(n_positions_);
            n_blocks_ = max(1, (n_positions_ + block_positions_ - 1) / block_positions_);
            end_ = n_blocks_;
        }
        for (int step = 1; !is_single_ && step < 32; step *= 2) {
            const int before = __shfl_up_sync(kAllLanes, end_, step);
            if (lane >= step) end_ += before;
        }
    }
    // Of all rows.
    __device__ int n_items() const { return of_row(end_, 31); }

    // Row after row, block after block.
    __device__ Item item(int number) const {
        Item item{};
        item.row = is_single_ ? 0 : __popc(__ballot_sync(kAllLanes, end_ <= number));
        item.n_positions = of_row(n_positions_, item.row);
        item.n_blocks = of_row(n_blocks_, item.row);
        item.block = number - (of_row(end_, item.row) - item.n_blocks);
        const int block_positions = of_row(block_positions_, item.row);
        item.first_position = item.block * block_positions;
        item.n_in_block = min(item.n_positions - item.first_position, block_positions);
        item.slot = of_row(slot_, item.row);
        item.has_fresh = item.slot >= 0 && item.block == item.n_blocks - 1;
        item.sequence.pages = of_row(sequence_.pages, item.row);
        item.sequence.base_page = of_row(sequence_.base_page, item.row);
        return item;
    }

  private:
    template <class T>
    __device__ T of_row(T x, int row) const {
        return is_single_ ? x : __shfl_sync(kAllLanes, x, row);
    }

    const bool is_single_;
    int n_positions_ = 0, block_positions_ = 0, n_blocks_ = 0;  // of the lane's row
    int end_ = 0;        // items of this row and those before it
    int64_t slot_ = -1;  // of its newest position, where the cache has not that yet
    Sequence sequence_;
};

}  // namespace ridge::cuda::decode
