#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cuda/device/async.cuh"
#include "cuda/device/block.cuh"
#include "cuda/device/numbers.cuh"
#include "cuda/product.h"
#include "cuda/tiles.h"

// What a matvec kernel is given, and how its blocks bring the input to shared memory.

namespace ridge::cuda::matvec {

constexpr int kColumns = 8;
constexpr int kRoundChunks = 4;  // of x that a warp fetches at a time: a lane eight elements

// How rows of x lie in shared memory.
enum class Input : uint8_t {
    kSeveral,  // up to eight, one behind the other
    kSingle,   // one
    kByWarp,   // one; what sums begin with lies warp by warp, of two blocks {lower, lower, upper,
               // upper}
};

// Shared memory of a block, in bytes from its beginning; computed on the host, as all is that
// threads would compute alike.
struct SharedPlan {
    // x [n_rows][pitch] at 0. Starts, of the blocks that share a scale: of one row [blocks] float2,
    // else [blocks][4] float4. Inverse powers of warps' rows [n_warps][kColumns], and their squares
    // [n_rows][n_warps]. Sums of warps [2][n_warps][n_sides][kTileRows][kColumns].
    // With Input::kByWarp: starts [n_warps][chunks of a warp][pairs of blocks] float4, sums of one
    // column, and behind them warps' rings.
    int pitch, starts, inverses, squares, sums, ring, n_bytes;
};

// One weight of a call, and where its products go.
struct TileWeight {
    const uint8_t* data;
    const float* bias;  // or null
    int first_unit;     // behind the last of all: there is no such weight
    int n_tiles, n_rows;
    int column;  // of out, for row 0
};

struct MatvecArgs {
    TileWeight weights[3];
    int n_weights, n_units;
    int unit_tiles;         // of one weight: 2 where units are neighbours, else 1
    TileGeometry geometry;  // the same for all
    const float* x;         // [n_rows, d_in]
    int x_stride, d_in, n_rows;
    bool has_eights;             // rows of x are whole eights, aligned to 16 bytes
    const float* norm;           // [d_in]: x is normed with it first; or null
    uint8_t* rounded;            // of several rows: what lies before sums in the plan
    float per_element, eps;      // 1 / d_in
    float excess, upper_excess;  // of sums of codes (device/tile_codes.cuh)
    Epilogue epilogue;
    float* out;
    int out_stride;
    SharedPlan plan;
};

// The weight of a unit: units are the tiles of all weights, one behind the other, or pairs of
// neighbours; with kSwiglu the tiles of the first, each with that of the second.
__device__ inline const TileWeight& weight_of(const MatvecArgs& a, int unit) {
    return a.weights[(unit >= a.weights[1].first_unit ? 1 : 0) +
                     (unit >= a.weights[2].first_unit ? 1 : 0)];
}

// Of a unit of two sides: from the first one's tile, of this number in its weight, to the other's,
// in bytes. A last tile without a neighbour is taken twice.
__device__ inline int64_t second_side(const MatvecArgs& a, const TileWeight& weight, int tile) {
    if (a.unit_tiles == 1) return a.weights[1].data - a.weights[0].data;
    return tile + 1 < weight.n_tiles ? a.geometry.part_bytes : 0;
}

// Elements of x lie in shared memory so that a lane's of the four mma of a chunk are side by side:
// quad q, elements 4 q to 4 q + 3, is number
__device__ inline int quad_place(int q) {
    return (q & ~15) + (q & 3) * 4 + (q >> 2 & 3);
}

// Elements k to k + 7 of a row.
struct Eight {
    float4 low, high;

    __device__ Eight() : low(make_float4(0, 0, 0, 0)), high(low) {}
    __device__ void load(const float* at) {
        low = reinterpret_cast<const float4*>(at)[0];
        high = reinterpret_cast<const float4*>(at)[1];
    }
    // Of a row that may end before them, or lie anywhere.
    __device__ void load_some(const float* at, int n) {
        auto element = [&](int i) { return i < n ? at[i] : 0.0f; };
        low = make_float4(element(0), element(1), element(2), element(3));
        high = make_float4(element(4), element(5), element(6), element(7));
    }
};

// Makes of a row of x what a warp multiplies of it: chunks warp, warp + kWarps, ... as f16, times
// `norm` where x is normed, and times a power of two, by which the greatest of them stays below
// 2^15. Beside it the inverse power; where x is normed the sum of squares; and what sums over each
// `block` elements begin with: -excess times that of x. Zeros stand behind the last column.
// `room`: where the first of the plan lies, in shared memory of a single row. kRounds: of a row
// that has_eights, at least as many as any warp has; 0: of any row.
template <int block, int kWarps, Input kInput, int kRounds = 0>
class RowRounder {
  public:
    __device__ RowRounder(const MatvecArgs& a, uint8_t* room, int warp, int lane)
        : a_(a),
          room_(room),
          warp_(warp),
          lane_(lane),
          k_((warp + lane / 8 * kWarps) * kTileChunk + lane % 8 * 8),
          n_rounds_((a.geometry.n_chunks - warp + kWarps * kRoundChunks - 1) /
                    (kWarps * kRoundChunks)) {
        if (a.norm == nullptr || !a.has_eights) return;
        // What the kernel before has no part in.
        if (k_ < a.d_in) first_norm_.load(a.norm + k_);
        for (int i = 1; i < n_rounds_; i++) {
            if (k_of(i) < a.d_in) prefetch(a.norm + k_of(i));
        }
    }
    __device__ void run(int row) const {
        if constexpr (kRounds > 0) {
            take<kRounds>(row);
        } else if (n_rounds_ <= 0) {  // a warp that multiplies nothing
            place_inverse(row, 0), place_square(row, 0);
        } else if (!a_.has_eights) {
            take_any(row);
        } else if (n_rounds_ == 1) {
            take<1>(row);
        } else if (n_rounds_ == 2) {
            take<2>(row);
        } else if (n_rounds_ == 3) {
            take<3>(row);
        } else {
            take_long(row);
        }
    }

  private:
    __device__ void place_inverse(int row, float inverse) const {
        if (lane_ != 0) return;
        reinterpret_cast<float*>(room_ + a_.plan.inverses)[warp_ * kColumns + row] = inverse;
    }
    __device__ void place_square(int row, float square) const {
        if (a_.norm == nullptr || lane_ != 0) return;
        reinterpret_cast<float*>(room_ + a_.plan.squares)[row * kWarps + warp_] = square;
    }

    __device__ int k_of(int round) const {
        return k_ + round * (kWarps * kRoundChunks * kTileChunk);
    }
    // A row of up to kHeld rounds that has_eights.
    template <int kHeld>
    __device__ __forceinline__ void take(int row) const {
        Eight x[kHeld];
#pragma unroll
        for (int round = 0; round < kHeld; round++) {
            const int k = k_of(round);
            if (k < a_.d_in) x[round].load(a_.x + row * a_.x_stride + k);
        }
        float square = 0, greatest = 0;
#pragma unroll
        for (int round = 0; round < kHeld; round++) {
            Eight norm;
            if (round == 0) {
                norm = first_norm_;
            } else if (a_.norm != nullptr && k_of(round) < a_.d_in) {
                norm.load(a_.norm + k_of(round));
            }
            weigh(x[round], norm, square, greatest);
        }
        const float power = power_for(row, greatest);
#pragma unroll
        for (int round = 0; round < kHeld; round++) {
            if (kRounds > 0 || round < n_rounds_) place(row, round, x[round], power);
        }
        add_squares(row, square);
    }
    // A row of more rounds than registers hold: it is loaded twice, the second time from the first
    // cache. It has_eights.
    __device__ __forceinline__ void take_long(int row) const {
        constexpr int kAtOnce = 3;
        float square = 0, greatest = 0, power = 0;
#pragma unroll 1
        for (int pass = 0; pass < 2; pass++) {
            if (pass == 1) {
                power = power_for(row, greatest);
                add_squares(row, square);
            }
#pragma unroll 1
            for (int first = 0; first < n_rounds_; first += kAtOnce) {
                Eight x[kAtOnce];
#pragma unroll
                for (int i = 0; i < kAtOnce; i++) {
                    const int k = k_of(first + i);
                    if (k < a_.d_in) x[i].load(a_.x + row * a_.x_stride + k);
                }
#pragma unroll
                for (int i = 0; i < kAtOnce; i++) {
                    const int k = k_of(first + i);
                    Eight norm;
                    if (a_.norm != nullptr && k < a_.d_in) norm.load(a_.norm + k);
                    weigh(x[i], norm, square, greatest);
                    if (pass == 1 && first + i < n_rounds_) place(row, first + i, x[i], power);
                }
            }
        }
    }
    // A row of any length that lies anywhere; it is loaded twice.
    __device__ __forceinline__ void take_any(int row) const {
        float square = 0, greatest = 0, power = 0;
#pragma unroll 1
        for (int i = 0; i < 2 * n_rounds_; i++) {
            const bool places = i >= n_rounds_;
            const int round = places ? i - n_rounds_ : i, k = k_of(round);
            if (i == n_rounds_) {
                power = power_for(row, greatest);
                add_squares(row, square);
            }
            Eight x, norm;
            x.load_some(a_.x + row * a_.x_stride + k, a_.d_in - k);
            if (a_.norm != nullptr) norm.load_some(a_.norm + k, a_.d_in - k);
            weigh(x, norm, square, greatest);
            if (places) place(row, round, x, power);
        }
    }
    // The power of two that a row is multiplied by; its inverse is placed.
    __device__ __forceinline__ float power_for(int row, float greatest) const {
        const PowerOfTwo of_row =
            power_for_f16(__reduce_max_sync(kAllLanes, __float_as_uint(greatest)));
        place_inverse(row, of_row.inverse);
        return of_row.power;
    }
    __device__ __forceinline__ void add_squares(int row, float square) const {
        if (a_.norm != nullptr) place_square(row, warp_sum(square));
    }
    // x times the norm, its squares before, and the greatest of it behind.
    __device__ __forceinline__ void weigh(Eight& x, const Eight& norm, float& square,
                                          float& greatest) const {
        if (a_.norm != nullptr) {
            square = fmaf(x.low.x, x.low.x, square), square = fmaf(x.low.y, x.low.y, square);
            square = fmaf(x.low.z, x.low.z, square), square = fmaf(x.low.w, x.low.w, square);
            square = fmaf(x.high.x, x.high.x, square), square = fmaf(x.high.y, x.high.y, square);
            square = fmaf(x.high.z, x.high.z, square), square = fmaf(x.high.w, x.high.w, square);
            x.low.x *= norm.low.x, x.low.y *= norm.low.y, x.low.z *= norm.low.z;
            x.low.w *= norm.low.w, x.high.x *= norm.high.x, x.high.y *= norm.high.y;
            x.high.z *= norm.high.z, x.high.w *= norm.high.w;
        }
        auto note = [&](float value) { greatest = fmaxf(greatest, fabsf(value)); };
        note(x.low.x), note(x.low.y), note(x.low.z), note(x.low.w);
        note(x.high.x), note(x.high.y), note(x.high.z), note(x.high.w);
    }
    __device__ __forceinline__ void place(int row, int round, const Eight& x, float power) const {
        const uint32_t words[4] = {two_f16(x.low.x * power, x.low.y * power),
                                   two_f16(x.low.z * power, x.low.w * power),
                                   two_f16(x.high.x * power, x.high.y * power),
                                   two_f16(x.high.z * power, x.high.w * power)};
        const int k = k_of(round);
        const bool is_there = k < a_.geometry.n_chunks * kTileChunk;
        if (is_there) {
            auto* to = reinterpret_cast<uint2*>(room_ + row * a_.plan.pitch) + quad_place(k / 4);
            to[0] = make_uint2(words[0], words[1]);
            to[4] = make_uint2(words[2], words[3]);  // quad_place of the next, which is odd
        }
        if constexpr (block > 0) {
            float sum = 0;
#pragma unroll
            for (const uint32_t word : words) {
                const float2 two = floats_of_f16(word);
                sum += two.x + two.y;
            }
            sum += __shfl_xor_sync(kAllLanes, sum, 1);
            if constexpr (block == 32) sum += __shfl_xor_sync(kAllLanes, sum, 2);
            constexpr int kLanes = block / 8;
            if (is_there && lane_ % kLanes < 2) {
                const bool upper = lane_ % kLanes == 1;
                place_start(row, round, upper, -(upper ? a_.upper_excess : a_.excess) * sum);
            }
        }
    }
    __device__ __forceinline__ void place_start(int row, int round, bool upper, float start) const {
        const int k = k_of(round);
        int at = 0;
        if constexpr (kInput == Input::kByWarp) {
            const int of_warp = (a_.geometry.n_chunks + kWarps - 1) / kWarps,
                      chunk = warp_ * of_warp + round * kRoundChunks + lane_ / 8,
                      number = chunk * (kTileChunk / block) + k % kTileChunk / block;
            at = number / 2 * 4 + (upper ? 2 : 0) + number % 2;
        } else if constexpr (kInput == Input::kSingle) {
            at = 2 * (k / block) + (upper ? 1 : 0);
        } else {
            at = (k / block * 4 + row / 2) * 4 + (upper ? 2 : 0) + row % 2;
        }
        reinterpret_cast<float*>(room_ + a_.plan.starts)[at] = start;
    }

    const MatvecArgs& a_;
    uint8_t* const room_;
    const int warp_, lane_;
    const int k_, n_rounds_;
    Eight first_norm_;
};

// Brings what RowRounder has made of several rows to shared memory: a warp what it multiplies
// itself, the first warp all squares, which are read behind a barrier of the block.
template <int block, int kWarps>
__device__ __forceinline__ void fetch_rows(const MatvecArgs& a, uint8_t* shared, int warp,
                                           int lane) {
    auto copy = [&](int at) { copy_async<16>(shared + at, a.rounded + at); };
    constexpr int kPieces = kTileChunk * 2 / 16;  // of a row's chunk
    for (int chunk = warp; chunk < a.geometry.n_chunks; chunk += kWarps) {
        for (int p = lane; p < a.n_rows * kPieces; p += 32) {
            copy(p / kPieces * a.plan.pitch + chunk * (kTileChunk * 2) + p % kPieces * 16);
        }
        if constexpr (block > 0) {
            constexpr int kBytes = kTileChunk / block * 64;
            if (16 * lane < kBytes) copy(a.plan.starts + chunk * kBytes + 16 * lane);
        }
    }
    if (16 * lane < kColumns * 4) copy(a.plan.inverses + warp * (kColumns * 4) + 16 * lane);
    if (a.norm != nullptr && warp == 0) {
        for (int at = 16 * lane; at < a.n_rows * kWarps * 4; at += 16 * 32) {
            copy(a.plan.squares + at);
        }
    }
    commit_copies();
    wait_for_copies<0>();
}

}  // namespace ridge::cuda::matvec
