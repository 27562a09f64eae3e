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
constexpr int kSlots = 3;           // batches of a warp that shared memory holds
constexpr int kMostGroup = 8;       // query heads of a K/V head that a block takes at once
constexpr int kAny = -1;            // of a template's parameter: known when the kernel runs

static_assert(kLeastBlockPositions % (kWarps * kWarpPositions) == 0);
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
           (group * d + kWarps * weight_floats(group) + 2 * d) * int{sizeof(float)} +
           ((kWarps + 1) * group + kMostPairs) * int{sizeof(float2)} + 16;
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
    __device__ Feed(const S& shape, const DecodeRows& a, const Item& item, int kv_head,
                    std::byte* ring, int warp, int lane)
        : s_(shape),
          a_(a),
          item_(item),
          kv_head_(kv_head),
          ring_(ring),
          warp_(warp),
          lane_(lane),
          first_(warp % 2 * kWarpPositions) {
        const int n_halves = (item.n_in_block + kWarpPositions - 1) / kWarpPositions;
        n_tiles_ = max(0, (n_halves - warp + kWarps - 1) / kWarps);
#pragma unroll 1
        for (int i = 0; i < kSlots - 1; i++) fetch();
    }
    __device__ int n_tiles() const {
        return n_tiles_;
    }
    // Positions of the warp's half page t.
    __device__ int n_visible(int t) const {
        return min(kWarpPositions, item_.n_in_block - (warp_ + kWarps * t) * kWarpPositions);
    }
    // The lane's first row of V in a half page, and its column.
    __device__ int v_row() const {
        return lane_ / s_.row_lanes;
    }
    __device__ int v_column() const {
        return lane_ % s_.row_lanes * kChunk;
    }
    // q8_0: the number of the scale of the lane's chunk in row `row` of a half page.
    __device__ int scale_index(int row) const {
        return (first_ + row) * (s_.d / kKvScaleElements) + v_column() / kKvScaleElements;
    }

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
                fetch_k(slot);
            } else {
                fetch_v(slot, batch_ - s_.k_batches);
            }
            if (++batch_ == s_.k_batches + s_.v_batches) batch_ = 0, tile_++;
        }
        commit_copies();  // of nothing, too: groups are counted
    }
    // Page numbers are read for 32 half pages at once.
    __device__ void begin_tile() {
        if (tile_ % 32 == 0 && tile_ + lane_ < n_tiles_) {
            const int page =
                item_.first_position / kKvPagePositions + warp_ / 2 + kWarps / 2 * (tile_ + lane_);
            page_ = static_cast<int>(item_.sequence.page(a_.pages, page));
        }
        const int page = __shfl_sync(kAllLanes, page_, tile_ % 32);
        const std::byte* k = a_.kv.k_tile(page, kv_head_);
        const int k_first = first_ + lane_ % 4 * kChunk;  // position
        k_ = k + chunk_place(s_.k_type, lane_ / 4 * kKvPagePositions + k_first);
        k_scales_ = k + kKvPagePositions * s_.d + k_first * 2;
        v_tile_ = a_.kv.v_tile(page, kv_head_);
        v_ = v_tile_ + chunk_place(s_.v_type, (first_ + v_row()) * s_.d + v_column());
        n_visible_ = n_visible(tile_);
    }
    // Every eighth of 32 rows of the tile: elements of the head, which in q8_0 share a scale.
    __device__ void fetch_k(std::byte* slot) {
        constexpr int kRow = kKvPagePositions;
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
            if (!S::kWhole && kBatch * batch_ + i >= s_.k_chunks) break;
            fetch_chunk(s_.k_type, slot, i, lane_, k_ + chunk_place(s_.k_type, i * 8 * kRow), true);
        }
        k_ += chunk_place(s_.k_type, kBatch * 8 * kRow);
        if (s_.k_type == DType::kQ8_0) {
            fetch_scales(slot, kBatch, lane_, k_scales_);
            k_scales_ += kRow * 2;
        }
    }
    // Rows of the tile: positions. Those that are not to be seen become zeros.
    __device__ void fetch_v(std::byte* slot, int batch) {
        const int n_visible = v_row() < s_.rows_at_once ? n_visible_ : 0;
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
            if (!S::kWhole && kBatch * batch + i >= s_.v_chunks) break;
            const int row = v_row() + (kBatch * batch + i) * s_.rows_at_once;
            const bool visible = row < n_visible;
            fetch_chunk(s_.v_type, slot, i, lane_,
                        v_ + chunk_place(s_.v_type, i * s_.rows_at_once * s_.d), visible);
            if (s_.v_type == DType::kQ8_0) {
                const std::byte* scales = v_tile_ + kKvPagePositions * s_.d;
                fetch_scale_pair(slot, kBatch, i, lane_, scales + scale_index(row) / 2 * 4,
                                 visible);
            }
        }
        v_ += chunk_place(s_.v_type, kBatch * s_.rows_at_once * s_.d);
    }

    const S& s_;
    const DecodeRows& a_;
    const Item& item_;
    const int kv_head_;
    std::byte* const ring_;
    const int warp_, lane_;
    const int first_;  // of the warp's half of a page
    int n_tiles_, n_fetched_ = 0, n_taken_ = 0;
    // What is fetched next, of which half page, and from where.
    int tile_ = 0, batch_ = 0, page_ = 0, n_visible_ = 0;
    const std::byte *k_ = nullptr, *k_scales_ = nullptr, *v_ = nullptr, *v_tile_ = nullptr;
};

}  // namespace ridge::cuda::decode
