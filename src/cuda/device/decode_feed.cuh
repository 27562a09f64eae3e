#pragma once

#include <cstdint>

#include "cuda/device/async.cuh"
#include "cuda/device/decode_fragments.cuh"
#include "cuda/device/decode_shape.cuh"

// How units of the cache come to the warps of decode attention.

namespace ridge::cuda::decode {

// Brings a warp's units of an item to it, every kWarps-th from that of its number on: K of one and
// V of one are on their way or there at any time. What a unit's half of a page lies beside in a
// line of memory belongs to the next warp.
template <class S>
class Feed {
  public:
    // Fetches the first.
    __device__ __forceinline__ Feed(const S& s, const DecodeRows& a, const Item& item, int kv_head,
                                    std::byte* place, int warp, int lane)
        : s_(s),
          a_(a),
          item_(item),
          kv_head_(kv_head),
          unit_(warp),
          n_units_((item.n_in_block + kUnit - 1) / kUnit),
          lane_(lane),
          keys_(shared_address(place)),
          values_(keys_ + S::key_bytes(s.d)) {
        fetch_keys();
        fetch_values();
        const int p = (item.n_in_block - 1) % kUnit;
        if constexpr (S::kHasCodes) {
            new_key_ = keys_ + S::key_place(lane, p / 16) + p % 16;
            new_value_ = values_ + S::value_place(s.d, p, lane / 16) + lane % 16;
        } else {
            new_key_ = keys_ + S::key_place(lane, p / 8) + p % 8 * 2;
            new_value_ = values_ + S::value_place(s.d, p, lane / 8) + lane % 8 * 2;
        }
        settle(new_key_), settle(new_value_);
    }
    __device__ int n_units() const { return n_units_; }
    __device__ SharedAddress keys() const { return keys_; }
    __device__ SharedAddress values() const { return values_; }

    // What has been fetched first of what is still on its way has arrived: for all lanes.
    __device__ void wait() const {
        wait_for_copies<1>();
        __syncwarp();
    }
    // K of the next unit, in place of what all lanes have read; then V of it.
    __device__ __forceinline__ void fetch_keys() {
        if (unit_ < n_units_) {
            find_page();
            const int half = unit_ % 2;
            const std::byte* tile = a_.kv.k_tile(page_, kv_head_);
            if constexpr (S::kHasCodes) {
                const int row = lane_ / 2, piece = lane_ % 2;
                const std::byte* from = tile + row * kKvPagePositions + half * kUnit + piece * 16;
                copy_rows<16>(keys_ + S::key_place(row, piece), from, kKvPagePositions);
                if (lane_ < s_.d / kKvScaleElements * 4) {
                    copy_async<kWholeLines>(keys_ + S::key_scales(s_.d) + lane_ * 16,
                                            tile + s_.d * kKvPagePositions +
                                                lane_ / 4 * 2 * kKvPagePositions +
                                                half * 2 * kUnit + lane_ % 4 * 16);
                }
            } else {
                const int row = lane_ / 4, piece = lane_ % 4;
                const std::byte* from =
                    tile + 2 * (row * kKvPagePositions + half * kUnit) + piece * 16;
                copy_rows<8>(keys_ + S::key_place(row, piece), from, 2 * kKvPagePositions);
            }
        }
        commit_copies();  // of nothing, too: groups are counted
    }
    __device__ __forceinline__ void fetch_values() {
        if (unit_ < n_units_) {
            const int first = unit_ % 2 * kUnit;  // position of the page
            const std::byte* tile = a_.kv.v_tile(page_, kv_head_);
            const int n_visible = item_.n_cached() - unit_ * kUnit;
            const int n_pieces = S::value_pieces(s_.d);
            const std::byte* from = tile + first * n_pieces * 16 + lane_ * 16;
            // Positions lie one behind the other in the tile, and as many pieces as one has take
            // all lanes to the end of the unit.
            if constexpr (S::kAlternates) {
                constexpr int kPieces = S::value_pieces(S::kMostD), kRows = 32 / kPieces;
                const int row = lane_ / kPieces;
                const SharedAddress to = S::value_place(s_.d, row, lane_ % kPieces);
#pragma unroll
                for (int i = 0; i < kPieces; i++) {
                    // value_place of kRows i rows on
                    copy_async<kWholeLines>(values_ + (to ^ kRows * i % 8 * 16) + i * 512,
                                            from + i * 512, kRows * i + row < n_visible);
                }
            } else {
#pragma unroll 4
                for (int i = 0; i < n_pieces; i++) {
                    const int number = i * 32 + lane_, p = number / n_pieces;
                    // Codes that are not to be seen are numbers: times a weight of 0.
                    copy_async<kWholeLines>(values_ + S::value_place(s_.d, p, number % n_pieces),
                                            from + i * 512, S::kHasCodes || p < n_visible);
                }
            }
            if (S::kHasCodes && lane_ < s_.d / 8) {
                const int row_bytes = s_.d / kKvScaleElements * 2;
                copy_async<kWholeLines>(
                    values_ + S::value_scales(s_.d) + lane_ * 16,
                    tile + kKvPagePositions * s_.d + first * row_bytes + lane_ * 16);
            }
            unit_ += S::kWarps, turn_++;
        }
        commit_copies();
    }

    // The newest position, of which the cache has nothing, to its place in the last unit, by the
    // warp, whose copies to there have arrived.
    __device__ __forceinline__ void put_key(const NewRow& row) const {
        for_each_element(s_, lane_, [&](int k) {
            // Rows 32 further on have their pieces where these have them.
            const SharedAddress to = new_key_ + (k - lane_) * S::kKeyRow;
            if constexpr (S::kHasCodes) {
                store_shared(to, static_cast<uint8_t>(row.codes[k]));
            } else {
                store_shared(to, bits_of(row.x[k]));
            }
        });
        if (S::kHasCodes && lane_ < s_.d / kKvScaleElements) {
            const int p = (item_.n_in_block - 1) % kUnit;
            store_shared(keys_ + S::key_scales(s_.d) + lane_ * 2 * kUnit + p * 2,
                         __half_as_ushort(row.scales[lane_]));
        }
        __syncwarp();  // before others read it
    }
    __device__ __forceinline__ void put_value(const NewRow& row) const {
        for_each_element(s_, lane_, [&](int e) {
            if constexpr (S::kHasCodes) {
                store_shared(new_value_ + (e - lane_), static_cast<uint8_t>(row.codes[e]));
            } else {
                // Four pieces further on, of eight that alternate: another bit, not a sum.
                const int on = 2 * (e - lane_);
                store_shared(
                    S::kAlternates ? (new_value_ ^ on % 128) + on / 128 * 128 : new_value_ + on,
                    bits_of(row.x[e]));
            }
        });
        if (S::kHasCodes && lane_ < s_.d / kKvScaleElements) {
            const int p = (item_.n_in_block - 1) % kUnit;
            store_shared(
                values_ + S::value_scales(s_.d) + (p * (s_.d / kKvScaleElements) + lane_) * 2,
                __half_as_ushort(row.scales[lane_]));
        }
        __syncwarp();  // before others read it
    }

  private:
    // Every kRows-th row of K from the lane's first on.
    template <int kRows>
    __device__ __forceinline__ void copy_rows(SharedAddress to, const std::byte* from,
                                              int row_bytes) const {
#pragma unroll
        for (int i = 0; i < S::kMostD / kRows; i++) {
            if (!S::kWhole && i * kRows >= s_.d) break;
            copy_async<kWholeLines>(to + i * kRows * S::kKeyRow, from + i * kRows * row_bytes);
        }
    }
    // Page numbers are read for 32 units at once.
    __device__ __forceinline__ void find_page() {
        if (turn_ % 32 == 0) {
            const int unit = unit_ + lane_ * S::kWarps;
            if (unit < n_units_) {
                pages_ = static_cast<int>(item_.sequence.page(
                    a_.pages, item_.first_position / kKvPagePositions + unit / 2));
            }
        }
        page_ = __shfl_sync(kAllLanes, pages_, turn_ % 32);
    }
    // Exact: they have been rounded.
    __device__ static uint16_t bits_of(float x) {
        return S::kIsF16 ? __half_as_ushort(__float2half_rn(x))
                         : __bfloat16_as_ushort(__float2bfloat16_rn(x));
    }

    const S& s_;
    const DecodeRows& a_;
    const Item& item_;
    const int kv_head_;
    int unit_;  // that is fetched next, K's or V's
    const int n_units_, lane_;
    const SharedAddress keys_, values_;
    SharedAddress new_key_, new_value_;  // of the lane's first element of the newest position
    int turn_ = 0, pages_ = 0, page_ = 0;
};

}  // namespace ridge::cuda::decode
