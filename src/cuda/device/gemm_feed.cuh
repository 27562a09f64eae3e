#pragma once

#include <cstdint>

#include "cuda/device/async.cuh"
#include "cuda/device/block.cuh"
#include "cuda/matvec.h"
#include "cuda/tiles.h"

// How weights and tokens come to a block of the gemm (device/gemm_block.cuh).

namespace ridge::cuda {

// Tokens lie in parts of 16, cut along k into chunks of 64 elements as weights are (cuda/tiles.h),
// in f16, times a power of two of each token that leaves its elements below 2^15: of the sixteen
// elements that an mma multiplies, lane 4 g + t has 4 t to 4 t + 3 of token g, then of token g + 8,
// in 16 bytes. Zeros stand in for tokens and elements that are not there.
constexpr int kTokensOfPart = 16;
constexpr int kOperandBytes = code_bytes(Codes::kF16);  // of a part's chunk in f16
static_assert(kOperandBytes == kTokensOfPart * kTileChunk * 2);
constexpr int kPowerBytes = kTileRows * 4;  // of a part's powers

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
    TileGeometry geometry;        // the same for all
    bool weights_are_fresh;       // a kernel just before has made them
    const uint8_t* tokens;        // parts of f16, [n_tokens / 16, n_chunks] of kOperandBytes
    const float* token_inverses;  // [n_tokens, rounded up to 16]: of the powers
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

// A part's chunk of weights as it is fetched: codes, high bits, scales, what super-blocks share,
// and in the first of a part its powers.
struct ChunkPlan {
    int high, scales, supers, powers, n_bytes;
};
constexpr ChunkPlan chunk_plan(TileKind kind, int group_scale_bytes) {
    ChunkPlan plan{};
    plan.high = code_bytes(kind.codes);
    plan.scales = plan.high + high_bytes(kind.codes);
    plan.supers =
        plan.scales + (kind.scales == Scales::kGroup ? 2 * 2 * kTileRows * group_scale_bytes
                                                     : scale_bytes(kind.scales));
    plan.powers = plan.supers + super_bytes(kind.scales);
    plan.n_bytes = plan.powers + (kind.codes == Codes::kF16 ? 0 : kPowerBytes);
    return plan;
}

// Shared memory: rings of tokens and of weights; where weights are codes, two rooms of unpacked
// ones.
template <class Shape>
struct GemmShared {
    int weights, unpacked, n_bytes;  // tokens at 0

    static constexpr int kUnpackedBytes = Shape::kBlockWeightParts * kOperandBytes;

    __host__ __device__ GemmShared(TileKind kind, int group_scale_bytes) {
        const int n = chunk_plan(kind, group_scale_bytes).n_bytes;
        weights = Shape::kStages * Shape::kBlockTokenParts * kOperandBytes;
        unpacked = weights + Shape::kStages * Shape::kBlockWeightParts * n;
        n_bytes = unpacked + (kind.codes == Codes::kF16 ? 0 : 2 * kUnpackedBytes);
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
template <TileKind kind, class Shape>
class GemmFeed {
  public:
    __device__ GemmFeed(const GemmArgs& a, uint8_t* shared)
        : a_(a),
          plan_(chunk_plan(kind, a.geometry.group_scale_bytes)),
          token_ring_(shared),
          weight_ring_(shared + GemmShared<Shape>(kind, a.geometry.group_scale_bytes).weights),
          beside_(a.geometry, plan_) {
        weights_.tile = tokens_.tile = static_cast<int>(blockIdx.x);
        find_weights(), find_tokens();
    }

    // The next chunk of the warp's part of weights.
    __device__ void fetch_weights() {
        if (part_ != nullptr) copy_part();
        codes_from_ += kCodes;
        if (weights_.advance(a_.geometry.n_chunks)) find_weights();
    }
    // And of its parts of tokens.
    __device__ void fetch_tokens() {
        constexpr int kParts = Shape::kFetchedTokenParts;
        uint8_t* to =
            token_ring_ +
            (tokens_.slot * Shape::kBlockTokenParts + warp_of_thread() * kParts) * kOperandBytes +
            16 * lane_of_thread();
        const uint8_t* from = tokens_from_;
#pragma unroll
        for (int p = 0; p < kParts; p++, from += token_part_bytes(), to += kOperandBytes) {
            if (p >= n_token_parts_) continue;
#pragma unroll
            for (int at = 0; at < kOperandBytes; at += 512) copy_async<16>(to + at, from + at);
        }
        tokens_from_ += kOperandBytes;
        if (tokens_.advance(a_.geometry.n_chunks)) find_tokens();
    }

  private:
    static constexpr int kCodes = code_bytes(kind.codes);

    // What is fetched next, and the slot of the ring that it goes to.
    struct Cursor {
        int tile, chunk = 0, slot = 0;

        // Whether that is of another tile.
        __device__ bool advance(int n_chunks) {
            slot = slot + 1 == Shape::kStages ? 0 : slot + 1;
            if (++chunk < n_chunks) return false;
            chunk = 0, tile += static_cast<int>(gridDim.x);
            return true;
        }
    };

    __device__ int n_tiles() const {
        return a_.n_weight_tiles * a_.n_token_tiles;
    }
    __device__ int64_t token_part_bytes() const {
        return int64_t{a_.geometry.n_chunks} * kOperandBytes;
    }

    __device__ void find_weights() {
        part_ = codes_from_ = nullptr;
        if (weights_.tile >= n_tiles()) return;
        const WeightPart p = GemmTile<Shape>(a_, weights_.tile).part(a_, warp_of_thread());
        if (!p.exists) return;
        part_ = a_.weights[p.weight].data + int64_t{p.part} * a_.geometry.part_bytes;
        codes_from_ = part_ + 16 * lane_of_thread();
    }
    __device__ void find_tokens() {
        n_token_parts_ = 0;
        if (tokens_.tile >= n_tiles()) return;
        const int first = GemmTile<Shape>(a_, tokens_.tile).tokens * Shape::kBlockTokenParts +
                          warp_of_thread() * Shape::kFetchedTokenParts;
        n_token_parts_ = (a_.n_tokens + kTokensOfPart - 1) / kTokensOfPart - first;
        tokens_from_ = a_.tokens + first * token_part_bytes() + 16 * lane_of_thread();
    }

    // What a lane copies of a chunk beside codes, 16 bytes: they lie one behind the other where
    // they go to, and where they come from `step` bytes apart for every 2^shift chunks.
    struct Beside {
        int from = 0, step = 0, shift = 0;  // of a part
        bool exists = false;

        __device__ Beside(const TileGeometry& g, const ChunkPlan& plan) {
            const int at = plan.high + 16 * lane_of_thread();
            exists = at < plan.powers;
            if (at < plan.scales) {
                from = g.high + at - plan.high, step = high_bytes(kind.codes);
            } else if (kind.scales == Scales::kGroup) {
                // Of both blocks of 32 elements, which may be of one group.
                const int n = 2 * kTileRows * g.group_scale_bytes, block = (at - plan.scales) / n;
                const bool own = g.group_size == 32;
                from = g.scales + (at - plan.scales) - (own ? 0 : block * n);
                step = own ? 2 * n : n, shift = g.group_size == 128 ? 1 : 0;
            } else if (at < plan.supers) {
                from = g.scales + at - plan.scales, step = scale_bytes(kind.scales);
            } else {
                from = g.supers + at - plan.supers, step = super_bytes(kind.scales), shift = 2;
            }
        }
    };

    __device__ void copy_part() const {
        const int lane = lane_of_thread(), chunk = weights_.chunk;
        uint8_t* to =
            weight_ring_ +
            (weights_.slot * Shape::kBlockWeightParts + warp_of_thread()) * plan_.n_bytes +
            16 * lane;
#pragma unroll
        for (int at = 0; at < kCodes; at += 512) copy_async<16>(to + at, codes_from_ + at);
        if constexpr (kind.codes == Codes::kF16) return;
        if (beside_.exists) {
            copy_async<16>(to + kCodes,
                           part_ + beside_.from + (chunk >> beside_.shift) * beside_.step);
        }
        if (chunk == 0 && 16 * lane < kPowerBytes) {
            copy_async<16>(to + plan_.powers, part_ + a_.geometry.powers + 16 * lane);
        }
    }

    const GemmArgs& a_;
    const ChunkPlan plan_;
    uint8_t *const token_ring_, *const weight_ring_;
    const Beside beside_;
    Cursor weights_, tokens_;
    const uint8_t* part_;         // of weights; null: there is none
    const uint8_t* codes_from_;   // the lane's, of the next chunk
    const uint8_t* tokens_from_;  // of the next chunk of the first part of tokens
    int n_token_parts_;           // that exist, from that one on
};

}  // namespace ridge::cuda
