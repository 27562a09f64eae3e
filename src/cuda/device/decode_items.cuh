#pragma once

#include <cstdint>

#include "cuda/attention_blocks.h"
#include "cuda/context.h"
#include "cuda/device/kv_cache.cuh"

// What decode attention works on: rows of a launch, cut into items that blocks of threads take.

namespace ridge::cuda::decode {

constexpr int kMostRows = 32;  // of a launch: each has a lane
constexpr uint32_t kAllLanes = 0xffffffffu;

// What a launch works on.
struct DecodeRows {
    KvTiles kv;
    const float* q = nullptr;  // of row 0 of the batch
    float* out = nullptr;
    int64_t q_stride = 0, out_stride = 0;
    const int32_t *positions = nullptr, *sequence_of_row = nullptr, *pages = nullptr;  // Mirror's
    const Sequence* sequences = nullptr;
    int first_row = 0, n_rows = 0;                         // at most kMostRows
    int heads_per_kv = 0, heads_at_once = 0, n_turns = 0;  // query heads are taken in turns
    int most_blocks = 0;                                   // of a row
    float scale = 0;                                       // of q: log2(e) / sqrt(d_head)
    // For each row and head group [most_blocks][group][d_head / 4], [most_blocks][group] and one.
    float4* sums = nullptr;
    float2* states = nullptr;      // the highest score, and the sum of weights
    uint32_t* arrivals = nullptr;  // zeros

    explicit DecodeRows(const KvLayer& layer) : kv(layer) {}
    // A head group is a K/V head and one of its turns.
    __host__ __device__ int n_head_groups() const { return kv.n_kv_heads * n_turns; }
};

// One block of positions of one row, for one head group.
struct Item {
    int row;  // of the launch
    int head_group;
    int n_positions, n_blocks;  // of the row
    int first_position, n_in_block;
    Sequence sequence;
    int pair, block;  // the row's and head group's number, the block's among theirs
};

// A launch's rows, one in each lane.
class LaneRows {
  public:
    __device__ LaneRows(const DecodeRows& a, int lane) {
        if (lane < a.n_rows) {
            const int row = a.first_row + lane, index = a.sequence_of_row[row];
            // Most often every row is a sequence of its own: so the second load waits for none.
            sequence_ = a.sequences[row];
            n_positions_ = a.positions[row] + 1;
            if (index != row) sequence_ = a.sequences[index];
            end_ = blocks_of(n_positions_);
        }
        for (int step = 1; step < 32; step *= 2) {
            const int before = __shfl_up_sync(kAllLanes, end_, step);
            if (lane >= step) end_ += before;
        }
    }
    // All blocks of all rows, for each head group.
    __device__ int n_blocks() const { return __shfl_sync(kAllLanes, end_, 31); }

    // Item i: head groups beside each other, then blocks, then rows.
    __device__ Item item(const DecodeRows& a, int i) const {
        Item item{};
        const int number = i / a.n_head_groups();
        item.head_group = i % a.n_head_groups();
        item.row = __popc(__ballot_sync(kAllLanes, end_ <= number));
        item.n_positions = __shfl_sync(kAllLanes, n_positions_, item.row);
        item.n_blocks = blocks_of(item.n_positions);
        item.block = number - (__shfl_sync(kAllLanes, end_, item.row) - item.n_blocks);
        item.first_position = item.block * block_positions(item.n_positions);
        item.n_in_block =
            min(item.n_positions - item.first_position, block_positions(item.n_positions));
        item.sequence.pages = __shfl_sync(kAllLanes, sequence_.pages, item.row);
        item.sequence.base_page = __shfl_sync(kAllLanes, sequence_.base_page, item.row);
        item.pair = item.row * a.n_head_groups() + item.head_group;
        return item;
    }

  private:
    int n_positions_ = 0;
    int end_ = 0;  // blocks of this row and those before it
    Sequence sequence_;
};

// The query heads of an item.
struct ItemHeads {
    int first, n;

    __device__ ItemHeads(const DecodeRows& a, const Item& item) {
        const int turn = item.head_group % a.n_turns * a.heads_at_once;
        first = item.head_group / a.n_turns * a.heads_per_kv + turn;
        n = min(a.heads_at_once, a.heads_per_kv - turn);
    }
};

}  // namespace ridge::cuda::decode
