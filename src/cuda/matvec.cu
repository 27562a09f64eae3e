#include <algorithm>

#include "cuda/check.h"
#include "cuda/context.h"
#include "cuda/device/async.cuh"
#include "cuda/device/tile_codes.cuh"
#include "cuda/matvec.h"
#include "cuda/tiles.h"

// matvec: out[i, j] = sum_k x[i, k] w[j, k] + bias[j], for up to eight rows i
//
//   x [n_rows, d_in] f32, rounded to bf16; w in tiles of 16 rows; sums f32; out f32.
//
// Tensor units multiply 16 rows of w by 16 elements with 8 columns, which are rows of x: those that
// are not there are zero, so that one row and eight take the same time and the same order of sums.
// Blocks take tiles in turns. In a block each warp takes every kWarps-th chunk of 64 elements along
// k; chunks are on their way to shared memory, a ring of kStages for each warp, while others are
// multiplied, on from one tile to the next. The warps' sums are added in their order at a tile's
// end.
//
// Bytes: the weights once, x once a block. Flops: 2 n_rows d_in d_out.

namespace ridge::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kColumns = 8;
constexpr int kBlocksAnSm = 2;

// How scales travel: copied to a chunk's stage by the lanes of each g.
template <Scales scales>
struct Scaling {
    using Of = ChunkScales<scales>;
    static constexpr int kBytes = scale_bytes(scales), kSuperBytes = super_bytes(scales);

    __device__ static void copy(uint8_t* stage, const uint8_t* part, const TileGeometry& g,
                                int64_t chunk, int lane) {
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

    __device__ static void copy(uint8_t* stage, const uint8_t* part, const TileGeometry& g,
                                int64_t chunk, int lane) {
        constexpr int kEach = 4 * static_cast<int>(sizeof(T));
        const int block = lane % 4, place = lane / 4;
        if (block >= 2) return;
        const int64_t group = (chunk * kTileChunk + 32 * block) / g.group_size;
        copy_async<kEach>(stage + (8 * block + place) * kEach,
                          part + g.scales + (8 * group + place) * kEach);
    }
};

struct NoScaling {
    static constexpr int kBytes = 0, kSuperBytes = 0;
    __device__ static void copy(uint8_t*, const uint8_t*, const TileGeometry&, int64_t, int) {}
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
    int n_rows;  // 1 to 8
    float* out;
    int64_t out_stride;
};

template <Codes codes, class Scaling>
struct Stage {
    static constexpr int kCodes = code_bytes(codes), kHigh = high_bytes(codes);
    static constexpr int kBytes = kCodes + kHigh + Scaling::kBytes + Scaling::kSuperBytes;
    // As many as keep some 40 KB of a block on their way.
    static constexpr int kStages = kBytes <= 700 ? 7 : kBytes <= 900 ? 6 : kBytes <= 1400 ? 4 : 3;
};

// Where elements of x lie in shared memory, so that a lane's of the four mma of a chunk are side by
// side.
__device__ inline int64_t place_of(int64_t k) {
    return k / 64 * 64 + k % 16 / 4 * 16 + k % 64 / 16 * 4 + k % 4;
}

// Bytes from one row of x to the next in shared memory: rows start 32 bytes apart modulo the banks.
__host__ __device__ inline int64_t x_pitch_bytes(int64_t n_chunks) {
    return (n_chunks * 128 + 255) / 256 * 256 + 32;
}

struct SharedPlan {
    int64_t sums, partials, ring, n_bytes;  // x at 0
};
__host__ __device__ inline SharedPlan shared_plan(int64_t n_chunks, int n_rows, bool has_sums,
                                                  int ring_bytes) {
    SharedPlan plan;
    plan.sums = (n_rows * x_pitch_bytes(n_chunks) + 15) / 16 * 16;
    plan.partials = plan.sums + (has_sums ? n_chunks * 4 * kColumns * 4 : 0);
    plan.ring = plan.partials + 2 * kWarps * kTileRows * kColumns * 4;
    plan.n_bytes = plan.ring + ring_bytes;
    return plan;
}

// The rows of x as bf16, zeros behind the last column, and the sums of every sixteen.
__device__ void load_x(const MatvecArgs& a, int64_t n_chunks, uint8_t* x_shared, float* sums) {
    const int64_t n = n_chunks * kTileChunk, pitch = x_pitch_bytes(n_chunks);
    for (int64_t i = threadIdx.x; i < a.n_rows * n; i += kThreads) {
        const int64_t row = i / n, k = i % n;
        const float value = k < a.d_in ? a.x[row * a.x_stride + k] : 0.0f;
        reinterpret_cast<__nv_bfloat16*>(x_shared + row * pitch)[place_of(k)] =
            __float2bfloat16_rn(value);
    }
    __syncthreads();  // x is complete before its sums are taken
    if (sums == nullptr) return;
    for (int64_t i = threadIdx.x; i < 4 * n_chunks * kColumns; i += kThreads) {
        const int64_t sixteen = i / kColumns, row = i % kColumns;
        float sum = 0;
        if (row < a.n_rows) {
            const auto* x = reinterpret_cast<const __nv_bfloat16*>(x_shared + row * pitch);
            for (int k = 0; k < 16; k++) sum += __bfloat162float(x[place_of(16 * sixteen + k)]);
        }
        sums[i] = sum;
    }
    __syncthreads();  // sums are complete before they are read
}

template <Codes codes, class Scaling>
__global__ void __launch_bounds__(kThreads) matvec_kernel(const __grid_constant__ MatvecArgs a) {
    using Stage = Stage<codes, Scaling>;
    constexpr bool kScaled = Scaling::kBytes > 0;
    extern __shared__ __align__(16) uint8_t shared[];
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int g = lane / 4, t = lane % 4;
    const int64_t n_chunks = a.geometry.n_chunks;
    const SharedPlan plan = shared_plan(n_chunks, a.n_rows, kScaled, 0);
    uint8_t* ring = shared + plan.ring + warp * Stage::kStages * Stage::kBytes;
    auto* sums = reinterpret_cast<float*>(shared + plan.sums);
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

    // The chunk that is copied next: ahead of the one that is multiplied, by kStages - 1.
    int next_tile = static_cast<int>(blockIdx.x), next_stage = 0;
    int64_t next_chunk = warp;
    const uint8_t* next_part = next_tile < a.n_tiles ? part_of(next_tile) : nullptr;
    auto copy_next = [&] {
        while (next_tile < a.n_tiles && next_chunk >= n_chunks) {
            next_tile += static_cast<int>(gridDim.x), next_chunk = warp;
            if (warp >= n_chunks) next_tile = a.n_tiles;  // a warp without chunks
            if (next_tile < a.n_tiles) next_part = part_of(next_tile);
        }
        if (next_tile < a.n_tiles) {
            uint8_t* stage = ring + next_stage * Stage::kBytes;
            const uint8_t* from = next_part + next_chunk * Stage::kCodes;
#pragma unroll
            for (int at = 0; at < Stage::kCodes; at += 512) {
                copy_async<16>(stage + at + 16 * lane, from + at + 16 * lane);
            }
            if constexpr (Stage::kHigh > 0) {
                constexpr int kEach = Stage::kHigh / 32;
                copy_async<kEach>(
                    stage + Stage::kCodes + kEach * lane,
                    next_part + a.geometry.high + next_chunk * Stage::kHigh + kEach * lane);
            }
            Scaling::copy(stage + Stage::kCodes + Stage::kHigh, next_part, a.geometry, next_chunk,
                          lane);
            next_chunk += kWarps;
        }
        commit_copies();  // also where there is none: groups are counted
        next_stage = next_stage + 1 == Stage::kStages ? 0 : next_stage + 1;
    };
    for (int i = 0; i < Stage::kStages - 1; i++) copy_next();

    wait_for_previous_kernel();  // weights are nobody's product; x is
    let_next_kernel_start();
    load_x(a, n_chunks, shared, kScaled ? sums : nullptr);

    int stage_index = 0, parity = 0;
    for (int tile = static_cast<int>(blockIdx.x); tile < a.n_tiles;
         tile += static_cast<int>(gridDim.x), parity ^= 1) {
        float total[4] = {};
        for (int64_t chunk = warp; chunk < n_chunks; chunk += kWarps) {
            wait_for_copies<Stage::kStages - 2>();
            __syncwarp();  // what the other lanes copied has arrived, too
            const uint8_t* stage = ring + stage_index * Stage::kBytes;
            stage_index = stage_index + 1 == Stage::kStages ? 0 : stage_index + 1;
            uint4 x_words[2] = {};  // of the four mma, two words each
            if (g < a.n_rows) {
                const auto* at = reinterpret_cast<const uint4*>(
                    shared + g * x_pitch_bytes(n_chunks) + (chunk * 64 + t * 16) * 2);
                x_words[0] = at[0], x_words[1] = at[1];
            }
            const ChunkCodes<codes> weights(stage, stage + Stage::kCodes, lane);
            if constexpr (kScaled) {
                const typename Scaling::Of scales(
                    stage + Stage::kCodes + Stage::kHigh,
                    stage + Stage::kCodes + Stage::kHigh + Scaling::kBytes, g);
                constexpr int kMmas = Scaling::Of::kBlock / 16;
                const float taken =
                    static_cast<float>(ChunkCodes<codes>::kBias + a.geometry.kind.offset);
#pragma unroll
                for (int block = 0; block < 4 / kMmas; block++) {
                    float block_sums[4] = {};
                    ColumnSums x_sums{0, 0};
#pragma unroll
                    for (int m = block * kMmas; m < (block + 1) * kMmas; m++) {
                        const uint32_t b[2] = {word_of(x_words[m / 2], m % 2 * 2),
                                               word_of(x_words[m / 2], m % 2 * 2 + 1)};
#pragma unroll
                        for (int p = 0; p < ChunkCodes<codes>::kParts; p++) {
                            uint32_t operand[4];
                            weights.operand(m, p, operand);
                            mma_bf16(block_sums, operand, b);
                        }
                        const float2 both =
                            reinterpret_cast<const float2*>(sums + (chunk * 4 + m) * kColumns)[t];
                        x_sums.a += both.x, x_sums.b += both.y;
                    }
                    scales.apply(block, taken, block_sums, x_sums, total);
                }
            } else {
#pragma unroll
                for (int m = 0; m < 4; m++) {
                    const uint32_t b[2] = {word_of(x_words[m / 2], m % 2 * 2),
                                           word_of(x_words[m / 2], m % 2 * 2 + 1)};
#pragma unroll
                    for (int p = 0; p < ChunkCodes<codes>::kParts; p++) {
                        uint32_t operand[4];
                        weights.operand(m, p, operand);
                        mma_bf16(total, operand, b);
                    }
                }
            }
            __syncwarp();  // all lanes have read the stage before it is copied to
            copy_next();
        }
        float* of_tile = partials + parity * kWarps * kTileRows * kColumns;
        float* mine = of_tile + warp * kTileRows * kColumns;
        *reinterpret_cast<float2*>(mine + g * kColumns + 2 * t) = make_float2(total[0], total[1]);
        *reinterpret_cast<float2*>(mine + (g + 8) * kColumns + 2 * t) =
            make_float2(total[2], total[3]);
        // Orders the warps' sums before they are added; those of the tile after next, which use the
        // same room, come behind the next tile's barrier.
        __syncthreads();
        const int row = static_cast<int>(threadIdx.x) / kColumns,
                  column = static_cast<int>(threadIdx.x) % kColumns;
        const TileWeight& weight = weight_of(tile);
        const int64_t j = int64_t{tile - weight.first_tile} * kTileRows + row;
        if (row < kTileRows && column < a.n_rows && j < weight.n_rows) {
            float sum = 0;
#pragma unroll
            for (int w = 0; w < kWarps; w++) {
                sum += of_tile[(w * kTileRows + row) * kColumns + column];
            }
            if (weight.bias != nullptr) sum += weight.bias[j];
            a.out[column * a.out_stride + weight.column + j] = sum;
        }
    }
}

template <Codes codes, class Scaling>
void launch(const MatvecArgs& a, const Context& c) {
    using Stage = Stage<codes, Scaling>;
    const auto kernel = matvec_kernel<codes, Scaling>;
    const SharedPlan plan = shared_plan(a.geometry.n_chunks, a.n_rows, Scaling::kBytes > 0,
                                        kWarps * Stage::kStages * Stage::kBytes);
    const auto shared_bytes = static_cast<int>(plan.n_bytes);
    if (shared_bytes > 48 << 10) {
        check(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
            "matvec: shared memory");
    }
    const int blocks_an_sm =
        std::clamp(c.shared_bytes_an_sm / (shared_bytes + 1024), 1, kBlocksAnSm);
    const int grid = std::min(a.n_tiles, c.n_sms * blocks_an_sm);
    kernel<<<static_cast<unsigned>(grid), kThreads, static_cast<size_t>(shared_bytes), c.stream>>>(
        a);
    check_launch("matvec");
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

// Eight rows at most, and neighbours among the weights that are of one kind, from `first` on;
// returns the weight behind them.
int multiply(const Context& c, const Rows& x, const LinearGroup& weights, int first, int64_t column,
             const Rows& out) {
    MatvecArgs a{};
    a.n_rows = static_cast<int>(x.n_rows);
    a.x = device_rows<const float>(x), a.x_stride = x.stride, a.d_in = x.n_cols;
    a.out = device_rows<float>(out), a.out_stride = out.stride;
    const Tensor& kind = weights.weights[static_cast<size_t>(first)]->weight;
    a.geometry = tile_geometry(kind);
    int i = first;
    for (; i < weights.n_weights; i++) {
        const Linear& linear = *weights.weights[static_cast<size_t>(i)];
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

void matmul_tiles(Step& s, Rows x, LinearGroup weights, Rows out) {
    CHECK(out.n_cols == weights.d_out() && out.n_rows == x.n_rows);
    int64_t column = 0;
    for (int i = 0; i < weights.n_weights;) {
        const Linear& linear = *weights.weights[static_cast<size_t>(i)];
        int end = i + 1;
        if (linear.weight.layout != &tiles_layout()) {
            s.ops.matmul.below("matvec", s, x, linear, out.cols(column, linear.weight.n_rows()));
        } else if (!s.planning) {
            for (int64_t row = 0; row < x.n_rows; row += kColumns) {
                const int64_t n = std::min<int64_t>(kColumns, x.n_rows - row);
                end =
                    multiply(context_of(s), x.slice(row, n), weights, i, column, out.slice(row, n));
            }
        }
        for (; i < end; i++) column += weights.weights[static_cast<size_t>(i)]->weight.n_rows();
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
