#pragma once

#include <cstdint>

#include "cuda/device/async.cuh"
#include "cuda/device/block.cuh"
#include "cuda/device/gemm_feed.cuh"
#include "cuda/device/numbers.cuh"
#include "cuda/device/quads.cuh"

// How rows of the input become the gemm's operands.

namespace ridge::cuda {

struct TokenArgs {
    const float* x;  // [n_rows, d_in]
    int64_t stride, d_in;
    int n_rows, n_chunks;
    const float* norm;  // [d_in], or null
    float eps;
    uint4* out;       // [parts, n_chunks, 4 mma, 32 lanes]
    float* inverses;  // [parts, 16]
};

constexpr int kHeldQuads = 4, kMostTokenThreads = 1024;

// Quads of two rows that a thread holds, of a piece of both.
template <bool kAligned>
class TokenPiece {
  public:
    __device__ TokenPiece(const TokenArgs& a, int first_row) : a_(a), first_row_(first_row) {}

    __device__ int n_pieces() const {
        const int n_quads = a_.n_chunks * (kTileChunk / 4),
                  n = kHeldQuads * static_cast<int>(blockDim.x);
        return (n_quads + n - 1) / n;
    }
    __device__ void hold(int piece) {
        if (held_ == piece) return;
        held_ = piece, is_normed_ = false;
        for_each([&](float4& x, int quad, int h) {
            const int64_t row = first_row_ + 8 * h;
            x = {};
            if (row < a_.n_rows && 4 * int64_t{quad} < a_.d_in) {
                x = load_quad<kAligned>(a_.x + row * a_.stride, quad, a_.d_in);
            }
        });
    }
    // scale: of each row, where there is a norm.
    __device__ void hold_normed(int piece, const float (&scale)[2]) {
        hold(piece);
        if (a_.norm == nullptr || is_normed_) return;
        is_normed_ = true;
        for_each([&](float4& x, int quad, int h) {
            if (4 * int64_t{quad} >= a_.d_in) return;
            const float4 w = load_quad<kAligned>(a_.norm, quad, a_.d_in);
            x = {x.x * scale[h] * w.x, x.y * scale[h] * w.y, x.z * scale[h] * w.z,
                 x.w * scale[h] * w.w};
        });
    }
    // use(x, quad, h) of row first_row + 8 h; behind the row's end of zeros.
    template <class Use>
    __device__ void for_each(Use use) {
#pragma unroll
        for (int i = 0; i < kHeldQuads; i++) {
            const int quad = (held_ * kHeldQuads + i) * static_cast<int>(blockDim.x) +
                             static_cast<int>(threadIdx.x);
            use(quads_[i][0], quad, 0), use(quads_[i][1], quad, 1);
        }
    }
    __device__ void store(int piece, const float (&scale)[2], const float (&power)[2]) {
        hold_normed(piece, scale);
#pragma unroll
        for (int i = 0; i < kHeldQuads; i++) {
            const int quad = (held_ * kHeldQuads + i) * static_cast<int>(blockDim.x) +
                             static_cast<int>(threadIdx.x);
            if (quad >= a_.n_chunks * (kTileChunk / 4)) continue;
            const int64_t mma = int64_t{first_row_ / kTokensOfPart} * a_.n_chunks * 4 + quad / 4;
            const float4 &low = quads_[i][0], &high = quads_[i][1];
            const float p = power[0], q = power[1];
            a_.out[mma * 32 + first_row_ % 8 * 4 + quad % 4] =
                make_uint4(two_f16(low.x * p, low.y * p), two_f16(low.z * p, low.w * p),
                           two_f16(high.x * q, high.y * q), two_f16(high.z * q, high.w * q));
        }
    }

  private:
    const TokenArgs& a_;
    const int first_row_;
    int held_ = -1;
    bool is_normed_ = false;
    float4 quads_[kHeldQuads][2];
};

// Of two rows: x over all threads of the block, by of_warp. partial: [2][32], of this call's own.
template <class T, class OfWarp>
__device__ void over_block(T (&x)[2], T (&partial)[2][32], OfWarp of_warp) {
    const int lane = lane_of_thread();
#pragma unroll
    for (int h = 0; h < 2; h++) {
        x[h] = of_warp(x[h]);
        if (lane == 0) partial[h][warp_of_thread()] = x[h];
    }
    __syncthreads();  // partial is complete
    const bool exists = lane < static_cast<int>(blockDim.x / 32);
#pragma unroll
    for (int h = 0; h < 2; h++) x[h] = of_warp(exists ? partial[h][lane] : T(0));
}

// tokens: x, or x / sqrt(mean(x^2) + eps) * norm, times a power of two of each row, as parts of f16
// (device/gemm_feed.cuh), and the powers' inverses
//   A block for rows g and g + 8 of a part, which lie side by side there; its threads hold both, up
//   to 16,384 elements, between what is found out about a row and what is stored of it. Of longer
//   rows they take pieces in turns, and read them again. Sums of squares are f64.
//   Bytes: 6 n_rows d_in.
template <bool kAligned>
__global__ void __launch_bounds__(kMostTokenThreads)
    tokens_kernel(const __grid_constant__ TokenArgs a) {
    __shared__ double sums_of_warps[2][32];
    __shared__ uint32_t greatest_of_warps[2][32];
    wait_for_previous_kernel();
    let_next_kernel_start();
    const int first_row =
        static_cast<int>(blockIdx.x) / 8 * kTokensOfPart + static_cast<int>(blockIdx.x) % 8;
    TokenPiece<kAligned> piece(a, first_row);
    const int n_pieces = piece.n_pieces();
    float scale[2] = {1, 1};
    if (a.norm != nullptr) {
        double sums[2] = {};
        for (int i = 0; i < n_pieces; i++) {
            piece.hold(i);
            piece.for_each([&](const float4& v, int, int h) {
                const double x = v.x, y = v.y, z = v.z, w = v.w;
                sums[h] = fma(x, x, fma(y, y, fma(z, z, fma(w, w, sums[h]))));
            });
        }
        over_block(sums, sums_of_warps, [](double x) { return warp_sum(x); });
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const double mean = sums[h] / static_cast<double>(a.d_in);
            scale[h] = static_cast<float>(rsqrt(mean + double{a.eps}));
        }
    }
    uint32_t greatest[2] = {};
    for (int i = 0; i < n_pieces; i++) {
        piece.hold_normed(i, scale);
        piece.for_each([&](const float4& v, int, int h) {
            // NaN lies above all numbers.
            for (float x : {v.x, v.y, v.z, v.w}) {
                greatest[h] = max(greatest[h], __float_as_uint(x) & 0x7fffffffu);
            }
        });
    }
    over_block(greatest, greatest_of_warps,
               [](uint32_t x) { return __reduce_max_sync(kAllLanes, x); });
    const PowerOfTwo of_row[2] = {power_for_f16(greatest[0]), power_for_f16(greatest[1])};
    if (threadIdx.x == 0) {
        a.inverses[first_row] = of_row[0].inverse, a.inverses[first_row + 8] = of_row[1].inverse;
    }
    const float power[2] = {of_row[0].power, of_row[1].power};
    for (int i = 0; i < n_pieces; i++) piece.store(i, scale, power);
}

}  // namespace ridge::cuda
