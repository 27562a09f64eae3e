#include <algorithm>
#include <climits>

#include "base/checked_math.h"
#include "cuda/check.h"
#include "cuda/context.h"
#include "cuda/device/async.cuh"
#include "cuda/device/matvec_input.cuh"
#include "cuda/device/matvec_row.cuh"
#include "cuda/device/matvec_sums.cuh"
#include "cuda/device/tile_stream.cuh"
#include "cuda/matvec.h"
#include "cuda/tiles.h"

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

namespace ridge::cuda {
namespace {

using namespace matvec;

int behind(int at, int n_bytes) {
    return (at + n_bytes + 15) / 16 * 16;
}

// scale_block: elements that share a scale, 0 where none do.
SharedPlan shared_plan(int n_chunks, int n_rows, int n_sides, int n_warps, int scale_block,
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

// How a call is cut up. Warps decide the order of sums: they follow from the weights' shape alone.
struct MatvecPlan {
    int n_warps = 8;
    bool pairs = false;  // units of neighbours
};

// Where there are few tiles of many columns more warps share each; where there are many tiles, two
// share what is read of x.
MatvecPlan plan_matvec(int n_tiles, int n_chunks, Epilogue epilogue) {
    MatvecPlan plan;
    if (n_tiles <= 192 && n_chunks >= 64) plan.n_warps = 16;
    plan.pairs = epilogue != Epilogue::kSwiglu && n_tiles >= 2048;
    return plan;
}

// Units of all weights, and of each.
void number_units(MatvecArgs& a, bool pairs) {
    a.unit_tiles = pairs ? 2 : 1;
    a.n_units = 0;
    for (int i = 0; i < 3; i++) {
        a.first_units[i] = i < a.n_weights ? a.n_units : INT_MAX;
        if (a.epilogue == Epilogue::kSwiglu && i > 0) a.first_units[i] = INT_MAX;
        if (a.first_units[i] == INT_MAX) continue;
        a.n_units += ceil_div(a.weights[i].n_tiles, a.unit_tiles);
    }
}

// Blocks of a product that run on a multiprocessor at a time, at most `most`.
int blocks_an_sm(const Context& c, int shared_bytes, int most) {
    return std::clamp(c.shared_bytes_an_sm / 100 * kDecodeCarveout / (shared_bytes + 1024), 1,
                      most);
}

template <class Kernel>
void launch_blocks(const MatvecArgs& a, const Context& c, Kernel kernel, int n_warps,
                   int shared_bytes) {
    check_shared_memory(shared_bytes, c.shared_bytes_a_block, "matvec: rows so long");
    divide_memory_alike(kernel, "matvec");
    if (shared_bytes > 48 << 10) {
        check(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
            "matvec: shared memory");
    }
    const int n_blocks = std::min(a.n_units, c.n_sms * blocks_an_sm(c, shared_bytes, 16 / n_warps));
    launch_dependent(c, kernel, dim3(static_cast<unsigned>(n_blocks)),
                     static_cast<unsigned>(32 * n_warps), static_cast<size_t>(shared_bytes),
                     "matvec", a);
}

// By rings, where a multiprocessor has room for those of as many blocks as run on it.
template <class Chunk, class S>
bool launch_row_shape(const MatvecArgs& a, const Context& c) {
    constexpr int kBytes = RowPlan<Chunk, S>::kBytes;
    if (kBytes > c.shared_bytes_a_block ||
        blocks_an_sm(c, kBytes, 16 / S::kWarps) < 16 / S::kWarps) {
        return false;
    }
    launch_blocks(a, c, matvec_row_kernel<Chunk, S>, S::kWarps, kBytes);
    return true;
}
// Of the shapes that there are kernels for.
template <class Chunk, int kWarps, int kSides>
bool launch_row(const MatvecArgs& a, const Context& c) {
    if (!a.has_quads) return false;
    const int n = a.geometry.n_chunks;
    if (n == 4 * kWarps) {
        return launch_row_shape<Chunk, RowShape<kWarps, kSides, 4, true, 2>>(a, c);
    }
    if (n == 8 * kWarps) {
        return launch_row_shape<Chunk, RowShape<kWarps, kSides, 4, true, 4>>(a, c);
    }
    if constexpr (kWarps == 16) {
        if (n <= 10 * kWarps) {
            return launch_row_shape<Chunk, RowShape<kWarps, kSides, 4, false, 5>>(a, c);
        }
        if (n <= 12 * kWarps) {
            return launch_row_shape<Chunk, RowShape<kWarps, kSides, 4, false, 6>>(a, c);
        }
    } else if (n == 5 * kWarps) {
        return launch_row_shape<Chunk, RowShape<kWarps, kSides, 5, true, 3>>(a, c);
    }
    return false;
}

// Of a row that comes to registers: where many do, by the kernel for its quads (RowRounder).
template <class Chunk, int kWarps, int kSides, int kDepth>
void launch_single(const MatvecArgs& a, const Context& c) {
    constexpr int kBlocksAnSm = 16 / kWarps;
    auto launch = [&](auto kernel) { launch_blocks(a, c, kernel, kWarps, a.plan.n_bytes); };
    if constexpr (is_large<Chunk>) {
        switch (a.has_quads ? ceil_div(a.geometry.n_chunks, 2 * kWarps) : 0) {
            case 2:
                return launch(matvec_kernel<Chunk, kWarps, kSides, kDepth, kBlocksAnSm, true, 2>);
            case 3:
                return launch(matvec_kernel<Chunk, kWarps, kSides, kDepth, kBlocksAnSm, true, 3>);
            case 4:
                return launch(matvec_kernel<Chunk, kWarps, kSides, kDepth, kBlocksAnSm, true, 4>);
            case 5:
                return launch(matvec_kernel<Chunk, kWarps, kSides, kDepth, kBlocksAnSm, true, 5>);
            default:
                break;
        }
    }
    launch(matvec_kernel<Chunk, kWarps, kSides, kDepth, kBlocksAnSm, true, 0>);
}

template <class Chunk, int kWarps, int kSides, bool kSingle>
void launch_shape(MatvecArgs& a, const Context& c) {
    if constexpr (kSingle && Chunk::kBlock > 0) {
        if (launch_row<Chunk, kWarps, kSides>(a, c)) return;
    }
    // As many chunks on their way as registers have room for.
    constexpr int kDepth = Chunk::kRegisters * kSides <= (kSides == 1 ? 16 : 11) ? 4 : 2;
    a.plan = shared_plan(a.geometry.n_chunks, a.n_rows, kSides, kWarps, Chunk::kBlock,
                         a.norm != nullptr);
    if constexpr (kSingle) {
        launch_single<Chunk, kWarps, kSides, kDepth>(a, c);
    } else {
        CHECK(a.plan.sums <= kRoundedBytes);
        a.rounded = c.rounded_rows;
        const auto round_kernel = round_rows_kernel<Chunk::kBlock, kWarps>;
        divide_memory_alike(round_kernel, "rounding rows");
        launch_dependent(c, round_kernel,
                         dim3(static_cast<unsigned>(a.n_rows * kWarps * 32 / kRoundThreads)),
                         kRoundThreads, 0, "rounding rows", a);
        launch_blocks(a, c, matvec_kernel<Chunk, kWarps, kSides, kDepth, 16 / kWarps, false, 0>,
                      kWarps, a.plan.n_bytes);
    }
}

template <class Chunk, bool kSingle>
void launch_cut(MatvecArgs& a, const Context& c, const MatvecPlan& cut) {
    if (cut.pairs || a.epilogue == Epilogue::kSwiglu) {
        launch_shape<Chunk, 8, 2, kSingle>(a, c);
    } else if (cut.n_warps == 8) {
        launch_shape<Chunk, 8, 1, kSingle>(a, c);
    } else {
        launch_shape<Chunk, 16, 1, kSingle>(a, c);
    }
}

template <Codes codes, Scales scales, class T = void>
void launch(MatvecArgs a, const Context& c) {
    using Chunk = StreamedChunk<codes, scales, T>;
    int n_tiles = 0;
    for (int i = 0; i < a.n_weights; i++) n_tiles += a.weights[i].n_tiles;
    const MatvecPlan cut = plan_matvec(n_tiles, a.geometry.n_chunks, a.epilogue);
    number_units(a, cut.pairs);
    if (a.n_rows == 1) {
        launch_cut<Chunk, true>(a, c, cut);
    } else {
        launch_cut<Chunk, false>(a, c, cut);
    }
}

void launch_of_kind(const MatvecArgs& a, const Context& c) {
    const TileGeometry& g = a.geometry;
    switch (g.kind.codes) {
        case Codes::kF16:
            return launch<Codes::kF16, Scales::kNone>(a, c);
        case Codes::kFour:
            switch (g.kind.scales) {
                case Scales::kSmall:
                    return launch<Codes::kFour, Scales::kSmall>(a, c);
                case Scales::kSmallMin:
                    return launch<Codes::kFour, Scales::kSmallMin>(a, c);
                case Scales::kSuper:
                    return launch<Codes::kFour, Scales::kSuper>(a, c);
                case Scales::kSuper16:
                    return launch<Codes::kFour, Scales::kSuper16>(a, c);
                case Scales::kSuper16Min:
                    return launch<Codes::kFour, Scales::kSuper16Min>(a, c);
                default:
                    if (g.group_scale_bytes == 4)
                        return launch<Codes::kFour, Scales::kGroup, float>(a, c);
                    if (g.group_scale_f16)
                        return launch<Codes::kFour, Scales::kGroup, __half>(a, c);
                    return launch<Codes::kFour, Scales::kGroup, __nv_bfloat16>(a, c);
            }
        case Codes::kFive:
            if (g.kind.scales == Scales::kSmall) return launch<Codes::kFive, Scales::kSmall>(a, c);
            if (g.kind.scales == Scales::kSmallMin)
                return launch<Codes::kFive, Scales::kSmallMin>(a, c);
            return launch<Codes::kFive, Scales::kSuper>(a, c);
        case Codes::kSix:
            return launch<Codes::kSix, Scales::kSuper16>(a, c);
        case Codes::kEight:
            if (g.kind.scales == Scales::kSmall) return launch<Codes::kEight, Scales::kSmall>(a, c);
            if (g.kind.scales == Scales::kSuper16)
                return launch<Codes::kEight, Scales::kSuper16>(a, c);
            if (g.group_scale_bytes == 4) return launch<Codes::kEight, Scales::kGroup, float>(a, c);
            if (g.group_scale_f16) return launch<Codes::kEight, Scales::kGroup, __half>(a, c);
            return launch<Codes::kEight, Scales::kGroup, __nv_bfloat16>(a, c);
    }
}

constexpr int kEmbedThreads = 128;

// embed_rows: out[i] = table[token[i]]            block (i, k / 128), a thread for an element
__global__ void embed_kernel(const uint8_t* data, TileGeometry geometry, int64_t d,
                             const Token* token, float* out, int64_t stride) {
    const int64_t row = token[blockIdx.x];
    const uint8_t* part = data + row / kTileRows * geometry.part_bytes;
    const int64_t k = blockIdx.y * kEmbedThreads + threadIdx.x;
    if (k >= d) return;
    out[blockIdx.x * stride + k] =
        tile_element(geometry, part, static_cast<int>(row % kTileRows), k);
}

// Of elements of up to eight rows, which kernels count in ints.
int index_of(int64_t n) {
    CHECK(n >= 0 && kColumns * n < INT_MAX);
    return static_cast<int>(n);
}

// n rows, and neighbours among the weights that are of one kind, from `first` on;
// returns the weight behind them.
int multiply(const Context& c, const ProductCall& call, int64_t row, int64_t n, int first,
             int64_t column) {
    const Rows x = call.x.slice(row, n), out = call.out.slice(row, n);
    MatvecArgs a{};
    a.n_rows = static_cast<int>(n);
    a.x = device_rows<const float>(x);
    a.x_stride = index_of(x.stride), a.d_in = index_of(x.n_cols);
    a.has_quads = x.n_cols % 4 == 0 && (n == 1 || x.stride % 4 == 0) &&
                  reinterpret_cast<uintptr_t>(a.x) % 16 == 0;
    a.norm = call.norm == nullptr ? nullptr : device_plane<const float>(*call.norm);
    a.per_element = 1.0f / static_cast<float>(a.d_in), a.eps = call.eps, a.epilogue = call.epilogue;
    a.out = device_rows<float>(out), a.out_stride = index_of(out.stride);
    const Tensor& kind = call.weights.weights[static_cast<size_t>(first)]->weight;
    a.geometry = tile_geometry(kind);
    a.offset = a.geometry.kind.offset;
    int i = first;
    for (; i < call.weights.n_weights; i++) {
        const Linear& linear = *call.weights.weights[static_cast<size_t>(i)];
        const Tensor& w = linear.weight;
        if (!is_in_tiles(w) || !have_one_kind(w, kind)) break;
        CHECK(w.n_cols() == x.n_cols);
        a.weights[a.n_weights++] = {device_plane<const uint8_t>(w),
                                    linear.bias ? device_plane<const float>(linear.bias) : nullptr,
                                    ceil_div(static_cast<int>(w.n_rows()), kTileRows),
                                    static_cast<int>(w.n_rows()), index_of(column)};
        column += w.n_rows();
    }
    launch_of_kind(a, c);
    return i;
}

// Rows of x that a launch takes: eight, or as many as shared memory has room for.
int64_t rows_at_once(const Context& c, const ProductCall& call) {
    int n = kColumns;
    for (int i = 0; i < call.weights.n_weights; i++) {
        const TileGeometry g = tile_geometry(call.weights.weights[static_cast<size_t>(i)]->weight);
        auto n_bytes = [&] {
            return shared_plan(g.n_chunks, n, 1, 16, scale_block_of(g.kind.scales),
                               call.norm != nullptr)
                .n_bytes;
        };
        while (n > 1 && n_bytes() > c.shared_bytes_a_block) n--;
    }
    return n;
}

}  // namespace

std::string_view unfit_for_tiles(const Step&, const Rows&, const LinearGroup& weights,
                                 const Rows&) {
    std::string_view why;
    for (int i = 0; i < weights.n_weights; i++) {
        const Tensor& w = weights.weights[static_cast<size_t>(i)]->weight;
        if (is_in_tiles(w)) return {};
        if (why.empty() || has_tiles(w.format->id)) why = why_not_in_tiles(w);
    }
    return why;
}

void run_matvec(const Step& s, const ProductCall& call) {
    CHECK(is_in_tiles(call));
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
    const ProductCall call{x, weights, out};
    if (is_in_tiles(call)) {
        if (!s.planning) run_matvec(s, call);
        return;
    }
    int64_t column = 0;
    for (int i = 0; i < weights.n_weights; i++) {
        const Linear& linear = *weights.weights[static_cast<size_t>(i)];
        const Rows part = out.cols(column, linear.weight.n_rows());
        column += linear.weight.n_rows();
        if (!is_in_tiles(linear.weight)) {
            s.ops.matmul.below("matvec", s, x, linear, part);
        } else if (!s.planning) {
            run_matvec(s, {x, linear, part});
        }
    }
}

std::string_view unfit_for_embedding(const Step&, const Tensor& table, const Tokens&, const Rows&) {
    return is_in_tiles(table) ? "" : "the table lies as the file has it";
}

void embed_rows_tiles(Step& s, const Tensor& table, Tokens token, Rows out) {
    if (s.planning) return;
    CHECK(token.data() == s.batch.tokens.data());
    const Context& c = context_of(s);
    // Not launched as dependent: all that the steps before have written is seen behind it, also by
    // what later kernels read before they wait.
    const dim3 grid(static_cast<unsigned>(out.n_rows),
                    static_cast<unsigned>((out.n_cols + kEmbedThreads - 1) / kEmbedThreads));
    if (!launches(c, "embed_rows", grid, kEmbedThreads)) return;
    embed_kernel<<<grid, kEmbedThreads, 0, c.stream>>>(
        device_plane<const uint8_t>(table), tile_geometry(table), table.n_cols(), c.mirror.tokens,
        device_rows<float>(out), out.stride);
    check_launch("embed_rows");
}

}  // namespace ridge::cuda
