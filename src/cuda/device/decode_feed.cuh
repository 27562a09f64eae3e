#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/device/async.cuh"
#include "cuda/device/decode_items.cuh"
#include "cuda/device/kv_chunks.cuh"

// How the tiles of the cache come to the warps of decode attention.

namespace ridge::cuda::decode {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kWarpPositions = 32;  // that a warp takes at a time, half a page
constexpr int kBatch = 4;           // chunks of a lane that are fetched together
constexpr int kSlots = 4;           // batches of a warp that shared memory holds
constexpr int kMostGroup = 8;       // query heads of a K/V head that a block takes at once
constexpr int kAny = -1;            // of a template's parameter: known when the kernel runs

static_assert(kLeastBlockPositions == kWarps * kWarpPositions);
static_assert(kKvPagePositions == 2 * kWarpPositions);

constexpr int slot_bytes_of(DType k, DType v) {
    return kBatch * std::max(lane_bytes(k), lane_bytes(v)) * 32;
}
// Of a warp: its slots, and in their place at the end of a block its sums.
constexpr int ring_bytes_of(DType k, DType v, int group) {
    return std::max(kSlots * slot_bytes_of(k, v), 32 * kChunk * group * int{sizeof(float)});
}
// Weights of a warp's positions: [32][group], and a gap behind each chunk of positions, which
// brings what lanes write at once to different banks.
constexpr int weight_gap(int group) {
    return std::max(group, 4);
}
constexpr int weight_floats(int group) {
    return kWarpPositions * group + kWarpPositions / kChunk * weight_gap(group);
}
constexpr int shared_bytes_of(DType k, DType v, int d, int group) {
    return kWarps * ring_bytes_of(k, v, group) +
           (group * d + kWarps * weight_floats(group)) * int{sizeof(float)} +
           kWarps * group * int{sizeof(float2)} + 16;
}

// What a kernel is made for, and what follows from it.
template <int D, int K, int V, int G>
struct Shape {
    static constexpr int kGroup = G;
    // Every lane has chunks for whole batches.
    static constexpr bool kWhole = D == 64 || D == 128;
    static_assert(kWhole || D == kAny);

    const int d;
    const DType k_type, v_type;
    const int row_lanes, rows_at_once;  // that V's rows take, and how many a warp has lanes for
    const int k_chunks, v_chunks;       // of a lane and kWarpPositions positions
    const int k_batches, v_batches;
    const int slot_bytes, ring_bytes;

    __device__ explicit Shape(const KvTiles& kv)
        : d(D == kAny ? kv.d_head : D),
          k_type(K == kAny ? kv.k_dtype : static_cast<DType>(K)),
          v_type(V == kAny ? kv.v_dtype : static_cast<DType>(V)),
          row_lanes(d / kChunk),
          rows_at_once(32 / row_lanes),
          k_chunks(d / kChunk),
          v_chunks((kWarpPositions + rows_at_once - 1) / rows_at_once),
          k_batches((k_chunks + kBatch - 1) / kBatch),
          v_batches((v_chunks + kBatch - 1) / kBatch),
          slot_bytes(slot_bytes_of(k_type, v_type)),
          ring_bytes(ring_bytes_of(k_type, v_type, G)) {}
};

// Brings a warp's half pages of an item to it: batch after batch, first K's of a half page, then
// V's, into slots of shared memory in turn, kSlots - 1 of them ahead. A lane fetches what it reads
// itself, so that no other has to be waited for.
template <class S>
class Feed {
  public:
    __device__ Feed(const S& shape, const DecodeRows& a, const Item& item, std::byte* ring,
                    int warp, int lane)
        : s_(shape), a_(a), item_(item), ring_(ring), warp_(warp), lane_(lane) {
        const int n_halves = (item.n_in_block + kWarpPositions - 1) / kWarpPositions;
        n_tiles_ = max(0, (n_halves - warp + kWarps - 1) / kWarps);
        const int first = warp % 2 * kWarpPositions;
        k_lane_ = chunk_place(s_.k_type, lane / 4 * kKvPagePositions + first + lane % 4 * kChunk);
        k_scale_lane_ = kKvPagePositions * s_.d + (first + lane % 4 * kChunk) * 2;
        v_lane_ = chunk_place(s_.v_type, (first + v_row()) * s_.d + v_column());
        for (int i = 0; i < kSlots - 1; i++) fetch();
    }
    __device__ int n_tiles() const { return n_tiles_; }
    // Positions of the warp's half page t.
    __device__ int n_visible(int t) const {
        return min(kWarpPositions, item_.n_in_block - (warp_ + kWarps * t) * kWarpPositions);
    }
    // The lane's first row of V in a half page, and its column.
    __device__ int v_row() const { return lane_ / s_.row_lanes; }
    __device__ int v_column() const { return lane_ % s_.row_lanes * kChunk; }

    // The slot of the next batch, which has arrived. The one before is overwritten from now on.
    __device__ const std::byte* next() {
        wait_for_copies<kSlots - 2>();
        fetch();
        return ring_ + n_taken_++ % kSlots * s_.slot_bytes;
    }

  private:
    __device__ void fetch() {
        if (tile_ < n_tiles_) {
            if (batch_ == 0) begin_tile();
            std::byte* slot = ring_ + n_fetched_++ % kSlots * s_.slot_bytes;
            if (batch_ < s_.k_batches) {
                fetch_k(slot, batch_);
            } else {
                fetch_v(slot, batch_ - s_.k_batches);
            }
            if (++batch_ == s_.k_batches + s_.v_batches) batch_ = 0, tile_++;
        }
        commit_copies();  // of nothing, too: groups are counted
    }
    // Page numbers are read for 32 half pages at once.
    __device__ void begin_tile() {
        if (tile_ % 32 == 0) {
            const int index =
                item_.first_position / kKvPagePositions + warp_ / 2 + kWarps / 2 * (tile_ + lane_);
            if (tile_ + lane_ < n_tiles_) {
                page_ = static_cast<int>(item_.sequence.page(a_.pages, index));
            }
        }
        const int page = __shfl_sync(kAllLanes, page_, tile_ % 32);
        const int head = item_.head_group / a_.n_turns;
        k_ = a_.kv.k_tile(page, head), v_ = a_.kv.v_tile(page, head);
        n_visible_ = n_visible(tile_);
    }
    // Rows 32 * batch and up of the tile, every eighth: elements of the head.
    __device__ void fetch_k(std::byte* slot, int batch) {
        const std::byte* from = k_ + k_lane_;
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
            const int chunk = kBatch * batch + i;
            if (!S::kWhole && chunk >= s_.k_chunks) break;
            fetch_chunk(s_.k_type, slot, i, lane_,
                        from + chunk_place(s_.k_type, chunk * 8 * kKvPagePositions), true);
        }
        if (s_.k_type == DType::kQ8_0) {  // 32 elements share a scale: the batch's
            fetch_scales(slot, kBatch, lane_, k_ + k_scale_lane_ + batch * kKvPagePositions * 2);
        }
    }
    // Rows of the tile: positions. Those that are not to be seen become zeros.
    __device__ void fetch_v(std::byte* slot, int batch) {
        const std::byte* from = v_ + v_lane_;
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
            const int chunk = kBatch * batch + i;
            if (!S::kWhole && chunk >= s_.v_chunks) break;
            const int row = v_row() + chunk * s_.rows_at_once;
            const bool visible = row < n_visible_ && v_row() < s_.rows_at_once;
            fetch_chunk(s_.v_type, slot, i, lane_,
                        from + chunk_place(s_.v_type, chunk * s_.rows_at_once * s_.d), visible);
            if (s_.v_type == DType::kQ8_0) {
                fetch_scale_pair(slot, kBatch, i, lane_,
                                 v_ + kKvPagePositions * s_.d + scale_index(row) / 2 * 4, visible);
            }
        }
    }

  public:
    // q8_0: the number of the scale of this lane's chunk in row `row` of a half page.
    __device__ int scale_index(int row) const {
        return (warp_ % 2 * kWarpPositions + row) * (s_.d / kKvScaleElements) +
               v_column() / kKvScaleElements;
    }

  private:
    const S& s_;
    const DecodeRows& a_;
    const Item& item_;
    std::byte* const ring_;
    const int warp_, lane_;
    int n_tiles_, k_lane_, k_scale_lane_, v_lane_;
    int tile_ = 0, batch_ = 0, n_fetched_ = 0, n_taken_ = 0;  // what is fetched next
    int page_ = 0, n_visible_ = 0;
    const std::byte *k_ = nullptr, *v_ = nullptr;
};

}  // namespace ridge::cuda::decode
