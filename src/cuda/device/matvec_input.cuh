#pragma once

#include <cstdint>

#include "cuda/device/async.cuh"
#include "cuda/device/block.cuh"
#include "cuda/device/instructions.cuh"
#include "cuda/device/numbers.cuh"
#include "cuda/product.h"
#include "cuda/tiles.h"

// What a matvec kernel is given, and how its blocks bring the input to shared memory.

namespace ridge::cuda::matvec {

constexpr int kColumns = 8;

// Rows of x as they are multiplied: with weights of f16 as f16, with codes as fixed point of 16
// bits (device/numbers.cuh).
enum class Operand : uint8_t { kF16, kFixed };

// How they lie in shared memory: a chunk of a row, of 64 elements, takes kChunkBytes either way; of
// f16 [t][m] quads of elements 16 m + 4 t and up, of fixed point the high bytes of [t][m], then
// the low ones.
enum class Input : uint8_t {
    kRows,    // up to eight, one behind the other
    kByWarp,  // one row: of each warp the chunks that it multiplies, one behind the other, then
              // zeros: in all two for each quad of a lane
};
constexpr int kChunkBytes = 2 * kTileChunk;

// Shared memory of a block, in bytes from its beginning. That of Input::kRows, computed on the
// host, as all is that threads would compute alike; of Input::kByWarp it follows from the kernel's
// shape (RowPlan, device/matvec_row.cuh).
struct SharedPlan {
    // x [n_rows][pitch] at 0. Of fixed point what blocks' sums of products begin with, int [pairs
    // of blocks][row % 4][row / 4][block of the pair], of one row [blocks]: sums of x, times
    // -offset where codes have one; else they are what mins are multiplied by. Inverse factors of
    // warps' rows [n_warps][kColumns], and their squares [n_rows][n_warps]. Sums of warps
    // [2][n_warps][n_sides][kTileRows][kColumns].
    int pitch, x_sums, inverses, squares, sums, n_bytes;
};

// One weight of a call, and where its products go.
struct TileWeight {
    const uint8_t* data;
    const float* bias;  // or null
    int n_tiles, n_rows;
    int column;  // of out, for row 0
};

struct MatvecArgs {
    // What blocks need before they ask for weights lies in two lines of the cache of arguments,
    // which every kernel finds empty.
    int n_units, unit_tiles;  // tiles of a unit, of one weight: 2 where it is neighbours, else 1
    int offset;               // taken away from codes: the geometry's
    TileGeometry geometry;    // the same for all weights
    int n_weights;
    int first_units[3];  // of each weight; behind the last of all: there is no such weight
    TileWeight weights[3];
    const float* x;  // [n_rows, d_in]
    int x_stride, d_in, n_rows;
    bool has_quads;          // rows of x are whole quads, aligned to 16 bytes
    const float* norm;       // [d_in]: x is normed with it first; or null
    uint8_t* rounded;        // of several rows: what lies before sums in the plan
    float per_element, eps;  // 1 / d_in
    Epilogue epilogue;
    float* out;
    int out_stride;
    SharedPlan plan;
};

// Where things lie by the plan of the arguments.
struct PlanOfArgs {
    __device__ static int x_sums(const MatvecArgs& a) { return a.plan.x_sums; }
    __device__ static int inverses(const MatvecArgs& a) { return a.plan.inverses; }
    __device__ static int squares(const MatvecArgs& a) { return a.plan.squares; }
};

// The weight of a unit: units are the tiles of all weights, one behind the other, or pairs of
// neighbours; with kSwiglu the tiles of the first, each with that of the second.
__device__ inline const TileWeight& weight_of(const MatvecArgs& a, int unit) {
    return a.weights[(unit >= a.first_units[1] ? 1 : 0) + (unit >= a.first_units[2] ? 1 : 0)];
}
// The number of a unit's first tile in its weight.
__device__ inline int tile_of(const MatvecArgs& a, int unit) {
    const int first = unit >= a.first_units[2]   ? a.first_units[2]
                      : unit >= a.first_units[1] ? a.first_units[1]
                                                 : 0;
    return (unit - first) * a.unit_tiles;
}

// Of a unit of two sides: from the first one's tile, of this number in its weight, to the other's,
// in bytes. A last tile without a neighbour is taken twice.
__device__ inline int64_t second_side(const MatvecArgs& a, const TileWeight& weight, int tile) {
    if (a.unit_tiles == 1) return a.weights[1].data - a.weights[0].data;
    return tile + 1 < weight.n_tiles ? a.geometry.part_bytes : 0;
}

// Elements k to k + 3 of a row that may end before them, or lie anywhere.
__device__ inline float4 load_some(const float* at, int n) {
    auto element = [&](int i) { return i < n ? at[i] : 0.0f; };
    return make_float4(element(0), element(1), element(2), element(3));
}

// Makes of a row of x what a warp multiplies of it: chunks warp, warp + kWarps, ... times `norm`
// where x is normed, and times a factor by which the greatest of them fits the operand. Beside it
// the inverse factor; where x is normed the sum of squares; and of fixed point the sums of each
// `block` elements. Zeros stand behind the last column. `room`: where the first of the plan lies,
// in shared memory of a single row. kQuads: of a row that has_quads, at least as many as any lane
// has; 0: of any row. Plan: a SharedPlan's offsets (PlanOfArgs).
template <Operand kOperand, int block, int kWarps, Input kInput, int kQuads, class Plan>
class RowRounder {
  public:
    __device__ RowRounder(const MatvecArgs& a, uint8_t* room, int warp, int lane)
        : a_(a),
          room_(room),
          warp_(warp),
          lane_(lane),
          n_quads_((a.geometry.n_chunks - warp + kWarps * kLanesChunks - 1) /
                   (kWarps * kLanesChunks)) {
        // Of the norm, in which the kernel before has no part.
        if (a.norm == nullptr || !a.has_quads) return;
#pragma unroll
        for (int q = 0; q < kFirst; q++) first_norm_[q] = quad_of(a.norm, q);
        for (int q = kFirst; q < n_quads_; q++) {
            if (k_of(q) < a.d_in) prefetch(a.norm + k_of(q));
        }
    }
    // behind_x(): called when x has come.
    template <class F>
    __device__ __forceinline__ void run(int row, F behind_x) const {
        static_assert(kQuads > 0);
        take<kQuads>(row, behind_x);
    }
    __device__ void run(int row) const {
        auto nothing = [] {};
        if constexpr (kQuads > 0) {
            take<kQuads>(row, nothing);
        } else if (n_quads_ <= 0) {  // a warp that multiplies nothing
            place_inverse(row, 0), place_square(row, 0);
        } else if (!a_.has_quads || n_quads_ > 6) {
            take_in_turns(row);
        } else if (n_quads_ <= 2) {
            take<2>(row, nothing);
        } else if (n_quads_ <= 4) {
            take<4>(row, nothing);
        } else {
            take<6>(row, nothing);
        }
    }

  private:
    static constexpr int kLanesChunks = 2;  // of which the lanes have a quad each at a time
    // Quads of the norm that come early.
    static constexpr int kFirst = kQuads == 3 ? 3 : 2;

    __device__ void place_inverse(int row, float inverse) const {
        if (lane_ != 0) return;
        reinterpret_cast<float*>(room_ + Plan::inverses(a_))[warp_ * kColumns + row] = inverse;
    }
    __device__ void place_square(int row, float square) const {
        if (a_.norm == nullptr || lane_ != 0) return;
        reinterpret_cast<float*>(room_ + Plan::squares(a_))[row * kWarps + warp_] = square;
    }

    // A lane's quad q lies in the warp's chunk of this number, and begins with element k_of(q).
    __device__ int number_of(int q) const {
        return kLanesChunks * q + lane_ / 16;
    }
    __device__ int chunk_of(int q) const {
        return warp_ + number_of(q) * kWarps;
    }
    __device__ int k_of(int q) const {
        return chunk_of(q) * kTileChunk + lane_ % 16 * 4;
    }
    __device__ float4 quad_of(const float* row, int q) const {
        const int k = k_of(q);
        return k < a_.d_in ? *reinterpret_cast<const float4*>(row + k) : make_float4(0, 0, 0, 0);
    }
    // All quads, without a condition, so that none waits for what is done with another.
    template <int kHeld>
    __device__ __forceinline__ void load_all(const float* row, float4 (&x)[kHeld]) const {
#pragma unroll
        for (int q = 0; q < kHeld; q++) {
            load_quad(x[q], row + min(k_of(q), a_.d_in - 4));
        }
#pragma unroll
        for (int q = 0; q < kHeld; q++) {
            if (k_of(q) >= a_.d_in) x[q] = make_float4(0, 0, 0, 0);
        }
    }

    // A row of up to kHeld quads a lane that has_quads.
    template <int kHeld, class F>
    __device__ __forceinline__ void take(int row, F behind_x) const {
        float4 x[kHeld];
        load_all(a_.x + row * a_.x_stride, x);
        float square = 0, greatest = 0;
#pragma unroll
        for (int q = 0; q < kHeld; q++) {
            float4 norm = make_float4(0, 0, 0, 0);
            if (q < kFirst) {
                norm = first_norm_[q];
            } else if (a_.norm != nullptr) {
                norm = quad_of(a_.norm, q);
            }
            weigh(x[q], norm, square, greatest);
        }
        const float factor = factor_for(row, greatest);
        behind_x();
#pragma unroll
        for (int q = 0; q < kHeld - 1; q += 2) place(row, q, x[q], x[q + 1], factor);
        if constexpr (kHeld % 2 == 1) place_last(row, kHeld - 1, x[kHeld - 1], factor);
        add_squares(row, square);
    }
    // A row of more quads than registers hold, or that lies anywhere: it is loaded twice, the
    // second time from the first cache.
    __device__ __forceinline__ void take_in_turns(int row) const {
        constexpr int kAtOnce = 4;
        float square = 0, greatest = 0, factor = 0;
#pragma unroll 1
        for (int pass = 0; pass < 2; pass++) {
            if (pass == 1) {
                factor = factor_for(row, greatest);
                add_squares(row, square);
            }
#pragma unroll 1
            for (int first = 0; first < n_quads_; first += kAtOnce) {
                float4 x[kAtOnce];
                auto load = [&](const float* from, int q) {
                    return a_.has_quads ? quad_of(from, q)
                                        : load_some(from + k_of(q), a_.d_in - k_of(q));
                };
#pragma unroll
                for (int i = 0; i < kAtOnce; i++) x[i] = load(a_.x + row * a_.x_stride, first + i);
#pragma unroll
                for (int i = 0; i < kAtOnce; i++) {
                    float4 norm = make_float4(0, 0, 0, 0);
                    if (a_.norm != nullptr) norm = load(a_.norm, first + i);
                    weigh(x[i], norm, square, greatest);
                }
                if (pass == 0) continue;
#pragma unroll
                for (int i = 0; i < kAtOnce; i += 2) place(row, first + i, x[i], x[i + 1], factor);
            }
        }
    }
    // What a row is multiplied by; its inverse is placed.
    __device__ __forceinline__ float factor_for(int row, float greatest) const {
        const uint32_t bits = __reduce_max_sync(kAllLanes, __float_as_uint(greatest));
        if constexpr (kOperand == Operand::kF16) {
            const PowerOfTwo power = power_for_f16(bits);
            place_inverse(row, power.inverse);
            return power.power;
        } else {
            const FixedPoint fixed = fixed_point_for(bits);
            place_inverse(row, fixed.inverse);
            return fixed.factor;
        }
    }
    __device__ __forceinline__ void add_squares(int row, float square) const {
        if (a_.norm != nullptr) place_square(row, warp_sum(square));
    }
    // x times the norm, its squares before, and the greatest of it behind.
    __device__ __forceinline__ void weigh(float4& x, const float4& norm, float& square,
                                          float& greatest) const {
        if (a_.norm != nullptr) {
            square = fmaf(x.x, x.x, square), square = fmaf(x.y, x.y, square);
            square = fmaf(x.z, x.z, square), square = fmaf(x.w, x.w, square);
            x.x *= norm.x, x.y *= norm.y, x.z *= norm.z, x.w *= norm.w;
        }
        greatest = greater_or_nan(greater_or_nan(greatest, x.x), x.y);
        greatest = greater_or_nan(greater_or_nan(greatest, x.z), x.w);
    }

    // Where the lane's part of a chunk lies, that of m and t.
    template <int kBytes>
    __device__ uint8_t* place_of(int row, int q) const {
        const int at = (lane_ % 4 * 4 + lane_ / 4 % 4) * kBytes;
        if constexpr (kInput == Input::kByWarp) {
            return room_ + ((warp_ * (2 * kQuads) + number_of(q)) * kChunkBytes + at);
        } else {
            return room_ + (row * a_.plan.pitch + chunk_of(q) * kChunkBytes + at);
        }
    }
    // Whether there is room for it.
    __device__ bool is_there(int q) const {
        return kInput == Input::kByWarp || chunk_of(q) < a_.geometry.n_chunks;
    }

    // Quads q and q + 1.
    __device__ __forceinline__ void place(int row, int q, const float4& x, const float4& next,
                                          float factor) const {
        if constexpr (kOperand == Operand::kF16) {
            place_f16(row, q, x, factor), place_f16(row, q + 1, next, factor);
        } else {
            const FixedQuad a = fixed_quad(x, factor), b = fixed_quad(next, factor);
            place_fixed(row, q, a), place_fixed(row, q + 1, b);
            // Half of a block's lanes add the first quads, half the second ones.
            constexpr int kLanes = block / 4, kHalf = kLanes / 2;
            const bool second = (lane_ & kHalf) != 0;
            int sum = second ? b.sum : a.sum;
            sum += __shfl_xor_sync(kAllLanes, second ? a.sum : b.sum, kHalf);
            sum = add_lanes_of<kHalf>(sum);
            const int of = second ? q + 1 : q;
            if (lane_ % kHalf == 0 && is_there(of)) place_sum(row, of, lane_ % 16 / kLanes, sum);
        }
    }
    // The sum over neighbouring lanes, a power of two of them, in each.
    template <int kLanes>
    __device__ static __forceinline__ int add_lanes_of(int sum) {
#pragma unroll
        for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
            sum += __shfl_xor_sync(kAllLanes, sum, lanes);
        }
        return sum;
    }
    // A quad without a next one.
    __device__ __forceinline__ void place_last(int row, int q, const float4& x,
                                               float factor) const {
        if constexpr (kOperand == Operand::kF16) {
            place_f16(row, q, x, factor);
        } else {
            const FixedQuad a = fixed_quad(x, factor);
            place_fixed(row, q, a);
            constexpr int kLanes = block / 4;
            const int sum = add_lanes_of<kLanes>(a.sum);
            if (lane_ % kLanes == 0 && is_there(q)) place_sum(row, q, lane_ % 16 / kLanes, sum);
        }
    }
    __device__ __forceinline__ void place_f16(int row, int q, const float4& x, float power) const {
        if (!is_there(q)) return;
        *reinterpret_cast<uint2*>(place_of<8>(row, q)) =
            make_uint2(two_f16(x.x * power, x.y * power), two_f16(x.z * power, x.w * power));
    }
    // Lanes of one chunk store the high bytes first, those of the other the low ones: the words of
    // a warp lie in different banks.
    __device__ __forceinline__ void place_fixed(int row, int q, const FixedQuad& x) const {
        if (!is_there(q)) return;
        constexpr int kHalf = kChunkBytes / 2;
        const bool low_first = lane_ / 16 == 1;
        uint8_t* at = place_of<4>(row, q);
        *reinterpret_cast<uint32_t*>(at + (low_first ? kHalf : 0)) = low_first ? x.low : x.high;
        *reinterpret_cast<uint32_t*>(at + (low_first ? 0 : kHalf)) = low_first ? x.high : x.low;
    }
    __device__ __forceinline__ void place_sum(int row, int q, int of_chunk, int sum) const {
        constexpr int kBlocks = kTileChunk / block;
        int at = 0;
        if constexpr (kInput == Input::kByWarp) {
            at = (warp_ * (2 * kQuads) + number_of(q)) * kBlocks + of_chunk;
        } else {
            const int number = chunk_of(q) * kBlocks + of_chunk;
            at =
                a_.n_rows == 1 ? number : (number / 2 * 4 + row % 4) * 4 + row / 4 * 2 + number % 2;
        }
        reinterpret_cast<int*>(room_ + Plan::x_sums(a_))[at] =
            a_.offset == 0 ? sum : -a_.offset * sum;
    }

    const MatvecArgs& a_;
    uint8_t* const room_;
    const int warp_, lane_;
    const int n_quads_;
    float4 first_norm_[kFirst];
};

// Brings what RowRounder has made of several rows to shared memory: a warp what it multiplies
// itself, the first warp all squares, which are read behind a barrier of the block.
template <int block, int kWarps>
__device__ __forceinline__ void fetch_rows(const MatvecArgs& a, uint8_t* shared, int warp,
                                           int lane) {
    auto copy = [&](int at) { copy_async<16>(shared + at, a.rounded + at); };
    constexpr int kPieces = kChunkBytes / 16;
    for (int chunk = warp; chunk < a.geometry.n_chunks; chunk += kWarps) {
        for (int p = lane; p < a.n_rows * kPieces; p += 32) {
            copy(p / kPieces * a.plan.pitch + chunk * kChunkBytes + p % kPieces * 16);
        }
        if constexpr (block > 0) {
            constexpr int kBytes = kTileChunk / block * kColumns * 4;
            if (16 * lane < kBytes) copy(a.plan.x_sums + chunk * kBytes + 16 * lane);
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
