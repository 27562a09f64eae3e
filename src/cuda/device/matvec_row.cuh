#pragma once

#include <type_traits>
#include <utility>

#include "cuda/device/async.cuh"
#include "cuda/device/block.cuh"
#include "cuda/device/matvec_input.cuh"
#include "cuda/device/matvec_sums.cuh"
#include "cuda/device/tile_stream.cuh"

// matvec_row: matvec (device/matvec_rows.cuh) of one row of codes
//
//   Units, warps and operands are matvec's, and results the same bits. But the eight columns of an
//   mma are not four rows of x, high and low bytes: of an octet, eight blocks along k that each
//   have a scale, lane 4 g + t is to have what blocks 2 t and 2 t + 1 give. So its two columns are
//   the bytes of the one block, in one sum of products, and of the other in a second; columns have
//   zeros where a block is not theirs, so that all that an octet needs is added by the tensor
//   units. A lane loads x of the two blocks of its column, and the scales of the two whose sums it
//   has: a quarter of what it would otherwise.
//
//   Chunks come by asynchronous copies to a ring in shared memory that each warp has for itself,
//   and from there to registers, a stage at a time. Nobody waits for another warp.
//
//   It is compiled for the shape of a row, so that all loops but those over units and stages are
//   unrolled, and x stays in registers where it is one stage of a warp.
//
// Bytes: the weights once, x once a block. Flops: 2 d_in d_out.

namespace ridge::cuda::matvec {

// f(i) of 0 to n - 1, each a constant.
template <int n, class F>
__device__ __forceinline__ void for_constants(F f) {
    auto all = [&]<int... i>(std::integer_sequence<int, i...>) {
        (f(std::integral_constant<int, i>()), ...);
    };
    all(std::make_integer_sequence<int, n>());
}

// Chunks of 8 and 16 bits, of which fewer are on their way at a time.
template <class Chunk>
constexpr bool is_large = Chunk::kBytes > 1000;

// Of a block's warps, a unit's sides, the chunks of a stage, and quads of x (RowRounder). Exact: a
// warp's chunks are whole stages; else the last may lack some.
template <int Warps, int Sides, int Chunks, bool Exact, int Quads>
struct RowShape {
    static constexpr int kWarps = Warps, kSides = Sides, kChunks = Chunks, kQuads = Quads;
    static constexpr bool kExact = Exact;
    static constexpr bool kIsOneStage = Quads == (Chunks + 1) / 2;
    static_assert(Exact || Sides == 1);
    static_assert(kIsOneStage || Chunks % 4 == 0);  // a stage's octets are those of the row
};

// Stages of a ring. Where the last of a row is short more must be on their way, if there is room
// for them, as where blocks have many in a row.
template <class Chunk, class S>
constexpr int stages_of = S::kExact ? (S::kSides == 2 && !is_large<Chunk> ? 3 : 2)
                                    : (Chunk::kBytes < 700 ? 3 : 2);

// When a ring's stages are asked for; docs/kernels/matmul.md has what was measured. The second
// cache holds up what it has behind what it has not: x, and what the kernel before stores last,
// wait for weights that are on their way. So only some stages come before x, each when the one
// before it has come.
template <class Chunk, class S>
struct RingOrder {
    static constexpr int kStages = stages_of<Chunk, S>;
    static constexpr bool kIsShort = S::kExact && S::kSides == 1;
    // Whether a stage is asked for before one is multiplied, to the place of that before it; else
    // behind, to its own place, so that all places fill as soon as x has come.
    static constexpr bool kAsksFirst =
        kStages == 3 || (kIsShort && !is_large<Chunk> && !(S::kWarps == 16 && S::kIsOneStage));
    static constexpr int kBeforeX = kIsShort ? 1 : 2;
    // Stages that have been asked for where one is waited for.
    static constexpr int kAhead = kAsksFirst ? kStages - 1 : kStages;
    static_assert(kBeforeX <= kAhead && (!kAsksFirst || kBeforeX == kAhead));
};

// Octets that a stage begins.
template <class Chunk, class S>
constexpr int octets_of = (S::kChunks + Chunk::kOctetChunks - 1) / Chunk::kOctetChunks;

// A block's shared memory, in bytes from its beginning: x [kWarps][2 kQuads][kChunkBytes] at 0; its
// sums over the blocks that share a scale, int [kWarps][2 kQuads][blocks of a chunk]; and as in
// SharedPlan, sums of warps of one column, and behind them warps' rings.
template <class Chunk, class S>
struct RowPlan {
    static constexpr int kChunks = S::kWarps * 2 * S::kQuads, kXSums = kChunks * kChunkBytes,
                         kInverses = kXSums + kChunks * Chunk::kBlocks * 4,
                         kSquares = kInverses + S::kWarps * kColumns * 4,
                         kSums = kSquares + S::kWarps * 4,
                         kRings = kSums + 2 * S::kSides * S::kWarps * kTileRows * 4,
                         kRing = stages_of<Chunk, S> * S::kChunks * Chunk::kBytes,
                         kBytes = kRings + S::kWarps * kRing;

    __device__ static constexpr int x_sums(const MatvecArgs&) { return kXSums; }
    __device__ static constexpr int inverses(const MatvecArgs&) { return kInverses; }
    __device__ static constexpr int squares(const MatvecArgs&) { return kSquares; }
};

// Of octets: sums of pairs of blocks become that of all, in each of the lanes that have them.
__device__ __forceinline__ void add_lanes(float (&pair)[2]) {
#pragma unroll
    for (int lanes = 1; lanes <= 2; lanes *= 2) {
#pragma unroll
        for (int i = 0; i < 2; i++) pair[i] += __shfl_xor_sync(kAllLanes, pair[i], lanes);
    }
}

// Brings a warp its chunks, a stage at a time: of a unit a stage of each side, then the next along
// k, and on to the next unit.
template <class Chunk, class S>
class RingFeed {
  public:
    static constexpr int kStep = S::kWarps * S::kChunks;  // chunks along k
    // Of a stage: codes of its chunks, then their sides.
    static constexpr int kCodeBytes = S::kChunks * Chunk::kCodeBytes,
                         kBytes = S::kChunks * Chunk::kBytes;

    __device__ RingFeed(const MatvecArgs& a, int warp, int lane)
        : a_(a),
          warp_(warp),
          lane_(lane),
          chunk_(warp),
          unit_(warp < a.geometry.n_chunks ? static_cast<int>(blockIdx.x) : a.n_units) {
#pragma unroll
        for (int i = 0; i < kPieces; i++) {
            sources_[i] =
                Chunk::template side_source<S::kWarps, S::kChunks>(a.geometry, warp, lane + 32 * i);
        }
        open_unit();
    }
    // Whether there is a stage to ask for.
    __device__ bool has_next() const {
        return unit_ < a_.n_units;
    }
    // Asks for the next stage, if there is one, and closes a group of copies. kSide: the stage's.
    template <int kSide>
    __device__ __forceinline__ void ask(SharedAddress slot) {
        if (has_next()) {
            const int left = a_.geometry.n_chunks - chunk_;
            const int64_t aside = kSide == 1 ? second_ : 0;
            const uint8_t* const codes = codes_ + aside;
            slot += 16 * lane_;
#pragma unroll
            for (int i = 0; i < S::kChunks; i++) {
                if (!S::kExact && i > 0 && i * S::kWarps >= left) break;
#pragma unroll
                for (int at = 0; at < Chunk::kCodeBytes; at += 512) {
                    copy_once(slot + i * Chunk::kCodeBytes + at,
                              codes + i * S::kWarps * Chunk::kCodeBytes + at);
                }
            }
#pragma unroll
            for (int i = 0; i < kPieces; i++) {
                const int chunk = sources_[i].chunk;
                if (S::kExact ? chunk < S::kChunks : chunk * S::kWarps < left) {
                    copy_once(slot + kCodeBytes + 512 * i, sides_[i] + aside);
                }
            }
            if (kSide == S::kSides - 1) next_stage();
        }
        commit_copies();
    }

  private:
    // Sixteen bytes of sides that a lane brings of a stage.
    static constexpr int kPieces = (S::kChunks * Chunk::kSideBytes + 511) / 512;

    __device__ __forceinline__ void next_stage() {
        chunk_ += kStep;
        if (chunk_ < a_.geometry.n_chunks) {
            codes_ += kStep * Chunk::kCodeBytes;
#pragma unroll
            for (int i = 0; i < kPieces; i++) sides_[i] += sources_[i].step;
        } else {
            chunk_ = warp_, unit_ += static_cast<int>(gridDim.x);
            open_unit();
        }
    }
    __device__ __forceinline__ void open_unit() {
        if (unit_ >= a_.n_units) return;
        const TileWeight& weight = weight_of(a_, unit_);
        const int tile = tile_of(a_, unit_);
        const uint8_t* part = weight.data + static_cast<int64_t>(tile) * a_.geometry.part_bytes;
        codes_ = part + warp_ * Chunk::kCodeBytes + 16 * lane_;
#pragma unroll
        for (int i = 0; i < kPieces; i++) sides_[i] = part + sources_[i].first;
        if constexpr (S::kSides == 2) second_ = second_side(a_, weight, tile);
    }

    const MatvecArgs& a_;
    const int warp_, lane_;
    SideSource sources_[kPieces];
    int chunk_, unit_;
    const uint8_t *codes_ = nullptr, *sides_[kPieces];
    int64_t second_ = 0;
};

// A lane's of an octet: x of the pair of blocks that are its column's, zeros of the other pairs;
// and the sums of x over the pair whose products it has. Chunks that a stage lacks are left alone.
template <class Chunk, class S>
struct Octet {
    static constexpr int kBlocks = Chunk::kBlocks, kWords = 2 * Chunk::kWords;
    uint32_t x[4][kWords];
    int of_x[2];
    int first[2][4];  // what sums of products begin with

    __device__ Octet() { clear(x); }
    // Of pair j.
    __host__ __device__ static constexpr int chunk_of(int j) { return 2 * j / kBlocks; }

    // x, x_sums: of the warp, from the octet's first chunk on. n_chunks: that a stage has from it
    // on.
    __device__ __forceinline__ void load(SharedAddress x_at, SharedAddress x_sums, int n_chunks,
                                         int lane) {
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            // Bytes high or low, of t; of the pair's words.
            const SharedAddress at = x_at + chunk_of(j) * kChunkBytes + g % 2 * (kChunkBytes / 2) +
                                     t * 16 + 2 * j % kBlocks * (4 * Chunk::kWords);
            load_where(x[j], at, g / 2 == j && chunk_of(j) < n_chunks);
        }
        uint32_t sums[2] = {};
        load_where(sums, x_sums + 8 * t, chunk_of(t) < n_chunks);
        of_x[0] = static_cast<int>(sums[0]), of_x[1] = static_cast<int>(sums[1]);
        Chunk::begin_sums(of_x, first);
    }
    static constexpr int kXStep = Chunk::kOctetChunks * kChunkBytes, kSumStep = 32;
};

// total[0], total[1] += rows g and g + 8 of a stage times x, the second kUpper times, of the lane's
// pairs of blocks. left: chunks from the stage's first on.
template <class Chunk, class S, bool kFull>
__device__ __forceinline__ void multiply_stage(SharedAddress slot,
                                               const Octet<Chunk, S> (&octets)[octets_of<Chunk, S>],
                                               int left, int lane, float (&total)[2]) {
    using OfOctet = Octet<Chunk, S>;
    constexpr int kBlocks = Chunk::kBlocks, kOctetChunks = Chunk::kOctetChunks;
    constexpr bool kWholeOctets = kFull && S::kChunks % kOctetChunks == 0;
    const int t = lane % 4;
    const SharedAddress high = slot + S::kChunks * Chunk::kCodeBytes,
                        scales_at = high + S::kChunks * Chunk::kHighBytes;
    typename Chunk::OfCodes codes[S::kChunks];
#pragma unroll
    for (int i = 0; i < S::kChunks; i++) {
        take_codes(codes[i], slot + i * Chunk::kCodeBytes, high + i * Chunk::kHighBytes, lane);
    }
#pragma unroll
    for (int o = 0; o < octets_of<Chunk, S>; o++) {
        // The chunk of the lane's pair, which a stage may not have.
        const int own = o * kOctetChunks + OfOctet::chunk_of(t);
        typename Chunk::OfScales scales;
        scales.template take<S::kChunks>(scales_at, kWholeOctets ? own : min(own, S::kChunks - 1),
                                         lane / 4);
        int sums[2][4];
#pragma unroll
        for (int s = 0; s < 2; s++) {
#pragma unroll
            for (int r = 0; r < 4; r++) sums[s][r] = octets[o].first[s][r];
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int i = o * kOctetChunks + OfOctet::chunk_of(j), block = 2 * j % kBlocks;
            if (i >= S::kChunks || (!kFull && i > 0 && i * S::kWarps >= left)) break;
            uint32_t x[2][Chunk::kWords];
#pragma unroll
            for (int w = 0; w < Chunk::kWords; w++) {
                x[0][w] = octets[o].x[j][w], x[1][w] = octets[o].x[j][Chunk::kWords + w];
            }
            Chunk::multiply_block(codes[i], block, x[0], sums[0]);
            Chunk::multiply_block(codes[i], block + 1, x[1], sums[1]);
        }
        float pair[2];
        Chunk::add_pair(scales, 2 * t % kBlocks, sums[0], sums[1], octets[o].of_x, pair);
        // Scales of a chunk that is not there may be anything.
        if (!kWholeOctets && (own >= S::kChunks || own * S::kWarps >= left)) clear(pair);
        total[0] += pair[0], total[1] += pair[1];
    }
}

template <class Chunk, class S>
__global__ void __launch_bounds__(32 * S::kWarps, 16 / S::kWarps)
    matvec_row_kernel(const __grid_constant__ MatvecArgs a) {
    using Feed = RingFeed<Chunk, S>;
    constexpr int kOctets = octets_of<Chunk, S>;
    extern __shared__ __align__(16) uint8_t shared[];
    const int warp = warp_of_thread(), lane = lane_of_thread();
    const int n_chunks = a.geometry.n_chunks;

    let_next_kernel_start();
    // Weights are nobody's product: they come while the kernel before runs.
    using Plan = RowPlan<Chunk, S>;
    using Order = RingOrder<Chunk, S>;
    const SharedAddress ring = shared_address(shared) + Plan::kRings + warp * Plan::kRing,
                        ring_end = ring + Plan::kRing;
    Feed feed(a, warp, lane);
    for_constants<Order::kBeforeX>([&](auto stage) {
        if (stage > 0 && feed.has_next()) wait_for_copies<0>();
        feed.template ask<stage % S::kSides>(ring + stage * Feed::kBytes);
    });

    const Products products(a);
    int number = static_cast<int>(threadIdx.x);  // of this thread's product
    Target<Chunk::kHasPowers> target;
    target.find(a, products, static_cast<int>(blockIdx.x), number);
    using Sums = WarpSums<Chunk, S::kWarps, S::kSides, 1>;
    auto* const sums = reinterpret_cast<float*>(shared + Plan::kSums);
    auto* of_unit = sums;
    const int n_storing = (products.n + 31) / 32;  // warps
    float before = 0;
    {
        const RowRounder<Operand::kFixed, Chunk::kBlock, S::kWarps, Input::kByWarp, S::kQuads, Plan>
            rounder(a, shared, warp, lane);
        wait_for_previous_kernel();  // x is its product
        load_before(a, target, before);
        rounder.run(0, [&] {
            for_constants<Order::kAhead - Order::kBeforeX>([&](auto i) {
                constexpr int stage = Order::kBeforeX + i;
                feed.template ask<stage % S::kSides>(ring + stage * Feed::kBytes);
            });
        });
    }
    __syncwarp();  // what the warp multiplies of x is there
    const int before_warp = warp * (2 * S::kQuads);
    const SharedAddress first_x = shared_address(shared) + before_warp * kChunkBytes,
                        first_sums = shared_address(shared) + Plan::kXSums +
                                     before_warp * (Chunk::kBlocks * 4);
    using OfOctet = Octet<Chunk, S>;
    OfOctet octets[kOctets];
    // Of a stage's first chunk and those behind it, of which the row has `left`.
    auto load_octets = [&](SharedAddress x, SharedAddress x_sums, int left) {
        const int n = S::kExact ? S::kChunks : (left + S::kWarps - 1) / S::kWarps;
#pragma unroll
        for (int o = 0; o < kOctets; o++) {
            octets[o].load(x + o * OfOctet::kXStep, x_sums + o * OfOctet::kSumStep,
                           n - o * Chunk::kOctetChunks, lane);
        }
    };
    if constexpr (S::kIsOneStage) load_octets(first_x, first_sums, n_chunks - warp);
    SharedAddress slot = ring, free_slot = ring_end - Feed::kBytes;
    for (int unit = static_cast<int>(blockIdx.x); unit < a.n_units;) {
        const int next_unit = unit + static_cast<int>(gridDim.x);
        float total[S::kSides][2];
        clear(total);
        SharedAddress x = first_x, x_sums = first_sums;
#pragma unroll 1
        for (int chunk = warp; chunk < n_chunks; chunk += Feed::kStep) {
            const int left = n_chunks - chunk;
            for_constants<S::kSides>([&](auto side) {
                wait_for_copies<Order::kAhead - 1>();
                // What other lanes brought of the stage is there; and all lanes have taken theirs
                // of the stage before, whose place is free.
                __syncwarp();
                if constexpr (Order::kAsksFirst) {
                    feed.template ask<(side + Order::kAhead) % S::kSides>(free_slot);
                }
                if (!S::kIsOneStage && side == 0) {
                    load_octets(x, x_sums, left);
                    x += S::kChunks * kChunkBytes, x_sums += S::kChunks * (Chunk::kBlocks * 4);
                }
                if (S::kExact || left > (S::kChunks - 1) * S::kWarps) {
                    multiply_stage<Chunk, S, true>(slot, octets, left, lane, total[side]);
                } else {
                    multiply_stage<Chunk, S, false>(slot, octets, left, lane, total[side]);
                }
                if constexpr (Order::kAsksFirst) {
                    free_slot = slot;
                } else {
                    __syncwarp();  // all lanes have taken theirs
                    feed.template ask<(side + Order::kAhead) % S::kSides>(slot);
                }
                slot += Feed::kBytes;
                if (slot == ring_end) slot = ring;
            });
        }
#pragma unroll
        for (int side = 0; side < S::kSides; side++) add_lanes(total[side]);
        if (lane % 4 == 0) {
            const float inverse =
                reinterpret_cast<const float*>(shared + Plan::kInverses)[warp * kColumns];
            Sums::put_column(of_unit + warp * Sums::kOfWarp + lane / 4, total, 0, inverse);
        }
        // Orders the warps' sums before they are added; those of the unit after next, which use the
        // same room, come behind the next unit's barrier.
        __syncthreads();
        store_product<Sums, S::kWarps, 1, Plan>(a, shared, products, number, of_unit, target,
                                                before);
        unit = next_unit;
        if (unit >= a.n_units) return;
        // Other warps store the next unit, which goes to the other room.
        number -= 32 * n_storing;
        if (number < 0) number += 32 * S::kWarps;
        target.find(a, products, unit, number);
        load_before(a, target, before);
        of_unit = of_unit == sums ? sums + Sums::kOfUnit : sums;
    }
}

}  // namespace ridge::cuda::matvec
