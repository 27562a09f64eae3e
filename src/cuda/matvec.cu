#include <algorithm>

#include "cuda/check.h"
#include "cuda/context.h"
#include "cuda/device/async.cuh"
#include "cuda/device/tile_codes.cuh"
#include "cuda/matvec.h"
#include "cuda/tiles.h"

// matvec: p[i, j] = sum_k n(x)[i, k] w[j, k] + bias[j], for up to eight rows i
//   n(x) = x, or x / sqrt(mean(x^2) + eps) * norm; what becomes of p: Epilogue
//
//   x [n_rows, d_in] f32, n(x) without its divisor rounded to bf16; w in tiles of 16 rows; sums
//   f32; out f32.
//
// Tensor units multiply 16 rows of w by 16 elements with 8 columns, which are rows of x: those that
// are not there are zero, so that one row and eight take the same time and the same order of sums.
// Blocks take tiles in turns. In a block each warp takes every kWarps-th chunk of 64 elements along
// k, or pair of them; they are on their way to shared memory, a ring of kStages for each warp,
// while others are multiplied, on from one tile to the next. The warps' sums are added in their
// order at a tile's end.
//
// Bytes: the weights once, x once a block. Flops: 2 n_rows d_in d_out.

namespace ridge::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kColumns = 8;
constexpr int kBlocksAnSm = 4;
constexpr int kStages = 3;  // of a warp's ring: two on their way while one is multiplied

// Chunks that one copy of a warp brings: small ones in pairs.
constexpr int chunks_of_stage(int chunk_bytes) {
    return chunk_bytes <= 900 ? 2 : 1;
}
constexpr int ring_bytes(int chunk_bytes) {  // of a block
    return kWarps * kStages * chunks_of_stage(chunk_bytes) * chunk_bytes;
}
// Elements along k that share a scale, and bytes of a chunk with all that belongs to it.
int scale_block(const TileGeometry& g) {
    if (g.kind.scales == Scales::kNone) return 0;
    return g.kind.scales == Scales::kSuper16 || g.kind.scales == Scales::kSuper16Min ? 16 : 32;
}
int chunk_bytes(const TileGeometry& g) {
    const int scales = g.kind.scales == Scales::kGroup
                           ? kTileChunk * g.group_scale_bytes
                           : scale_bytes(g.kind.scales) + super_bytes(g.kind.scales);
    return code_bytes(g.kind.codes) + high_bytes(g.kind.codes) + scales;
}

// How scales travel: copied to a chunk's stage by the lanes of each g.
template <Scales scales>
struct Scaling {
    using Of = ChunkScales<scales>;
    static constexpr int kBytes = scale_bytes(scales), kSuperBytes = super_bytes(scales);
    static constexpr int kBlock = Of::kBlock;  // elements along k that share a scale

    __device__ static void copy(uint8_t* stage, const uint8_t* part, const TileGeometry& g,
                                int chunk, int lane) {
        constexpr int kEach = kBytes / 8, kSuperEach = kSuperBytes / 8;
        if (lane % 4 == 0) {
            const int at = lane / 4 * kEach;
            copy_async<kEach>(stage + at, part + g.scales + chunk * kBytes + at);
        }
        if constexpr (kSuperBytes > 0) {
            if (lane % 4 == 1) {
                const int at = lane / 4 * kSuperEach;
                copy_async<kSuperEach>(stage + kBytes + at,
                                       part + g.supers + chunk / 4 * kSuperBytes + at);
            }
        }
    }
};

template <class T>
struct GroupScaling {
    using Of = GroupScales<T>;
    static constexpr int kBytes = 2 * 8 * 4 * static_cast<int>(sizeof(T)), kSuperBytes = 0;
    static constexpr int kBlock = Of::kBlock;

    __device__ static void copy(uint8_t* stage, const uint8_t* part, const TileGeometry& g,
                                int chunk, int lane) {
        constexpr int kEach = 4 * static_cast<int>(sizeof(T));
        const int block = lane % 4, place = lane / 4;
        if (block >= 2) return;
        const int group = (chunk * kTileChunk + 32 * block) / g.group_size;
        copy_async<kEach>(stage + (8 * block + place) * kEach,
                          part + g.scales + (8 * group + place) * kEach);
    }
};

struct NoScaling {
    static constexpr int kBytes = 0, kSuperBytes = 0, kBlock = 0;
    __device__ static void copy(uint8_t*, const uint8_t*, const TileGeometry&, int, int) {}
};

// One weight of a call, and where its products go.
struct TileWeight {
    const uint8_t* data;
    int64_t part_bytes;
    const float* bias;  // or null
    int first_tile;     // of the call's
    int n_rows;
    int64_t column;  // of out, for row 0
};

struct MatvecArgs {
    TileWeight weights[3];
    int n_weights, n_tiles;
    TileGeometry geometry;  // the same for all
    const float* x;         // [n_rows, d_in]
    int64_t x_stride, d_in;
    int n_rows;         // 1 to 8
    const float* norm;  // [d_in]: x is normed with it; or null
    float eps;
    Epilogue epilogue;
    float* out;
    int64_t out_stride;
};

// Tiles of one unit, that one block finishes together: of gate and of up.
__host__ __device__ inline int n_sides_of(Epilogue epilogue) {
    return epilogue == Epilogue::kSwiglu ? 2 : 1;
}

// What one copy of a warp brings: kChunks neighbours along k, each with its scales.
template <Codes codes, class Scaling>
struct Stage {
    static constexpr int kCodes = code_bytes(codes), kHigh = high_bytes(codes);
    static constexpr int kScales = kCodes + kHigh;  // where they lie in a chunk
    static constexpr int kChunkBytes = kScales + Scaling::kBytes + Scaling::kSuperBytes;
    static constexpr int kChunks = chunks_of_stage(kChunkBytes);
    static constexpr int kBytes = kChunks * kChunkBytes;

    // To shared memory, by all lanes.
    __device__ static void copy_chunk(uint8_t* to, const uint8_t* part, const TileGeometry& g,
                                      int chunk, int lane) {
        const uint8_t* from = part + chunk * kCodes + 16 * lane;
#pragma unroll
        for (int at = 0; at < kCodes; at += 512) copy_async<16>(to + at + 16 * lane, from + at);
        if constexpr (kHigh > 0) {
            constexpr int kEach = kHigh / 32;
            copy_async<kEach>(to + kCodes + kEach * lane,
                              part + g.high + chunk * kHigh + kEach * lane);
        }
        Scaling::copy(to + kScales, part, g, chunk, lane);
    }
};

// Elements of x lie in shared memory so that a lane's of the four mma of a chunk are side by side:
// quad q, elements 4 q to 4 q + 3, is number
__device__ inline int quad_place(int q) {
    return q / 16 * 16 + q % 4 * 4 + q / 4 % 4;
}

// Bytes from one row of x to the next in shared memory: rows start 32 bytes apart modulo the banks.
__host__ __device__ inline int64_t x_pitch_bytes(int64_t n_chunks) {
    return (n_chunks * 128 + 255) / 256 * 256 + 32;
}

// Shared memory: x, sums of its blocks, squares of its rows [kWarps, kColumns], partial sums
// [2, n_sides, kWarps, kTileRows, n_kept], ring.
struct SharedPlan {
    int64_t sums, squares, partials, ring, n_bytes;  // x at 0
    int n_kept;                                      // columns of partial sums: n_rows, made even
};
__host__ __device__ inline SharedPlan shared_plan(int64_t n_chunks, int n_rows, int n_sides,
                                                  int block, int ring_bytes) {
    SharedPlan plan;
    plan.n_kept = (n_rows + 1) / 2 * 2;
    plan.sums = (n_rows * x_pitch_bytes(n_chunks) + 15) / 16 * 16;
    plan.squares = plan.sums + (block > 0 ? n_chunks * kTileChunk / block * kColumns * 4 : 0);
    plan.partials = plan.squares + kWarps * kColumns * 4;
    plan.ring = plan.partials + int64_t{2} * n_sides * kWarps * kTileRows * plan.n_kept * 4;
    plan.n_bytes = plan.ring + ring_bytes;
    return plan;
}

SharedPlan shared_plan_of(const TileGeometry& g, int n_rows, Epilogue epilogue) {
    return shared_plan(g.n_chunks, n_rows, n_sides_of(epilogue), scale_block(g),
                       ring_bytes(chunk_bytes(g)));
}

__device__ inline float4 load_quad(const float* row, int q, int d_in, bool aligned) {
    const int k = 4 * q;
    if (aligned && k + 4 <= d_in) return *reinterpret_cast<const float4*>(row + k);
    float4 quad = make_float4(0, 0, 0, 0);
    if (k < d_in) quad.x = row[k];
    if (k + 1 < d_in) quad.y = row[k + 1];
    if (k + 2 < d_in) quad.z = row[k + 2];
    if (k + 3 < d_in) quad.w = row[k + 3];
    return quad;
}

// The rows of x as bf16, zeros behind the last column, and the sums of every `block` elements,
// which neighbouring lanes have. `sums` [blocks, kColumns]; what belongs to rows that are not there
// is left as it is, and ends in sums that nobody reads.
template <int block>
__device__ void load_x(const MatvecArgs& a, int n_chunks, uint8_t* x_shared, float* sums,
                       float* squares) {
    constexpr int kAtOnce = 4;  // loads in flight
    const int n_quads = 16 * n_chunks, d_in = static_cast<int>(a.d_in);
    const bool aligned = a.x_stride % 4 == 0 && reinterpret_cast<uintptr_t>(a.x) % 16 == 0;
    for (int row = 0; row < a.n_rows; row++) {
        const float* x = a.x + row * a.x_stride;
        float square = 0;
        auto* to = reinterpret_cast<uint2*>(x_shared + row * x_pitch_bytes(n_chunks));
        for (int first = static_cast<int>(threadIdx.x) & ~31; first < n_quads;
             first += kAtOnce * kThreads) {
            float4 quads[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; i++) {
                const int q = first + static_cast<int>(threadIdx.x) % 32 + i * kThreads;
                quads[i] = load_quad(x, q, d_in, aligned);
            }
            if (a.norm != nullptr) {
#pragma unroll
                for (int i = 0; i < kAtOnce; i++) {
                    const int q = first + static_cast<int>(threadIdx.x) % 32 + i * kThreads;
                    float4& quad = quads[i];
                    square = fmaf(quad.x, quad.x, square), square = fmaf(quad.y, quad.y, square);
                    square = fmaf(quad.z, quad.z, square), square = fmaf(quad.w, quad.w, square);
                    const float4 w = load_quad(a.norm, q, d_in, true);
                    quad = make_float4(quad.x * w.x, quad.y * w.y, quad.z * w.z, quad.w * w.w);
                }
            }
#pragma unroll
            for (int i = 0; i < kAtOnce; i++) {
                const int q = first + static_cast<int>(threadIdx.x) % 32 + i * kThreads;
                const __nv_bfloat162 low = __floats2bfloat162_rn(quads[i].x, quads[i].y),
                                     high = __floats2bfloat162_rn(quads[i].z, quads[i].w);
                if (q < n_quads) {
                    to[quad_place(q)] = make_uint2(reinterpret_cast<const uint32_t&>(low),
                                                   reinterpret_cast<const uint32_t&>(high));
                }
                if constexpr (block > 0) {
                    const float2 l = __bfloat1622float2(low), h = __bfloat1622float2(high);
                    float sum = (l.x + l.y) + (h.x + h.y);
                    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
                    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
                    if constexpr (block == 32) sum += __shfl_xor_sync(0xffffffffu, sum, 4);
                    constexpr int kQuads = block / 4;
                    if (q < n_quads && q % kQuads == 0) sums[q / kQuads * kColumns + row] = sum;
                }
            }
        }
        if (a.norm == nullptr) continue;
        for (int l = 16; l > 0; l /= 2) square += __shfl_xor_sync(0xffffffffu, square, l);
        if (threadIdx.x % 32 == 0) squares[threadIdx.x / 32 * kColumns + row] = square;
    }
    __syncthreads();  // x and its sums are complete before they are read
}

// total += the chunk's 16 rows of w times the columns of x. x: the lane's sixteen elements of its
// column; sums: of the chunk's blocks, [.., kColumns].
template <Codes codes, class Scaling>
__device__ inline void multiply_chunk(const uint8_t* chunk, const uint4 (&x)[2], const float* sums,
                                      float taken, int lane, float (&total)[4]) {
    using Stage = Stage<codes, Scaling>;
    const ChunkCodes<codes> weights(chunk, chunk + Stage::kCodes, lane);
    auto multiply = [&](int m, float(&to)[4]) {
        const uint32_t b[2] = {word_of(x[m / 2], m % 2 * 2), word_of(x[m / 2], m % 2 * 2 + 1)};
#pragma unroll
        for (int p = 0; p < ChunkCodes<codes>::kParts; p++) {
            uint32_t operand[4];
            weights.operand(m, p, operand);
            mma_bf16(to, operand, b);
        }
    };
    if constexpr (Scaling::kBlock == 0) {
#pragma unroll
        for (int m = 0; m < 4; m++) multiply(m, total);
    } else {
        const typename Scaling::Of scales(chunk + Stage::kScales,
                                          chunk + Stage::kScales + Scaling::kBytes, lane / 4);
        constexpr int kMmas = Scaling::kBlock / 16;
#pragma unroll
        for (int block = 0; block < 4 / kMmas; block++) {
            float of_block[4] = {};
#pragma unroll
            for (int m = block * kMmas; m < (block + 1) * kMmas; m++) multiply(m, of_block);
            const float2 both = reinterpret_cast<const float2*>(sums + block * kColumns)[lane % 4];
            scales.apply(block, taken, of_block, {both.x, both.y}, total);
        }
    }
}

template <Codes codes, class Scaling>
__global__ void __launch_bounds__(kThreads, kBlocksAnSm)
    matvec_kernel(const __grid_constant__ MatvecArgs a) {
    using Stage = Stage<codes, Scaling>;
    extern __shared__ __align__(16) uint8_t shared[];
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int g = lane / 4, t = lane % 4;
    const int n_chunks = a.geometry.n_chunks;
    const int n_sides = n_sides_of(a.epilogue);
    const SharedPlan plan = shared_plan(n_chunks, a.n_rows, n_sides, Scaling::kBlock, 0);
    uint8_t* ring = shared + plan.ring + warp * kStages * Stage::kBytes;
    auto* sums = reinterpret_cast<float*>(shared + plan.sums);
    auto* squares = reinterpret_cast<float*>(shared + plan.squares);
    auto* partials = reinterpret_cast<float*>(shared + plan.partials);

    auto weight_of = [&](int tile) -> const TileWeight& {
        int w = 0;
        while (w + 1 < a.n_weights && tile >= a.weights[w + 1].first_tile) w++;
        return a.weights[w];
    };
    auto part_of = [&](int tile) {
        const TileWeight& weight = weight_of(tile);
        return weight.data + (tile - weight.first_tile) * weight.part_bytes;
    };

    // The tile of a unit: units are the tiles of all weights, or with two sides those of each.
    const int n_units = n_sides == 2 ? a.weights[1].first_tile : a.n_tiles;
    auto tile_of = [&](int unit, int side) { return unit + side * n_units; };

    // The chunk that is copied next: ahead of the one that is multiplied, by kStages - 1.
    constexpr int kChunks = Stage::kChunks, kStride = kChunks * kWarps;
    const int first_chunk = kChunks * warp;
    int next_unit = static_cast<int>(blockIdx.x), next_side = 0, next_chunk = first_chunk,
        next_stage = 0;
    const uint8_t* next_part = next_unit < n_units ? part_of(next_unit) : nullptr;
    if (first_chunk >= n_chunks) next_unit = n_units;  // a warp without chunks
    auto copy_next = [&] {
        if (next_unit < n_units) {
            uint8_t* stage = ring + next_stage * Stage::kBytes;
#pragma unroll
            for (int c = 0; c < kChunks; c++) {
                if (next_chunk + c >= n_chunks) break;
                Stage::copy_chunk(stage + c * Stage::kChunkBytes, next_part, a.geometry,
                                  next_chunk + c, lane);
            }
            next_chunk += kStride;
            if (next_chunk >= n_chunks) {
                next_chunk = first_chunk;
                if (++next_side == n_sides) {
                    next_side = 0, next_unit += static_cast<int>(gridDim.x);
                }
                if (next_unit < n_units) next_part = part_of(tile_of(next_unit, next_side));
            }
        }
        commit_copies();  // also where there is none: groups are counted
        next_stage = next_stage + 1 == kStages ? 0 : next_stage + 1;
    };
    for (int i = 0; i < kStages - 1; i++) copy_next();

    wait_for_previous_kernel();  // weights are nobody's product; x is
    let_next_kernel_start();
    load_x<Scaling::kBlock>(a, n_chunks, shared, sums, squares);

    // Of column g, the sixteen elements of every chunk that the lane multiplies.
    const auto* x_lane =
        reinterpret_cast<const uint4*>(shared + g * x_pitch_bytes(n_chunks)) + 2 * t;
    constexpr int kSumsOfChunk =
        Scaling::kBlock == 0 ? 0 : kTileChunk / std::max(Scaling::kBlock, 1) * kColumns;
    const auto taken = static_cast<float>(ChunkCodes<codes>::kBias + a.geometry.kind.offset);
    int stage_index = 0, parity = 0;
    const int side_floats = kWarps * kTileRows * plan.n_kept;
    for (int unit = static_cast<int>(blockIdx.x); unit < n_units;
         unit += static_cast<int>(gridDim.x), parity ^= 1) {
        float* of_unit = partials + parity * n_sides * side_floats;
        for (int side = 0; side < n_sides; side++) {
            float total[4] = {};
            for (int chunk = first_chunk; chunk < n_chunks; chunk += kStride) {
                wait_for_copies<kStages - 2>();
                __syncwarp();  // what the other lanes copied has arrived, too
                const uint8_t* stage = ring + stage_index * Stage::kBytes;
                stage_index = stage_index + 1 == kStages ? 0 : stage_index + 1;
#pragma unroll
                for (int c = 0; c < kChunks; c++) {
                    if (chunk + c >= n_chunks) break;
                    uint4 x[2] = {};  // of a column without a row zeros
                    if (g < a.n_rows) {
                        x[0] = x_lane[8 * (chunk + c)], x[1] = x_lane[8 * (chunk + c) + 1];
                    }
                    multiply_chunk<codes, Scaling>(stage + c * Stage::kChunkBytes, x,
                                                   sums + (chunk + c) * kSumsOfChunk, taken, lane,
                                                   total);
                }
                __syncwarp();  // all lanes have read the stage before it is copied to
                copy_next();
            }
            float* mine = of_unit + side * side_floats + warp * kTileRows * plan.n_kept;
            if (2 * t < plan.n_kept) {
                *reinterpret_cast<float2*>(mine + g * plan.n_kept + 2 * t) =
                    make_float2(total[0], total[1]);
                *reinterpret_cast<float2*>(mine + (g + 8) * plan.n_kept + 2 * t) =
                    make_float2(total[2], total[3]);
            }
        }
        // Orders the warps' sums before they are added; those of the unit after next, which use the
        // same room, come behind the next unit's barrier.
        __syncthreads();
        const int row = static_cast<int>(threadIdx.x) % kTileRows,
                  column = static_cast<int>(threadIdx.x) / kTileRows;
        const TileWeight& weight = weight_of(unit);
        const int64_t j = int64_t{unit - weight.first_tile} * kTileRows + row;
        if (column >= a.n_rows || j >= weight.n_rows) continue;
        float inverse = 1;
        if (a.norm != nullptr) {
            float square = 0;
            for (int w = 0; w < kWarps; w++) square += squares[w * kColumns + column];
            inverse = rsqrtf(square / static_cast<float>(a.d_in) + a.eps);
        }
        auto product = [&](int side, const float* bias) {
            float sum = 0;
#pragma unroll
            for (int w = 0; w < kWarps; w++) {
                sum += of_unit[side * side_floats + (w * kTileRows + row) * plan.n_kept + column];
            }
            return sum * inverse + (bias == nullptr ? 0 : bias[j]);
        };
        const float p = product(0, weight.bias);
        float* to = a.out + column * a.out_stride + weight.column + j;
        switch (a.epilogue) {
            case Epilogue::kStore:
                *to = p;
                break;
            case Epilogue::kAdd:
                *to += p;
                break;
            case Epilogue::kSwiglu:
                *to = p / (1 + __expf(-p)) * product(1, a.weights[1].bias);
                break;
        }
    }
}

template <Codes codes, class Scaling>
void launch(const MatvecArgs& a, const Context& c) {
    using Stage = Stage<codes, Scaling>;
    const auto kernel = matvec_kernel<codes, Scaling>;
    CHECK(chunk_bytes(a.geometry) == Stage::kChunkBytes &&
          scale_block(a.geometry) == Scaling::kBlock);
    const SharedPlan plan = shared_plan_of(a.geometry, a.n_rows, a.epilogue);
    const auto shared_bytes = static_cast<int>(plan.n_bytes);
    if (shared_bytes > 48 << 10) {
        check(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
            "matvec: shared memory");
    }
    const int blocks_an_sm =
        std::clamp(c.shared_bytes_an_sm / (shared_bytes + 1024), 1, kBlocksAnSm);
    const int grid = std::min(a.n_tiles / n_sides_of(a.epilogue), c.n_sms * blocks_an_sm);
    launch_dependent(c, kernel, dim3(static_cast<unsigned>(grid)), kThreads,
                     static_cast<size_t>(shared_bytes), "matvec", a);
}

void launch_of_kind(const MatvecArgs& a, const Context& c) {
    const TileGeometry& g = a.geometry;
    switch (g.kind.codes) {
        case Codes::kBF16:
            return launch<Codes::kBF16, NoScaling>(a, c);
        case Codes::kF16:
            return launch<Codes::kF16, NoScaling>(a, c);
        case Codes::kFour:
            switch (g.kind.scales) {
                case Scales::kSmall:
                    return launch<Codes::kFour, Scaling<Scales::kSmall>>(a, c);
                case Scales::kSmallMin:
                    return launch<Codes::kFour, Scaling<Scales::kSmallMin>>(a, c);
                case Scales::kSuper:
                    return launch<Codes::kFour, Scaling<Scales::kSuper>>(a, c);
                case Scales::kSuper16:
                    return launch<Codes::kFour, Scaling<Scales::kSuper16>>(a, c);
                case Scales::kSuper16Min:
                    return launch<Codes::kFour, Scaling<Scales::kSuper16Min>>(a, c);
                default:
                    if (g.group_scale_bytes == 4)
                        return launch<Codes::kFour, GroupScaling<float>>(a, c);
                    if (g.group_scale_f16) return launch<Codes::kFour, GroupScaling<__half>>(a, c);
                    return launch<Codes::kFour, GroupScaling<__nv_bfloat16>>(a, c);
            }
        case Codes::kFive:
            if (g.kind.scales == Scales::kSmall)
                return launch<Codes::kFive, Scaling<Scales::kSmall>>(a, c);
            if (g.kind.scales == Scales::kSmallMin)
                return launch<Codes::kFive, Scaling<Scales::kSmallMin>>(a, c);
            return launch<Codes::kFive, Scaling<Scales::kSuper>>(a, c);
        case Codes::kSix:
            return launch<Codes::kSix, Scaling<Scales::kSuper16>>(a, c);
        case Codes::kEight:
            if (g.kind.scales == Scales::kSmall)
                return launch<Codes::kEight, Scaling<Scales::kSmall>>(a, c);
            if (g.kind.scales == Scales::kSuper16)
                return launch<Codes::kEight, Scaling<Scales::kSuper16>>(a, c);
            if (g.group_scale_bytes == 4) return launch<Codes::kEight, GroupScaling<float>>(a, c);
            if (g.group_scale_f16) return launch<Codes::kEight, GroupScaling<__half>>(a, c);
            return launch<Codes::kEight, GroupScaling<__nv_bfloat16>>(a, c);
    }
}

// embed_rows: out[i] = table[token[i]]            a block for each row, a thread for an element
__global__ void embed_kernel(const uint8_t* data, TileGeometry geometry, int64_t d,
                             const Token* token, float* out, int64_t stride) {
    const int64_t row = token[blockIdx.x];
    const uint8_t* part = data + row / kTileRows * geometry.part_bytes;
    for (int64_t k = threadIdx.x; k < d; k += blockDim.x) {
        out[blockIdx.x * stride + k] =
            tile_element(geometry, part, static_cast<int>(row % kTileRows), k);
    }
}

// Whether one launch can multiply both.
bool same_kind(const Tensor& a, const Tensor& b) {
    return a.format == b.format && a.group_size == b.group_size && a.scale_format == b.scale_format;
}

}  // namespace

std::string_view unfit_for_tiles(const Step&, const Rows&, const LinearGroup& weights,
                                 const Rows&) {
    for (int i = 0; i < weights.n_weights; i++) {
        const Tensor& w = weights.weights[static_cast<size_t>(i)]->weight;
        if (w.layout == &tiles_layout()) return {};
    }
    return "weights of F32";
}

namespace {

// n rows, and neighbours among the weights that are of one kind, from `first` on;
// returns the weight behind them.
int multiply(const Context& c, const MatvecCall& call, int64_t row, int64_t n, int first,
             int64_t column) {
    const Rows x = call.x.slice(row, n), out = call.out.slice(row, n);
    MatvecArgs a{};
    a.n_rows = static_cast<int>(n);
    a.x = device_rows<const float>(x), a.x_stride = x.stride, a.d_in = x.n_cols;
    a.norm = call.norm == nullptr ? nullptr : device_plane<const float>(*call.norm);
    a.eps = call.eps, a.epilogue = call.epilogue;
    a.out = device_rows<float>(out), a.out_stride = out.stride;
    const Tensor& kind = call.weights.weights[static_cast<size_t>(first)]->weight;
    a.geometry = tile_geometry(kind);
    int i = first;
    for (; i < call.weights.n_weights; i++) {
        const Linear& linear = *call.weights.weights[static_cast<size_t>(i)];
        const Tensor& w = linear.weight;
        if (w.layout != &tiles_layout() || !same_kind(w, kind)) break;
        CHECK(w.n_cols() == x.n_cols);
        a.weights[a.n_weights++] = {device_plane<const uint8_t>(w),
                                    a.geometry.part_bytes,
                                    linear.bias ? device_plane<const float>(linear.bias) : nullptr,
                                    a.n_tiles,
                                    static_cast<int>(w.n_rows()),
                                    column};
        a.n_tiles += static_cast<int>((w.n_rows() + kTileRows - 1) / kTileRows);
        column += w.n_rows();
    }
    launch_of_kind(a, c);
    return i;
}

}  // namespace

bool is_matvec(const MatvecCall& call) {
    for (int i = 0; i < call.weights.n_weights; i++) {
        const Tensor& w = call.weights.weights[static_cast<size_t>(i)]->weight;
        if (w.layout != &tiles_layout()) return false;
    }
    if (call.epilogue != Epilogue::kSwiglu) return true;
    const Tensor &gate = call.weights.weights[0]->weight, &up = call.weights.weights[1]->weight;
    return call.weights.n_weights == 2 && same_kind(gate, up) && gate.n_rows() == up.n_rows();
}

// Rows of x that a launch takes: eight, or as many as shared memory has room for.
static int64_t rows_at_once(const Context& c, const MatvecCall& call) {
    int n = kColumns;
    for (int i = 0; i < call.weights.n_weights; i++) {
        const TileGeometry g = tile_geometry(call.weights.weights[static_cast<size_t>(i)]->weight);
        while (n > 1 && shared_plan_of(g, n, call.epilogue).n_bytes > c.shared_bytes_a_block) n--;
    }
    return n;
}

void run_matvec(const Step& s, const MatvecCall& call) {
    CHECK(is_matvec(call));
    const Context& c = context_of(s);
    const int64_t at_once = rows_at_once(c, call);
    for (int64_t row = 0; row < call.x.n_rows; row += at_once) {
        const int64_t n = std::min(at_once, call.x.n_rows - row);
        int64_t column = 0;
        for (int i = 0; i < call.weights.n_weights;) {
            const int end = multiply(c, call, row, n, i, column);
            for (; i < end; i++) {
                column += call.weights.weights[static_cast<size_t>(i)]->weight.n_rows();
            }
        }
    }
}

// A weight that has no tiles, F32, goes to the entry below alone.
void matmul_tiles(Step& s, Rows x, LinearGroup weights, Rows out) {
    CHECK(out.n_cols == weights.d_out() && out.n_rows == x.n_rows);
    const MatvecCall call{x, weights, out};
    if (is_matvec(call)) {
        if (!s.planning) run_matvec(s, call);
        return;
    }
    int64_t column = 0;
    for (int i = 0; i < weights.n_weights; i++) {
        const Linear& linear = *weights.weights[static_cast<size_t>(i)];
        const Rows part = out.cols(column, linear.weight.n_rows());
        column += linear.weight.n_rows();
        if (linear.weight.layout != &tiles_layout()) {
            s.ops.matmul.below("matvec", s, x, linear, part);
        } else if (!s.planning) {
            run_matvec(s, {x, linear, part});
        }
    }
}

std::string_view unfit_for_embedding(const Step&, const Tensor& table, const Tokens&, const Rows&) {
    return table.layout == &tiles_layout() ? "" : "the table lies as the file has it";
}

void embed_rows_tiles(Step& s, const Tensor& table, Tokens token, Rows out) {
    if (s.planning) return;
    CHECK(token.data() == s.batch.tokens.data());
    const Context& c = context_of(s);
    embed_kernel<<<static_cast<unsigned>(out.n_rows), 256, 0, c.stream>>>(
        device_plane<const uint8_t>(table), tile_geometry(table), table.n_cols(), c.mirror.tokens,
        device_rows<float>(out), out.stride);
    check_launch("embed_rows");
}

}  // namespace ridge::cuda
