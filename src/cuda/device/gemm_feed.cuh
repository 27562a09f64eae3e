#pragma once

#include <cstdint>

#include "cuda/device/async.cuh"
#include "cuda/device/block.cuh"
#include "cuda/matvec.h"
#include "cuda/tiles.h"

// How weights and tokens come to a block of the gemm (device/gemm_block.cuh).

namespace ridge::cuda {

// Tokens lie in parts of 16, cut along k into chunks of 64 elements as weights are (cuda/tiles.h),
// in bf16: of the sixteen elements that an mma multiplies, lane 4 g + t has 4 t to 4 t + 3 of token
// g, then of token g + 8, in 16 bytes. Zeros stand in for tokens and elements that are not there.
constexpr int kTokensOfPart = 16;
constexpr int kOperandBytes = 2048;  // of a part's chunk in bf16, of tokens and of weights

// One weight of a call, and where its products go.
struct GemmWeight {
    const uint8_t* data;
    const float* bias;  // or null
    int n_rows;
    int first_tile;  // of the call's tiles of weights
    int64_t column;  // of out, for row 0
};

struct GemmArgs {
    GemmWeight weights[3];
    int n_weights, n_weight_tiles;
    TileGeometry geometry;  // the same for all
    const uint8_t* tokens;  // parts of bf16, [n_tokens / 16, n_chunks] of kOperandBytes
    int n_tokens, n_token_tiles;
    Epilogue epilogue;
    float* out;  // [n_tokens, ..]
    int64_t out_stride;
};

// What a block computes at a time, by warps that take a rectangle each.
template <int token_warps, int weight_warps, int token_parts, int weight_parts, int stages,
          int blocks_an_sm>
struct GemmShape {
    static constexpr int kTokenWarps = token_warps;
    static constexpr int kWarps = token_warps * weight_warps, kThreads = 32 * kWarps;
    static constexpr int kTokenParts = token_parts, kWeightParts = weight_parts;  // of a warp
    static constexpr int kBlockTokenParts = token_warps * token_parts,
                         kBlockWeightParts = weight_warps * weight_parts;
    static constexpr int kStages = stages, kBlocksAnSm = blocks_an_sm;
    // Each warp fetches, and where they are codes unpacks, one part of weights; and so many of
    // tokens.
    static_assert(kBlockWeightParts == kWarps && kBlockTokenParts % kWarps == 0);
    static constexpr int kFetchedTokenParts = kBlockTokenParts / kWarps;
    static_assert(weight_parts % 2 == 0);  // half of gate, half of up
};

// A part's chunk of weights as it is fetched: codes, high bits, scales, what super-blocks share.
struct ChunkPlan {
    int scales, supers, n_bytes;
};
__host__ __device__ inline ChunkPlan chunk_plan(const TileGeometry& g) {
    ChunkPlan plan;
    plan.scales = code_bytes(g.kind.codes) + high_bytes(g.kind.codes);
    const int n = g.kind.scales == Scales::kGroup ? 2 * 2 * kTileRows * g.group_scale_bytes
                                                  : scale_bytes(g.kind.scales);
    plan.supers = plan.scales + n;
    plan.n_bytes = plan.supers + super_bytes(g.kind.scales);
    return plan;
}

// Shared memory: rings of tokens and of weights; where weights are codes, two rooms of unpacked
// ones and the scales of the chunk that is being unpacked.
template <class Shape>
struct GemmShared {
    int weights, unpacked, scales, n_bytes;  // tokens at 0

    static constexpr int kUnpackedBytes = Shape::kBlockWeightParts * kOperandBytes;
    static constexpr int kScaleBytes = 4 * kTileRows * 8;  // of a part: scale, add of each mma, row

    __host__ __device__ explicit GemmShared(const TileGeometry& g) {
        weights = Shape::kStages * Shape::kBlockTokenParts * kOperandBytes;
        unpacked = weights + Shape::kStages * Shape::kBlockWeightParts * chunk_plan(g).n_bytes;
        scales = n_bytes = unpacked;
        if (g.kind.codes == Codes::kBF16) return;
        scales += 2 * kUnpackedBytes;
        n_bytes = scales + Shape::kBlockWeightParts * kScaleBytes;
    }
};

// Rows of a weight that a slot of a block's tile has: slot s is part s % kWeightParts of the warps
// that multiply it.
struct WeightPart {
    int weight, part;
    bool exists;
};

// A tile of the call: neighbours share weights, and groups of them tokens, so that what blocks read
// at the same time is in the second cache.
template <class Shape>
struct GemmTile {
    static constexpr int kTokenTilesOfGroup = 8;
    int weights, tokens;

    __device__ GemmTile(const GemmArgs& a, int index) {
        const int of_group = kTokenTilesOfGroup * a.n_weight_tiles, group = index / of_group;
        const int first = group * kTokenTilesOfGroup, in_group = index - group * of_group;
        const int width = min(kTokenTilesOfGroup, a.n_token_tiles - first);
        tokens = first + in_group % width;
        weights = in_group / width;
    }

    // Of SwiGLU the first half of a warp's parts is of gate, the other the same rows of up.
    __device__ WeightPart part(const GemmArgs& a, int slot) const {
        constexpr int kParts = Shape::kWeightParts, kHalf = kParts / 2;
        WeightPart p{};
        if (a.epilogue == Epilogue::kSwiglu) {
            p.weight = slot % kParts / kHalf;
            p.part =
                weights * (Shape::kBlockWeightParts / 2) + slot / kParts * kHalf + slot % kHalf;
        } else {
            while (p.weight + 1 < a.n_weights && weights >= a.weights[p.weight + 1].first_tile) {
                p.weight++;
            }
            p.part = (weights - a.weights[p.weight].first_tile) * Shape::kBlockWeightParts + slot;
        }
        p.exists = p.part * kTileRows < a.weights[p.weight].n_rows;
        return p;
    }
};

// Brings chunks of a block's tiles, one behind the other and on from tile to tile, to rings of
// shared memory. Parts that do not exist are left out: what is there instead ends in products that
// nobody stores.
template <Codes codes, class Shape>
class GemmFeed {
  public:
    __device__ GemmFeed(const GemmArgs& a, uint8_t* shared)
        : a_(a),
          plan_(chunk_plan(a.geometry)),
          token_ring_(shared),
          weight_ring_(shared + GemmShared<Shape>(a.geometry).weights) {
        weights_.tile = tokens_.tile = static_cast<int>(blockIdx.x);
        find_weights(), find_tokens();
    }

    // The next chunk of the warp's part of weights.
    __device__ void fetch_weights() {
        if (weights_.tile < n_tiles()) {
            if (part_ != nullptr) {
                copy_part(weight_ring_ +
                          (weights_.slot * Shape::kBlockWeightParts + warp_of_thread()) *
                              plan_.n_bytes);
            }
            if (weights_.advance(a_.geometry.n_chunks)) find_weights();
        }
        weights_.turn();
    }
    // And of its parts of tokens.
    __device__ void fetch_tokens() {
        if (tokens_.tile < n_tiles()) {
            const int lane = lane_of_thread();
            const int first = warp_of_thread() * Shape::kFetchedTokenParts;
            uint8_t* to = token_ring_ +
                          (tokens_.slot * Shape::kBlockTokenParts + first) * kOperandBytes +
                          16 * lane;
            const uint8_t* from = token_part_ + int64_t{tokens_.chunk} * kOperandBytes + 16 * lane;
#pragma unroll
            for (int p = 0; p < Shape::kFetchedTokenParts; p++) {
                if (p < n_token_parts_) {
#pragma unroll
                    for (int at = 0; at < kOperandBytes; at += 512) {
                        copy_async<16>(to + p * kOperandBytes + at,
                                       from + p * token_part_bytes() + at);
                    }
                }
            }
            if (tokens_.advance(a_.geometry.n_chunks)) find_tokens();
        }
        tokens_.turn();
    }

  private:
    // What is fetched next, and the slot of the ring that it goes to.
    struct Cursor {
        int tile, chunk = 0, slot = 0;

        // Whether that is of another tile.
        __device__ bool advance(int n_chunks) {
            if (++chunk < n_chunks) return false;
            chunk = 0, tile += static_cast<int>(gridDim.x);
            return true;
        }
        __device__ void turn() { slot = slot + 1 == Shape::kStages ? 0 : slot + 1; }
    };

    __device__ int n_tiles() const {
        return a_.n_weight_tiles * a_.n_token_tiles;
    }
    __device__ int64_t token_part_bytes() const {
        return int64_t{a_.geometry.n_chunks} * kOperandBytes;
    }

    __device__ void find_weights() {
        part_ = nullptr;
        if (weights_.tile >= n_tiles()) return;
        const WeightPart p = GemmTile<Shape>(a_, weights_.tile).part(a_, warp_of_thread());
        if (!p.exists) return;
        part_ = a_.weights[p.weight].data + int64_t{p.part} * a_.geometry.part_bytes;
    }
    __device__ void find_tokens() {
        if (tokens_.tile >= n_tiles()) return;
        const int first = GemmTile<Shape>(a_, tokens_.tile).tokens * Shape::kBlockTokenParts +
                          warp_of_thread() * Shape::kFetchedTokenParts;
        n_token_parts_ = (a_.n_tokens + kTokensOfPart - 1) / kTokensOfPart - first;
        token_part_ = a_.tokens + first * token_part_bytes();
    }

    __device__ void copy_part(uint8_t* to) const {
        const TileGeometry& g = a_.geometry;
        const int lane = lane_of_thread(), chunk = weights_.chunk;
        constexpr int kCodes = code_bytes(codes), kHigh = high_bytes(codes);
        const uint8_t* from = part_ + chunk * kCodes + 16 * lane;
#pragma unroll
        for (int at = 0; at < kCodes; at += 512) copy_async<16>(to + at + 16 * lane, from + at);
        if constexpr (codes == Codes::kBF16 || codes == Codes::kF16) return;
        if (16 * lane < kHigh) {
            copy_async<16>(to + kCodes + 16 * lane, part_ + g.high + chunk * kHigh + 16 * lane);
        }
        if (g.kind.scales == Scales::kGroup) {
            // Of both blocks of 32 elements, which may be of one group.
            const int n = 2 * kTileRows * g.group_scale_bytes, at = 16 * (lane % 8);
            const int block = lane / 8, group = (chunk * kTileChunk + 32 * block) / g.group_size;
            if (block < 2 && at < n) {
                copy_async<16>(to + plan_.scales + block * n + at,
                               part_ + g.scales + group * n + at);
            }
            return;
        }
        const int n = scale_bytes(g.kind.scales), n_super = super_bytes(g.kind.scales);
        if (16 * lane < n) {
            copy_async<16>(to + plan_.scales + 16 * lane, part_ + g.scales + chunk * n + 16 * lane);
        }
        const int at = 16 * (lane - 16);
        if (at >= 0 && at < n_super) {
            copy_async<16>(to + plan_.supers + at, part_ + g.supers + chunk / 4 * n_super + at);
        }
    }

    const GemmArgs& a_;
    const ChunkPlan plan_;
    uint8_t *const token_ring_, *const weight_ring_;
    Cursor weights_, tokens_;
    const uint8_t* part_ = nullptr;        // of weights; null: there is none
    const uint8_t* token_part_ = nullptr;  // the first of the warp's
    int n_token_parts_ = 0;                // from that one on
};

}  // namespace ridge::cuda
