#pragma once

#include <algorithm>
#include <climits>

#include "base/checked_math.h"
#include "cuda/device/async.cuh"
#include "cuda/device/matvec_input.cuh"
#include "cuda/device/matvec_sums.cuh"
#include "cuda/device/tile_stream.cuh"

// matvec: p[i, j] = sum_k n(x)[i, k] w[j, k] + bias[j], for up to eight rows i
//   n(x) = x, or x / sqrt(mean(x^2) + eps) * norm; what becomes of p: Epilogue
//
//   x [n_rows, d_in] f32; n(x) without its divisor is rounded, times a factor of what a warp
//   multiplies of a row: beside w of f16 to f16, sums f32; beside codes to fixed point of 16 bits,
//   sums of a block of codes int, of blocks f32. w in tiles of 16 rows; out f32.
//
// Tensor units multiply 16 rows of w with 8 columns, which are rows of x, in fixed point four rows'
// high and low bytes, once or twice: in place of those that are not there is the last, so that one
// row and eight take the same order of sums.
// Blocks take units in turns: a tile, or two side by side, of gate and of up, or neighbours where
// there are many. In a block each warp takes every kWarps-th chunk of 64 elements along k. It loads
// them to registers, kDepth ahead of those that it multiplies, on from one unit to the next: the
// first before the kernel before has ended. A warp adds octets (device/tile_stream.cuh); the warps'
// sums are added in their order at a unit's end, by warps in turns. A single row of codes goes to
// device/matvec_row.cuh where it has a shape that there is a kernel for.
//
// Bytes: the weights once, x once a block. Flops: 2 n_rows d_in d_out.

namespace ridge::cuda::matvec {

inline int behind(int at, int n_bytes) {
    return (at + n_bytes + 15) / 16 * 16;
}

// scale_block: elements that share a scale, 0 where none do.
inline SharedPlan shared_plan(int n_chunks, int n_rows, int n_sides, int n_warps, int scale_block,
                              bool normed) {
    SharedPlan plan{};
    // Rows of x start 32 bytes apart modulo the banks.
    plan.pitch = (n_chunks * kChunkBytes + 255) / 256 * 256 + 32;
    const int blocks_of_chunk = scale_block == 0 ? 0 : kTileChunk / scale_block;
    plan.x_sums = behind(0, n_rows * plan.pitch);
    plan.inverses =
        behind(plan.x_sums, n_chunks * blocks_of_chunk * (n_rows == 1 ? 1 : kColumns) * 4);
    plan.squares = behind(plan.inverses, n_warps * kColumns * 4);
    plan.sums = behind(plan.squares, normed ? n_rows * n_warps * 4 : 0);
    plan.n_bytes = behind(plan.sums, 2 * n_sides * n_warps * kTileRows * kColumns * 4);
    return plan;
}

// Units of all weights, and of each.
inline void number_units(MatvecArgs& a, bool pairs) {
    a.unit_tiles = pairs ? 2 : 1;
    a.n_units = 0;
    for (int i = 0; i < 3; i++) {
        a.first_units[i] = i < a.n_weights ? a.n_units : INT_MAX;
        if (a.epilogue == Epilogue::kSwiglu && i > 0) a.first_units[i] = INT_MAX;
        if (a.first_units[i] == INT_MAX) continue;
        a.n_units += ceil_div(a.weights[i].n_tiles, a.unit_tiles);
    }
}

// As many chunks of a side on their way as registers have room for.
template <class Chunk, int kSides>
constexpr int depth_of = Chunk::kRegisters* kSides <= (kSides == 1 ? 16 : 11) ? 4 : 2;

// The chunks that a warp multiplies, in the order in which it loads them: groups of kDepth, of one
// unit each, of which the last may be short. A group's chunk i is at base + i * kWarps.
template <class Chunk, int kWarps, int kSides, int kDepth>
class Feed {
    static_assert(kWarps % kSourceStep == 0);

  public:
    __device__ Feed(const MatvecArgs& a, int warp, int lane)
        : a_(a), n_chunks_(a.geometry.n_chunks), first_(warp), base_(warp), unit_(blockIdx.x) {
        open_unit();
        from_ = Chunk::open(part_, a_.geometry, base_, lane);
    }
    // Chunk i of the group that is loaded, of all sides, if there is one.
    __device__ void load(Chunk (&to)[kSides], int i) const {
        const bool has = base_ + i * kWarps < n_chunks_;
        to[0].load(from_, i * (kWarps / kSourceStep), has);
        if constexpr (kSides == 2) to[1].load(from_.at(second_), i * (kWarps / kSourceStep), has);
    }
    __device__ void next_group() {
        base_ += kDepth * kWarps;
        if (base_ < n_chunks_) return Chunk::advance(from_, kDepth * kWarps, 0);
        const int back = first_ - (base_ - kDepth * kWarps);
        const uint8_t* before = part_;
        base_ = first_, unit_ += static_cast<int>(gridDim.x);
        open_unit();
        Chunk::advance(from_, back, part_ - before);
    }

  private:
    // Beyond the last unit there is nothing to load, as in a warp without chunks.
    __device__ void open_unit() {
        if (unit_ >= a_.n_units) {
            base_ = n_chunks_;
            return;
        }
        const TileWeight& weight = weight_of(a_, unit_);
        const int tile = tile_of(a_, unit_);
        part_ = weight.data + static_cast<int64_t>(tile) * a_.geometry.part_bytes;
        if constexpr (kSides == 2) second_ = second_side(a_, weight, tile);
    }

    const MatvecArgs& a_;
    const int n_chunks_, first_;
    int base_, unit_;
    const uint8_t* part_ = nullptr;
    int64_t second_ = 0;
    ChunkSource from_{};
};

// Sums of the four pairs of blocks of octets (StreamedChunk::kOctetChunks), of chunks that come in
// groups of kDepth.
template <class Chunk, int kSides, int kDepth>
class OctetSums {
    static constexpr int kChunks = Chunk::kOctetChunks;
    static_assert(kDepth % kChunks == 0 || kChunks == 2 * kDepth);

  public:
    __device__ OctetSums() { clear(sums_); }
    // f(sums of the chunk's pairs), of chunk i of a group.
    template <class F>
    __device__ __forceinline__ void add(int side, int i, F f) {
        constexpr int kPairs = 4 / kChunks;
        if (kChunks == 2 * kDepth && is_second_) {
            f(&sums_[side][(i + kDepth) % kChunks * kPairs]);
        } else {
            f(&sums_[side][i % kChunks * kPairs]);
        }
    }
    __device__ __forceinline__ void next_group() {
        if constexpr (kChunks == 2 * kDepth) is_second_ = !is_second_;
    }
    __device__ __forceinline__ void finish(float (&total)[kSides][4]) const {
#pragma unroll
        for (int side = 0; side < kSides; side++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                total[side][c] = (sums_[side][0][c] + sums_[side][1][c]) +
                                 (sums_[side][2][c] + sums_[side][3][c]);
            }
        }
    }

  private:
    float sums_[kSides][4][4];
    bool is_second_ = false;
};

// What x is rounded to beside weights whose scales have blocks, or that have none.
constexpr Operand operand_with(int scale_block) {
    return scale_block == 0 ? Operand::kF16 : Operand::kFixed;
}

constexpr int kRoundThreads = 128;

// round_rows: what warps multiply of several rows, once for all blocks of a matvec
//   a warp for each row and each of the kWarps warps that will multiply it
template <int block, int kWarps>
__global__ void __launch_bounds__(kRoundThreads)
    round_rows_kernel(const __grid_constant__ MatvecArgs a) {
    let_next_kernel_start();
    const int index = static_cast<int>((blockIdx.x * kRoundThreads + threadIdx.x) / 32);
    const RowRounder<operand_with(block), block, kWarps, Input::kRows, 0, PlanOfArgs> rounder(
        a, a.rounded, index % kWarps, static_cast<int>(threadIdx.x) % 32);
    wait_for_previous_kernel();  // x is its product, and the one before read what is written
    rounder.run(index / kWarps);
}

template <class Chunk, int kWarps, int kSides, int kDepth, int kBlocksAnSm, bool kSingle,
          int kQuads>
__global__ void __launch_bounds__(32 * kWarps, kBlocksAnSm)
    matvec_kernel(const __grid_constant__ MatvecArgs a) {
    constexpr bool kIsF16 = Chunk::kBlock == 0;
    extern __shared__ __align__(16) uint8_t shared[];
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int g = lane / 4, t = lane % 4, n_chunks = a.geometry.n_chunks;

    let_next_kernel_start();
    // Weights are nobody's product: they come while the kernel before runs.
    Feed<Chunk, kWarps, kSides, kDepth> feed(a, warp, lane);
    Chunk ring[kDepth][kSides];
#pragma unroll
    for (int i = 0; i < kDepth; i++) feed.load(ring[i], i);
    feed.next_group();

    const Products products(a);
    int number = static_cast<int>(threadIdx.x);  // of this thread's product
    Target<Chunk::kHasPowers> target;
    target.find(a, products, static_cast<int>(blockIdx.x), number);
    // Of every chunk, the lane's sixteen elements of its column: of f16, column g is row g of x, of
    // fixed point columns 2 i and 2 i + 1 are row i, then row 4 + i. Of a column without a row,
    // whose sums nobody reads, those of the last.
    auto x_of = [&](int row, int at) {
        const int there = kSingle ? 0 : std::min(row, a.n_rows - 1) * a.plan.pitch;
        return reinterpret_cast<const uint4*>(shared + there + at);
    };
    const int in_chunk = g % 2 * (kChunkBytes / 2) + 16 * t;
    const uint4* const x_lane[2] = {kIsF16 ? x_of(g, 32 * t) : x_of(g / 2, in_chunk),
                                    kIsF16 ? x_of(g, 32 * t + 16) : x_of(4 + g / 2, in_chunk)};
    constexpr int kSumsOfChunk = Chunk::kBlocks * (kSingle ? 1 : kColumns);
    const auto* x_sums =
        reinterpret_cast<const int*>(shared + a.plan.x_sums) + (kSingle ? 0 : 4 * t);
    const int n_groups = kSingle || a.n_rows <= 4 ? 1 : 2;
    using Sums = WarpSums<Chunk, kWarps, kSides>;
    auto* const sums = reinterpret_cast<float*>(shared + a.plan.sums);
    auto* of_unit = sums;
    const int n_storing = (products.n + 31) / 32;  // warps
    float before = 0;
    auto begin = [&] {
        wait_for_previous_kernel();  // x is its product
        load_before(a, target, before);
    };
    if constexpr (kSingle) {
        const RowRounder<operand_with(Chunk::kBlock), Chunk::kBlock, kWarps, Input::kRows, kQuads,
                         PlanOfArgs>
            rounder(a, shared, warp, lane);
        begin();
        rounder.run(0);
    } else {
        begin();
        fetch_rows<Chunk::kBlock, kWarps>(a, shared, warp, lane);
    }
    __syncwarp();  // what the warp multiplies of x is there
    const auto* inverses =
        reinterpret_cast<const float*>(shared + a.plan.inverses) + warp * kColumns;
    for (int unit = static_cast<int>(blockIdx.x); unit < a.n_units;) {
        const int next_unit = unit + static_cast<int>(gridDim.x);
        float total[kSides][4];
        clear(total);
        OctetSums<Chunk, kSides, kDepth> octets;
        auto multiply = [&](int i, int chunk, bool is_there) {
            const uint4 x[2] = {x_lane[0][8 * chunk], x_lane[1][8 * chunk]};
#pragma unroll
            for (int side = 0; side < kSides; side++) {
                if constexpr (kIsF16) {
                    if (is_there) ring[i][side].multiply_f16(x, total[side]);
                } else if (is_there) {
                    octets.add(side, i, [&](float(*sums)[4]) {
                        ring[i][side].template multiply_rows<kSingle>(
                            x, x_sums + chunk * kSumsOfChunk, n_groups, sums);
                    });
                }
            }
        };
        for (int base = warp; base < n_chunks;) {
            if (base + (kDepth - 1) * kWarps < n_chunks) {
#pragma unroll
                for (int i = 0; i < kDepth; i++) {
                    multiply(i, base + i * kWarps, true);
                    feed.load(ring[i], i);
                }
            } else {
#pragma unroll
                for (int i = 0; i < kDepth; i++) {
                    multiply(i, base + i * kWarps, base + i * kWarps < n_chunks);
                    feed.load(ring[i], i);
                }
            }
            if constexpr (!kIsF16) octets.next_group();
            base += kDepth * kWarps;
            if (base < n_chunks || next_unit < a.n_units) feed.next_group();
        }
        if constexpr (!kIsF16) octets.finish(total);
        float* const mine = of_unit + warp * Sums::kOfWarp + g * kColumns;
        if constexpr (kIsF16) {
            if (kSingle ? t == 0 : 2 * t < a.n_rows) {
                Sums::put(mine + 2 * t, total, make_float2(inverses[2 * t], inverses[2 * t + 1]));
            }
        } else {
            if (t < a.n_rows) Sums::put_column(mine + t, total, 0, inverses[t]);
            if (4 + t < a.n_rows) Sums::put_column(mine + 4 + t, total, 1, inverses[4 + t]);
        }
        // Orders the warps' sums before they are added; those of the unit after next, which use the
        // same room, come behind the next unit's barrier.
        __syncthreads();
        store_product<Sums, kWarps, kColumns, PlanOfArgs>(a, shared, products, number, of_unit,
                                                          target, before);
        unit = next_unit;
        if (unit >= a.n_units) return;
        // Other warps store the next unit, which goes to the other room.
        number -= 32 * n_storing;
        if (number < 0) number += 32 * kWarps;
        target.find(a, products, unit, number);
        load_before(a, target, before);
        of_unit = of_unit == sums ? sums + Sums::kOfUnit : sums;
    }
}

}  // namespace ridge::cuda::matvec
