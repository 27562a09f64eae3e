#pragma once

#include "cuda/device/async.cuh"
#include "cuda/device/block.cuh"
#include "cuda/device/matvec_input.cuh"
#include "cuda/device/matvec_sums.cuh"
#include "cuda/device/tile_stream.cuh"

// matvec_row: matvec (cuda/matvec.cu) of one row and weights of few bytes a chunk
//
//   Units, warps, operands and the order of sums are matvec's: results are the same bits. Chunks
//   come by asynchronous copies to a ring in shared memory that each warp has for itself, and from
//   there to registers one stage at a time. Of small chunks more are on their way so than registers
//   have room for.
//
// Bytes: the weights once, x once a block. Flops: 2 d_in d_out.

namespace ridge::cuda::matvec {

// Chunks of a warp's stage: one for each side, or two along k of a single side.
constexpr int kStageChunks = 2;

// Brings a warp its chunks, a stage at a time, on from one unit to the next. The last stage of a
// unit may lack its second chunk.
template <class Chunk, int kWarps, int kSides>
class RingFeed {
  public:
    static constexpr int kStep = kWarps * kStageChunks / kSides;  // chunks along k
    static constexpr int kBytes = kStageChunks * Chunk::kBytes;

    __device__ RingFeed(const MatvecArgs& a, int warp, int lane)
        : a_(a),
          warp_(warp),
          lane_(lane),
          source_(Chunk::template side_source<kWarps>(a.geometry, warp, lane)),
          chunk_(warp),
          unit_(warp < a.geometry.n_chunks ? static_cast<int>(blockIdx.x) : a.n_units) {
        open_unit();
    }
    // Asks for the next stage, if there is one, and closes a group of copies.
    __device__ __forceinline__ void ask(SharedAddress slot) {
        if (unit_ < a_.n_units) {
            const bool has_side = 16 * lane_ < Chunk::kSideBytes;
            slot += 16 * lane_;
            Chunk::copy(slot, codes_, side_, has_side);
            if constexpr (kSides == 2) {
                Chunk::copy(slot + Chunk::kBytes, codes_ + second_, side_ + second_, has_side);
            } else if (chunk_ + kWarps < a_.geometry.n_chunks) {
                Chunk::copy(slot + Chunk::kBytes, codes_ + kWarps * Chunk::kCodeBytes,
                            side_ + source_.step, has_side);
            }
            chunk_ += kStep;
            codes_ += kStep * Chunk::kCodeBytes;
            side_ += kStep / kWarps * source_.step;
            if (chunk_ >= a_.geometry.n_chunks) {
                chunk_ = warp_, unit_ += static_cast<int>(gridDim.x);
                open_unit();
            }
        }
        commit_copies();
    }

  private:
    __device__ __forceinline__ void open_unit() {
        if (unit_ >= a_.n_units) return;
        const TileWeight& weight = weight_of(a_, unit_);
        const int tile = (unit_ - weight.first_unit) * a_.unit_tiles;
        const uint8_t* part = weight.data + static_cast<int64_t>(tile) * a_.geometry.part_bytes;
        codes_ = part + warp_ * Chunk::kCodeBytes + 16 * lane_;
        side_ = part + source_.first;
        if constexpr (kSides == 2) second_ = second_side(a_, weight, tile);
    }

    const MatvecArgs& a_;
    const int warp_, lane_;
    const SideSource source_;
    int chunk_, unit_;
    const uint8_t *codes_ = nullptr, *side_ = nullptr;
    int64_t second_ = 0;
};

template <class Chunk, int kWarps, int kSides, int kStages>
__global__ void __launch_bounds__(32 * kWarps, 16 / kWarps)
    matvec_row_kernel(const __grid_constant__ MatvecArgs a) {
    using Feed = RingFeed<Chunk, kWarps, kSides>;
    constexpr int kChunkBytes = row_chunk_bytes(Chunk::kBlock);
    extern __shared__ __align__(16) uint8_t shared[];
    const int warp = warp_of_thread(), lane = lane_of_thread();
    const int n_chunks = a.geometry.n_chunks;

    let_next_kernel_start();
    // Weights are nobody's product: they come while the kernel before runs.
    const SharedAddress ring =
                            shared_address(shared) + a.plan.ring + warp * (kStages * Feed::kBytes),
                        ring_end = ring + kStages * Feed::kBytes;
    Feed feed(a, warp, lane);
    SharedAddress free_slot = ring;
#pragma unroll 1
    for (; free_slot < ring_end - Feed::kBytes; free_slot += Feed::kBytes) feed.ask(free_slot);

    const Products products(a);
    int number = static_cast<int>(threadIdx.x);  // of this thread's product
    Target<Chunk::kHasPowers> target;
    target.find(a, products, static_cast<int>(blockIdx.x), number);
    using Sums = WarpSums<Chunk, kWarps, kSides, 1>;
    auto* const sums = reinterpret_cast<float*>(shared + a.plan.sums);
    auto* of_unit = sums;
    const int n_storing = (products.n + 31) / 32;  // warps
    float before = 0;
    {
        const RowRounder<Chunk::kBlock, kWarps, Input::kByChunk> rounder(a, shared, warp, lane);
        wait_for_previous_kernel();  // x is its product
        load_before(a, target, before);
        rounder.run(0);
    }
    const SharedAddress first_of_x = shared_address(shared) + warp * kChunkBytes;
    SharedAddress slot = ring;
    for (int unit = static_cast<int>(blockIdx.x); unit < a.n_units;) {
        const int next_unit = unit + static_cast<int>(gridDim.x);
        float total[kSides][4];
        clear(total);
        SharedAddress x = first_of_x;
#pragma unroll 1
        for (int chunk = warp; chunk < n_chunks; chunk += Feed::kStep) {
            wait_for_copies<kStages - 2>();
            // What other lanes brought of the stage is there, as is what the warp multiplies of x;
            // and all lanes have taken theirs of the stage before, whose place is free.
            __syncwarp();
            feed.ask(free_slot);
            free_slot = slot;
            Chunk weights[kStageChunks];
#pragma unroll
            for (int i = 0; i < kStageChunks; i++) {
                weights[i].take(slot + i * Chunk::kBytes, lane);
            }
            slot += Feed::kBytes;
            if (slot == ring_end) slot = ring;
            weights[0].multiply_row(x, lane, total[0]);
            if constexpr (kSides == 2) {
                weights[1].multiply_row(x, lane, total[1]);
            } else if (chunk + kWarps < n_chunks) {
                weights[1].multiply_row(x + kWarps * kChunkBytes, lane, total[0]);
            }
            x += Feed::kStep * kChunkBytes;
        }
        if (lane % 4 == 0) {
            const float inverse =
                reinterpret_cast<const float*>(shared + a.plan.inverses)[warp * kColumns];
            Sums::put_row(of_unit + warp * Sums::kOfWarp + lane / 4, total, inverse);
        }
        // Orders the warps' sums before they are added; those of the unit after next, which use the
        // same room, come behind the next unit's barrier.
        __syncthreads();
        store_product<Sums, kWarps, 1>(a, shared, products, number, of_unit, target, before);
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
