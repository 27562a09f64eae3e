#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/device/async.cuh"
#include "cuda/device/block.cuh"
#include "cuda/device/gemm_codes.cuh"
#include "cuda/device/gemm_feed.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numbers.cuh"

namespace ridge::cuda {

// Sums of a warp's rectangle: of each part of weights, with every eight tokens, as mma has them.
template <class Shape>
struct GemmSums {
    static constexpr int kEights = 2 * Shape::kTokenParts;
    float of[Shape::kWeightParts][kEights][4];

    __device__ void clear() { cuda::clear(of); }
};

// What becomes of the sums of a tile. A lane has rows g and g + 8 of each part, of tokens 2 t and
// 2 t + 1 of every eight: eight lanes store 32 neighbouring bytes of a token.
template <class Shape>
class GemmStore {
  public:
    __device__ GemmStore(const GemmArgs& a, const GemmTile<Shape>& tile)
        : a_(a),
          tile_(tile),
          first_slot_(warp_of_thread() / Shape::kTokenWarps * Shape::kWeightParts),
          first_token_((tile.tokens * Shape::kBlockTokenParts +
                        warp_of_thread() % Shape::kTokenWarps * Shape::kTokenParts) *
                           kTokensOfPart +
                       lane_of_thread() % 4 * 2) {
#pragma unroll
        for (int j = 0; j < kEights; j++) {
            inverse_[j] = {};
            if (first_token_ + 8 * j < a.n_tokens) {
                inverse_[j] =
                    *reinterpret_cast<const float2*>(a.token_inverses + first_token_ + 8 * j);
            }
        }
    }

    __device__ void store(const GemmSums<Shape>& sums) const {
        switch (a_.epilogue) {
            case Epilogue::kStore:
                return store_rows<false>(sums);
            case Epilogue::kAdd:
                return store_rows<true>(sums);
            case Epilogue::kSwiglu:
                return store_swiglu(sums);
        }
    }

  private:
    static constexpr int kEights = GemmSums<Shape>::kEights;

    // Of a warp's slots that are of one weight, which are neighbours: what the lane stores.
    template <int n_parts>
    struct Place {
        int n_rows, n_tokens;                       // from the lane's first on, that exist
        float power[n_parts][2], bias[n_parts][2];  // of rows g and g + 8
        float* out;                                 // of the first row and token
        int64_t stride;                             // from one token to the next

        __device__ Place(const GemmArgs& a, const WeightPart& first, int first_token)
            : n_tokens(a.n_tokens - first_token), stride(a.out_stride) {
            const GemmWeight& weight = a.weights[first.weight];
            const int row = first.part * kTileRows + lane_of_thread() / 4;
            n_rows = weight.n_rows - row;
            out = a.out + first_token * stride + weight.column + row;
            const TileGeometry& g = a.geometry;
            const uint8_t* powers = weight.data + int64_t{first.part} * g.part_bytes + g.powers;
#pragma unroll
            for (int w = 0; w < n_parts; w++) {
                float2 of_rows{};
                if (kTileRows * w < n_rows) {
                    of_rows = reinterpret_cast<const float2*>(
                        powers + int64_t{w} * g.part_bytes)[lane_of_thread() / 4];
                }
                power[w][0] = of_rows.x, power[w][1] = of_rows.y;
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const bool exists = kTileRows * w + 8 * h < n_rows && weight.bias != nullptr;
                    bias[w][h] = exists ? weight.bias[row + kTileRows * w + 8 * h] : 0;
                }
            }
        }

        // Of sum e of part w, with one token's inverse: powers of two leave what they multiply as
        // it is, so that the sum with the bias is the one rounding.
        __device__ float product(float sum, float inverse, int w, int e) const {
            return fmaf(sum * inverse, power[w][e / 2], bias[w][e / 2]);
        }

        // What exists of sums e of part w with n eights of tokens, from token `first` on.
        template <int n, class Use>
        __device__ void for_each(int first, Use use) const {
            float* at = out + first * stride;
#pragma unroll
            for (int j = 0; j < n; j++, at += 8 * stride) {
#pragma unroll
                for (int w = 0; w < n_parts; w++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const int row = kTileRows * w + e / 2 * 8;
                        if (row >= n_rows || first + 8 * j + e % 2 >= n_tokens) continue;
                        use(at[e % 2 * stride + row], j, w, e);
                    }
                }
            }
        }
    };

    template <bool kAdds>
    __device__ void store_rows(const GemmSums<Shape>& sums) const {
        constexpr int kParts = Shape::kWeightParts;
        const Place<kParts> place(a_, tile_.part(a_, first_slot_), first_token_);
        // So many loads in flight as there is room for.
        constexpr int kAtOnce = kAdds ? kLoads / (4 * kParts) : kEights;
#pragma unroll
        for (int first = 0; first < kEights; first += kAtOnce) {
            float before[kAtOnce][kParts][4];
            clear(before);
            if constexpr (kAdds) {
                place.template for_each<kAtOnce>(
                    8 * first, [&](float& to, int j, int w, int e) { before[j][w][e] = to; });
            }
            place.template for_each<kAtOnce>(8 * first, [&](float& to, int j, int w, int e) {
                const float p =
                    place.product(sums.of[w][first + j][e], inverse(first + j, e), w, e);
                to = kAdds ? before[j][w][e] + p : p;
            });
        }
    }

    __device__ void store_swiglu(const GemmSums<Shape>& sums) const {
        constexpr int kHalf = Shape::kWeightParts / 2;
        const Place<kHalf> place(a_, tile_.part(a_, first_slot_), first_token_);
        const Place<kHalf> up(a_, tile_.part(a_, first_slot_ + kHalf), first_token_);
        place.template for_each<kEights>(0, [&](float& to, int j, int w, int e) {
            const float g = place.product(sums.of[w][j][e], inverse(j, e), w, e);
            const float u = up.product(sums.of[kHalf + w][j][e], inverse(j, e), w, e);
            to = __fdividef(g, 1 + __expf(-g)) * u;
        });
    }

    // Of the token of sum e, one of eight j.
    __device__ float inverse(int j, int e) const {
        return e % 2 == 0 ? inverse_[j].x : inverse_[j].y;
    }

    static constexpr int kLoads = 32;  // of a lane, at once

    const GemmArgs& a_;
    const GemmTile<Shape>& tile_;
    const int first_slot_, first_token_;
    float2 inverse_[kEights];
};

// gemm: p[i, j] = sum_k x[i, k] w[j, k] + bias[j], for any number of rows i; what becomes of p:
//   Epilogue
//
//   x as f16 parts of tokens (device/gemm_feed.cuh), rounded to 2^-11; w in tiles: those of f16 are
//   operands as they lie, codes become f16 (device/gemm_codes.cuh); sums f32, of one accumulator
//   for each element, along k in order, times the powers of two of row and token; out f32.
//
// A block takes tiles of the product in turns, and in each of them a step for each chunk of 64
// elements along k. Chunks are fetched kStages - 1 steps ahead, on from one tile to the next. Codes
// are unpacked once for the block, by each warp one part, to operands of f16: those of the next
// step between the products of this one, so that tensor units and the others work at the same time;
// codes are fetched one step sooner for that. Operands lie as lanes hold them, 16 bytes of each for
// an mma, and are read once for kWeightParts by kTokenParts parts.
//
// Bytes: weights once for every eight tiles of tokens, tokens once for each tile of weights (from
// the second cache). Flops: 2 n_rows d_in d_out.
template <TileKind kind, class Shape>
class GemmBlock {
  public:
    __device__ GemmBlock(const GemmArgs& a, uint8_t* shared)
        : a_(a),
          shared_(shared),
          plan_(chunk_plan(kind, a.geometry.group_scale_bytes)),
          room_(kind, a.geometry.group_scale_bytes),
          feed_(a, shared) {}

    __device__ void run() {
        // Weights are nobody's product unless they are fresh; tokens are.
        if (!a_.weights_are_fresh) feed_.fetch_weights();
        wait_for_previous_kernel();
        let_next_kernel_start();
        if (a_.weights_are_fresh) feed_.fetch_weights();
        if constexpr (kUnpacks) commit_copies();
        for (int i = 0; i + 1 < kStages; i++) {
            if (kUnpacks || i > 0) feed_.fetch_weights();
            feed_.fetch_tokens();
            commit_copies();
        }
        if constexpr (kUnpacks) {
            wait_for_copies<kStages - 1>();
            __syncwarp();  // a warp unpacks what its own lanes fetched
            load_next(true);
#pragma unroll
            for (int mma = 0; mma < 4; mma++) unpack(mma, 0);
        }
        const int n_tiles = a_.n_weight_tiles * a_.n_token_tiles;
        for (int tile = static_cast<int>(blockIdx.x); tile < n_tiles;
             tile += static_cast<int>(gridDim.x)) {
            GemmSums<Shape> sums;
            sums.clear();
            multiply_tile(sums);
            GemmStore<Shape>(a_, GemmTile<Shape>(a_, tile)).store(sums);
        }
    }

  private:
    static constexpr bool kUnpacks = kind.codes != Codes::kF16;
    static constexpr int kStages = Shape::kStages;

    struct Operands {
        uint4 weights[Shape::kWeightParts], tokens[Shape::kTokenParts];
    };

    // To the next step: all that it needs is there, and what the one before it used is free.
    __device__ void wait_for_next() {
        wait_for_copies<kStages - 2>();
        // What the others fetched and unpacked is there, too, and they have read the operands of
        // the step before.
        __syncthreads();
        slot_ = next_slot_, next_slot_ = next_slot_ + 1 == kStages ? 0 : next_slot_ + 1;
        parity_ ^= 1;
    }
    // Once in each step, after its wait.
    __device__ void fetch() {
        feed_.fetch_weights();
        feed_.fetch_tokens();
        commit_copies();
    }

    __device__ void multiply_tile(GemmSums<Shape>& sums) {
        Operands operands[2];
        const int n_steps = a_.geometry.n_chunks;
        wait_for_next();
        load(0, operands[0]);
        if constexpr (kUnpacks) load_next(n_steps == 1);
        fetch();
        for (int left = n_steps; left > 0; left--) {
            load(1, operands[1]);
            multiply(operands[0], sums, [&] { unpack(0, parity_ ^ 1); });
            load(2, operands[0]);
            multiply(operands[1], sums, [&] { unpack(1, parity_ ^ 1); });
            load(3, operands[1]);
            multiply(operands[0], sums, [&] { unpack(2, parity_ ^ 1), unpack(3, parity_ ^ 1); });
            if (left == 1) {
                multiply(operands[1], sums, [] {});
                break;
            }
            wait_for_next();
            load(0, operands[0]);
            if constexpr (kUnpacks) load_next(left == 2);
            // Products are there to be computed while the next copies are asked for.
            multiply(operands[1], sums, [&] { fetch(); });
        }
    }

    // Of the sixteen elements that mma `mma` of a step's chunk multiplies.
    __device__ void load(int mma, Operands& to) const {
        const int at = 512 * mma + 16 * lane_of_thread(), warp = warp_of_thread();
        const uint8_t* weights =
            kUnpacks ? shared_ + room_.unpacked + parity_ * GemmShared<Shape>::kUnpackedBytes
                     : shared_ + room_.weights + slot_ * Shape::kBlockWeightParts * kOperandBytes;
        weights += warp / Shape::kTokenWarps * Shape::kWeightParts * kOperandBytes + at;
        const uint8_t* tokens =
            shared_ +
            (slot_ * Shape::kBlockTokenParts + warp % Shape::kTokenWarps * Shape::kTokenParts) *
                kOperandBytes +
            at;
#pragma unroll
        for (int p = 0; p < Shape::kTokenParts; p++) {
            to.tokens[p] = *reinterpret_cast<const uint4*>(tokens + p * kOperandBytes);
        }
#pragma unroll
        for (int p = 0; p < Shape::kWeightParts; p++) {
            to.weights[p] = *reinterpret_cast<const uint4*>(weights + p * kOperandBytes);
        }
    }

    // `beside` is work for the other units, which lies behind the first products.
    template <class Beside>
    __device__ static void multiply(const Operands& from, GemmSums<Shape>& sums, Beside beside) {
#pragma unroll
        for (int w = 0; w < Shape::kWeightParts; w++) {
            const uint4& words = from.weights[w];
            const uint32_t a[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
            for (int p = 0; p < Shape::kTokenParts; p++) {
                const uint4& tokens = from.tokens[p];
                const uint32_t first[2] = {tokens.x, tokens.y}, second[2] = {tokens.z, tokens.w};
                mma_f16(sums.of[w][2 * p], a, first);
                mma_f16(sums.of[w][2 * p + 1], a, second);
            }
            if (w == 0) beside();
        }
    }

    // What the warp unpacks for the next step, which may be a tile's first.
    __device__ void load_next(bool is_first) {
        const uint8_t* at =
            shared_ + room_.weights +
            (next_slot_ * Shape::kBlockWeightParts + warp_of_thread()) * plan_.n_bytes;
        if (is_first) {
            const float2 powers =
                reinterpret_cast<const float2*>(at + plan_.powers)[lane_of_thread() / 4];
            inverse_[0] = inverse_of_power(powers.x), inverse_[1] = inverse_of_power(powers.y);
        }
        const ChunkAt chunk{at, at + plan_.high, at + plan_.scales, at + plan_.supers,
                            2 * kTileRows * a_.geometry.group_scale_bytes};
        unpacker_.load(a_.geometry, chunk, inverse_);
    }
    __device__ void unpack(int mma, int room) const {
        if constexpr (kUnpacks) {
            uint8_t* to = shared_ + room_.unpacked + room * GemmShared<Shape>::kUnpackedBytes +
                          warp_of_thread() * kOperandBytes + 512 * mma;
            reinterpret_cast<uint4*>(to)[lane_of_thread()] = unpacker_.operand(mma);
        }
    }

    const GemmArgs& a_;
    uint8_t* const shared_;
    const ChunkPlan plan_;
    const GemmShared<Shape> room_;
    GemmFeed<kind, Shape> feed_;
    int slot_ = 0, next_slot_ = 0;  // of the rings: of this step, and of the next
    int parity_ = 1;                // the room of unpacked weights of this step
    struct Nothing {};
    // Of the warp's part in the next step; of the part's powers, of rows g and g + 8.
    std::conditional_t<kUnpacks, Unpacker<kind>, Nothing> unpacker_;
    float inverse_[2];
};

template <Codes codes, Scales scales, int offset, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksAnSm)
    gemm_kernel(const __grid_constant__ GemmArgs a) {
    extern __shared__ __align__(128) uint8_t shared[];
    GemmBlock<TileKind{codes, scales, offset}, Shape>(a, shared).run();
}

}  // namespace ridge::cuda
