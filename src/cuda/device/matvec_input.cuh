#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <cstring>

#include "cuda/device/async.cuh"
#include "cuda/product.h"
#include "cuda/tiles.h"

// What a matvec kernel is given, and how its blocks bring the input to shared memory.

namespace ridge::cuda::matvec {

constexpr int kColumns = 8;
constexpr int kPartElements = 256;  // of x that a warp fetches at a time: a lane eight

// Shared memory of a block, in bytes from its beginning; computed on the host, as all is that
// threads would compute alike.
struct SharedPlan {
    // x [n_rows][pitch] at 0. Starts, of the blocks that share a scale: [blocks][4] float4. Squares
    // of parts of x [n_rows][n_parts]. Sums of warps [2][n_warps][n_sides][kTileRows][kColumns].
    int pitch, starts, squares, sums, n_bytes;
    int n_parts;
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
    bool x_is_aligned;  // to 16 bytes, all rows
    const float* norm;  // [d_in]: x is normed with it first; or null
    float eps;
    float taken;  // what sums of codes have too much: so many times that of x
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

// Elements of x lie in shared memory so that a lane's of the four mma of a chunk are side by side:
// quad q, elements 4 q to 4 q + 3, is number
__device__ inline int quad_place(int q) {
    return (q & ~15) + (q & 3) * 4 + (q >> 2 & 3);
}

// Elements k to k + 7 of a row; those past its end are 0.
struct Eight {
    float4 low, high;

    __device__ Eight() : low(make_float4(0, 0, 0, 0)), high(low) {}
    __device__ void load(const float* row, int k, int d_in, bool aligned) {
        if (aligned && k + 8 <= d_in) {
            low = *reinterpret_cast<const float4*>(row + k);
            high = *reinterpret_cast<const float4*>(row + k + 4);
        } else {
            auto at = [&](int i) { return k + i < d_in ? row[k + i] : 0.0f; };
            low = make_float4(at(0), at(1), at(2), at(3));
            high = make_float4(at(4), at(5), at(6), at(7));
        }
    }
};

// Brings the rows of x to shared memory as bf16, zeros behind the last column; where x is normed,
// times `norm`, and the squares of each part; and what sums over each `block` elements begin with:
// -taken times that of x. Warps take parts of 256 elements in turns, lanes eight neighbours each.
// Starts of rows that are not there are left as they are, and end in sums that nobody reads.
template <int block, int kWarps>
class XLoader {
  public:
    __device__ XLoader(const MatvecArgs& a, uint8_t* shared, int warp, int lane)
        : a_(a), shared_(shared), lane_(lane), part_(warp) {
        // What the kernel before has no part in.
        if (a.norm == nullptr) return;
        if (a.n_rows == 1) {
            load_norms();
        } else if (k_of(part_) < a.d_in) {
            prefetch(a.norm + k_of(part_));
        }
    }
    __device__ void run() {
        if (a_.n_rows == 1) {
            run_single();
        } else {
            run_many();
        }
    }

  private:
    struct Piece {
        int row, part, k;
    };

    __device__ int k_of(int part) const { return part * kPartElements + 8 * lane_; }

    // Parts of a single row, two at a time.
    __device__ __forceinline__ void load_norms() {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (part_ + i * kWarps < a_.plan.n_parts) {
                norms_[i].load(a_.norm, k_of(part_ + i * kWarps), a_.d_in, true);
            }
        }
    }
    __device__ __forceinline__ void run_single() {
        while (part_ < a_.plan.n_parts) {
            const int next = part_ + kWarps;
            Eight x[2];
            x[0].load(a_.x, k_of(part_), a_.d_in, a_.x_is_aligned);
            if (next < a_.plan.n_parts) x[1].load(a_.x, k_of(next), a_.d_in, a_.x_is_aligned);
            place({0, part_, k_of(part_)}, x[0], norms_[0]);
            if (next >= a_.plan.n_parts) return;  // of all lanes
            place({0, next, k_of(next)}, x[1], norms_[1]);
            part_ = next + kWarps;
            if (a_.norm != nullptr) load_norms();
        }
    }
    // Of several rows, row after row of a part, four at a time.
    __device__ __forceinline__ void run_many() {
        constexpr int kAtOnce = 4;
        int row = 0;
        while (part_ < a_.plan.n_parts) {
            Piece pieces[kAtOnce];
            Eight x[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; i++) {
                pieces[i] = {row, part_, k_of(part_)};
                if (part_ < a_.plan.n_parts) {
                    x[i].load(a_.x + row * a_.x_stride, pieces[i].k, a_.d_in, a_.x_is_aligned);
                }
                if (++row == a_.n_rows) row = 0, part_ += kWarps;
            }
#pragma unroll
            for (int i = 0; i < kAtOnce; i++) {
                if (pieces[i].part >= a_.plan.n_parts) return;  // of all lanes
                Eight norm;
                if (a_.norm != nullptr) norm.load(a_.norm, pieces[i].k, a_.d_in, true);
                place(pieces[i], x[i], norm);
            }
        }
    }
    __device__ __forceinline__ void place(const Piece& piece, Eight x, const Eight& norm) const {
        const SharedPlan& plan = a_.plan;
        float square = 0;
        if (a_.norm != nullptr) {
            square = x.low.x * x.low.x;
            square = fmaf(x.low.y, x.low.y, square), square = fmaf(x.low.z, x.low.z, square);
            square = fmaf(x.low.w, x.low.w, square), square = fmaf(x.high.x, x.high.x, square);
            square = fmaf(x.high.y, x.high.y, square), square = fmaf(x.high.z, x.high.z, square);
            square = fmaf(x.high.w, x.high.w, square);
            x.low = make_float4(x.low.x * norm.low.x, x.low.y * norm.low.y, x.low.z * norm.low.z,
                                x.low.w * norm.low.w);
            x.high = make_float4(x.high.x * norm.high.x, x.high.y * norm.high.y,
                                 x.high.z * norm.high.z, x.high.w * norm.high.w);
        }
        const __nv_bfloat162 pairs[4] = {
            __floats2bfloat162_rn(x.low.x, x.low.y), __floats2bfloat162_rn(x.low.z, x.low.w),
            __floats2bfloat162_rn(x.high.x, x.high.y), __floats2bfloat162_rn(x.high.z, x.high.w)};
        const bool is_there = piece.k < a_.geometry.n_chunks * kTileChunk;
        if (is_there) {
            uint32_t words[4];
            memcpy(words, pairs, sizeof words);
            auto* to = reinterpret_cast<uint2*>(shared_ + piece.row * plan.pitch) +
                       quad_place(piece.k / 4);
            to[0] = make_uint2(words[0], words[1]);
            to[4] = make_uint2(words[2], words[3]);  // quad_place of the next, which is odd
        }
        if constexpr (block > 0) {
            float sum = 0;
#pragma unroll
            for (const __nv_bfloat162& pair : pairs) {
                const float2 two = __bfloat1622float2(pair);
                sum += two.x + two.y;
            }
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            if constexpr (block == 32) sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            constexpr int kLanes = block / 8;
            if (is_there && lane_ % kLanes < 2) {  // both copies
                auto* starts = reinterpret_cast<float*>(shared_ + plan.starts);
                starts[(piece.k / block * 4 + piece.row / 2) * 4 + lane_ % kLanes * 2 +
                       piece.row % 2] = -a_.taken * sum;
            }
        }
        if (a_.norm != nullptr) {
            for (int l = 16; l > 0; l /= 2) square += __shfl_xor_sync(0xffffffffu, square, l);
            if (lane_ == 0) {
                reinterpret_cast<float*>(
                    shared_ + plan.squares)[piece.row * plan.n_parts + piece.part] = square;
            }
        }
    }

    const MatvecArgs& a_;
    uint8_t* const shared_;
    const int lane_;
    int part_;  // that is loaded next
    Eight norms_[2];
};

}  // namespace ridge::cuda::matvec
