#pragma once

#include "cuda/device/async.cuh"
#include "cuda/device/block.cuh"
#include "cuda/device/matvec_input.cuh"
#include "cuda/device/matvec_sums.cuh"
#include "cuda/device/tile_stream.cuh"

// matvec_row: matvec (cuda/matvec.cu) of one row of codes
//
//   Units, warps and operands are matvec's, and results the same bits. But the eight columns of an
//   mma are not rows of x: column c is x of block c of an octet, of eight blocks along k that each
//   have a scale. Of what a block's weights give with the eight columns only its own is wanted, and
//   four lanes of 32 have that of each row. So a lane loads x of the one block that is its column,
//   and the scales of the two whose sums it has: an eighth and a quarter of what it would
//   otherwise.
//
//   Chunks come by asynchronous copies to a ring in shared memory that each warp has for itself,
//   and from there to registers, a stage at a time. Nobody waits for another warp.
//
//   A step's kernels take turns, and their instructions do not stay at hand: what a kernel has of
//   them for other shapes than its own makes it slower (docs/kernels/matmul.md). So it is compiled
//   for a shape.
//
// Bytes: the weights once, x once a block. Flops: 2 d_in d_out.

namespace ridge::cuda::matvec {

// Of a block's warps, a unit's sides, the chunks of a stage, and rounds of x (RowRounder). Exact: a
// warp's chunks are whole stages; else the last may lack some.
template <int Warps, int Sides, int Chunks, bool Exact, int Rounds>
struct RowShape {
    static constexpr int kWarps = Warps, kSides = Sides, kChunks = Chunks, kRounds = Rounds;
    static constexpr bool kExact = Exact;
    // Of a ring: where the last is short more must be on their way.
    static constexpr int kStages = Exact ? 2 : 3;
    static_assert(Exact || Sides == 1);
};

// Octets that a stage begins.
template <class Chunk, class S>
constexpr int octets_of = (S::kChunks + Chunk::kOctetChunks - 1) / Chunk::kOctetChunks;

// Whether a side has but one.
template <class Chunk, class S>
constexpr bool is_one_octet = S::kRounds == 1 && octets_of<Chunk, S> == 1;

// Of an octet: sums of pairs of blocks become that of all, in each of the lanes that have them.
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
    // Asks for the next stage, if there is one, and closes a group of copies. kSide: the stage's.
    template <int kSide>
    __device__ __forceinline__ void ask(SharedAddress slot) {
        if (unit_ < a_.n_units) {
            const int left = a_.geometry.n_chunks - chunk_;
            const int64_t aside = kSide == 1 ? second_ : 0;
            const uint8_t* const codes = codes_ + aside;
            slot += 16 * lane_;
            auto copy = [&](int i) {
#pragma unroll
                for (int at = 0; at < Chunk::kCodeBytes; at += 512) {
                    copy_async(slot + i * Chunk::kCodeBytes + at,
                               codes + i * S::kWarps * Chunk::kCodeBytes + at);
                }
            };
            if (S::kExact || left > (S::kChunks - 1) * S::kWarps) {
#pragma unroll
                for (int i = 0; i < S::kChunks; i++) copy(i);
            } else {
#pragma unroll
                for (int i = 0; i < S::kChunks - 1; i++) {
                    if (i == 0 || i * S::kWarps < left) copy(i);
                }
            }
#pragma unroll
            for (int i = 0; i < kPieces; i++) {
                const int chunk = sources_[i].chunk;
                if (S::kExact ? chunk < S::kChunks : chunk * S::kWarps < left) {
                    copy_async(slot + kCodeBytes + 512 * i, sides_[i] + aside);
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
        const int tile = (unit_ - weight.first_unit) * a_.unit_tiles;
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

// A lane's of an octet: x of the block that is its column, and what sums of its two blocks begin
// with, {of lower rows, of upper rows}.
template <class Chunk, class S>
struct Octet {
    static constexpr int kBlocks = Chunk::kBlocks;
    uint32_t x[2 * Chunk::kBlock / 16];
    float start[4];

    // Where they lie of a warp's first octet (Input::kByWarp), and how far on those of the next.
    __device__ static SharedAddress first_x(int warp, int lane) {
        const int g = lane / 4, t = lane % 4;
        return (warp + g / kBlocks * S::kWarps) * (2 * kTileChunk) + 32 * t +
               g % kBlocks * (32 / kBlocks);
    }
    __device__ static SharedAddress first_start(int n_chunks, int warp, int lane) {
        const int pairs_of_warp = (n_chunks + S::kWarps - 1) / S::kWarps * (kBlocks / 2);
        return (warp * pairs_of_warp + lane % 4) * 16;
    }
    static constexpr int kXStep = Chunk::kOctetChunks * S::kWarps * 2 * kTileChunk, kStartStep = 64;

    __device__ __forceinline__ void load(SharedAddress x_at, SharedAddress start_at) {
        if constexpr (Chunk::kBlock == 32) {
            uint4 words;
            load_shared(words, x_at);
            x[0] = words.x, x[1] = words.y, x[2] = words.z, x[3] = words.w;
        } else {
            uint2 words;
            load_shared(words, x_at);
            x[0] = words.x, x[1] = words.y;
        }
        uint4 words;
        load_shared(words, start_at);
        start[0] = __uint_as_float(words.x), start[1] = __uint_as_float(words.y);
        start[2] = __uint_as_float(words.z), start[3] = __uint_as_float(words.w);
    }
};

// total[0], total[1] += rows g and g + 8 of a stage times x, the second kUpper times; of a side
// that is_one_octet, the lane's two blocks of it. left: chunks from the stage's first on.
template <class Chunk, class S, bool kFull>
__device__ __forceinline__ void multiply_stage(SharedAddress slot,
                                               const Octet<Chunk, S> (&octets)[octets_of<Chunk, S>],
                                               int left, int lane, float (&total)[2]) {
    constexpr int kBlocks = Chunk::kBlocks, kMmas = Chunk::kBlock / 16,
                  kOctetChunks = Chunk::kOctetChunks;
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
        // The chunk of the lane's two blocks, which a stage may not have.
        const int own = o * kOctetChunks + 2 * t / kBlocks, own_block = 2 * t % kBlocks;
        typename Chunk::OfScales scales;
        scales.template take<S::kChunks>(scales_at, kWholeOctets ? own : min(own, S::kChunks - 1),
                                         lane / 4);
        const BlockScale a = scales.of_block(own_block, Chunk::kPerStart),
                         b = scales.of_block(own_block + 1, Chunk::kPerStart);
        const float(&start)[4] = octets[o].start;
        float pair[2] = {};  // of the two blocks
#pragma unroll
        for (int c = 0; c < kOctetChunks; c++) {
            const int i = o * kOctetChunks + c;
            if (i >= S::kChunks || (!kFull && i > 0 && i * S::kWarps >= left)) break;
#pragma unroll
            for (int block = 0; block < kBlocks; block += 2) {
                float sums[2][4];
#pragma unroll
                for (int s = 0; s < 2; s++) {
#pragma unroll
                    for (int r = 0; r < 4; r++) sums[s][r] = start[r];
                }
#pragma unroll
                for (int m = 0; m < kMmas; m++) {
                    const uint32_t of_x[2] = {octets[o].x[2 * m], octets[o].x[2 * m + 1]};
#pragma unroll
                    for (int s = 0; s < 2; s++) {
                        uint32_t operand[4];
                        codes[i].operand((block + s) * kMmas + m, operand);
                        mma_f16(sums[s], operand, of_x);
                    }
                }
                if (t == (c * kBlocks + block) / 2) {
                    pair[0] = Chunk::scaled_pair(a.lower, sums[0][0], b.lower, sums[1][1]);
                    pair[1] = Chunk::scaled_pair(a.upper, sums[0][2], b.upper, sums[1][3]);
                }
            }
        }
        if (kWholeOctets || own * S::kWarps < left) {
            pair[0] = Chunk::with_added(pair[0], a.add_lower, start[0], b.add_lower, start[1]);
            pair[1] = Chunk::with_added(pair[1], a.add_upper, start[2], b.add_upper, start[3]);
        }
        if constexpr (!is_one_octet<Chunk, S>) add_lanes(pair);
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
    const SharedAddress ring = shared_address(shared) + a.plan.ring +
                               warp * (S::kStages * Feed::kBytes),
                        ring_end = ring + S::kStages * Feed::kBytes;
    Feed feed(a, warp, lane);
    SharedAddress free_slot = ring;
#pragma unroll
    for (int i = 0; i < S::kStages - 1; i++, free_slot += Feed::kBytes) {
        feed.template ask<0>(free_slot);  // of two sides one stage, else there is but one side
    }

    const Products products(a);
    int number = static_cast<int>(threadIdx.x);  // of this thread's product
    Target<Chunk::kHasPowers> target;
    target.find(a, products, static_cast<int>(blockIdx.x), number);
    using Sums = WarpSums<Chunk, S::kWarps, S::kSides, 1>;
    auto* const sums = reinterpret_cast<float*>(shared + a.plan.sums);
    auto* of_unit = sums;
    const int n_storing = (products.n + 31) / 32;  // warps
    float before = 0;
    {
        const RowRounder<Chunk::kBlock, S::kWarps, Input::kByWarp, S::kRounds> rounder(a, shared,
                                                                                       warp, lane);
        wait_for_previous_kernel();  // x is its product
        load_before(a, target, before);
        rounder.run(0);
    }
    using OfOctet = Octet<Chunk, S>;
    const SharedAddress first_x = shared_address(shared) + OfOctet::first_x(warp, lane),
                        first_start = shared_address(shared) + a.plan.starts +
                                      OfOctet::first_start(n_chunks, warp, lane);
    SharedAddress slot = ring;
    for (int unit = static_cast<int>(blockIdx.x); unit < a.n_units;) {
        const int next_unit = unit + static_cast<int>(gridDim.x);
        float total[S::kSides][2];
        clear(total);
        SharedAddress x = first_x, start = first_start;
#pragma unroll 1
        for (int chunk = warp; chunk < n_chunks; chunk += Feed::kStep) {
            const int left = n_chunks - chunk;
            OfOctet octets[kOctets];
#pragma unroll
            for (int side = 0; side < S::kSides; side++) {
                wait_for_copies<S::kStages - 2>();
                // What other lanes brought of the stage is there, as is what the warp multiplies of
                // x; and all lanes have taken theirs of the stage before, whose place is free.
                __syncwarp();
                if (side < S::kSides - 1) {
                    feed.template ask<S::kSides - 1>(free_slot);
                } else {
                    feed.template ask<0>(free_slot);
                }
                if (side == 0) {
#pragma unroll
                    for (int o = 0; o < kOctets; o++) {
                        octets[o].load(x, start);
                        x += OfOctet::kXStep, start += OfOctet::kStartStep;
                    }
                }
                if (S::kExact || left > (S::kChunks - 1) * S::kWarps) {
                    multiply_stage<Chunk, S, true>(slot, octets, left, lane, total[side]);
                } else {
                    multiply_stage<Chunk, S, false>(slot, octets, left, lane, total[side]);
                }
                free_slot = slot;
                slot += Feed::kBytes;
                if (slot == ring_end) slot = ring;
            }
        }
        if constexpr (is_one_octet<Chunk, S>) {
#pragma unroll
            for (int side = 0; side < S::kSides; side++) add_lanes(total[side]);
        }
        if (lane % 4 == 0) {
            const float inverse =
                reinterpret_cast<const float*>(shared + a.plan.inverses)[warp * kColumns];
            Sums::put_row(of_unit + warp * Sums::kOfWarp + lane / 4, total, inverse);
        }
        // Orders the warps' sums before they are added; those of the unit after next, which use the
        // same room, come behind the next unit's barrier.
        __syncthreads();
        store_product<Sums, S::kWarps, 1>(a, shared, products, number, of_unit, target, before);
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
