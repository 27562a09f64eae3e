#include <algorithm>

#include "cuda/check.h"
#include "cuda/context.h"
#include "cuda/device/async.cuh"
#include "cuda/device/tile_stream.cuh"
#include "cuda/matvec.h"
#include "cuda/tiles.h"

// matvec: p[i, j] = sum_k n(x)[i, k] w[j, k] + bias[j], for up to eight rows i
//   n(x) = x, or x / sqrt(mean(x^2) + eps) * norm; what becomes of p: Epilogue
//
//   x [n_rows, d_in] f32, n(x) without its divisor rounded to bf16; w in tiles of 16 rows; sums
//   f32; out f32.
//
// Tensor units multiply 16 rows of w by 16 elements with 8 columns, which are rows of x: in place
// of those that are not there is the last, so that one row and eight take the same order of sums.
// Blocks take units in turns: a tile, or two side by side, of gate and of up, or neighbours where
// there are many. In a block each warp takes every kWarps-th chunk of 64 elements along k. It loads
// them to registers, kDepth ahead of those that it multiplies, on from one unit to the next: the
// first before the kernel before has ended. The warps' sums are added in their order at a unit's
// end, by warps in turns.
//
// Bytes: the weights once, x once a block. Flops: 2 n_rows d_in d_out.

namespace ridge::cuda {
namespace {

constexpr int kColumns = 8;
constexpr int kPartElements = 256;  // of x that a warp fetches at a time: a lane eight

// One weight of a call, and where its products go.
struct TileWeight {
    const uint8_t* data;
    const float* bias;  // or null
    int first_unit, n_tiles;
    int n_rows;
    int64_t column;  // of out, for row 0
};

struct MatvecArgs {
    TileWeight weights[3];
    int n_weights, n_units;
    TileGeometry geometry;  // the same for all
    const float* x;         // [n_rows, d_in]
    int64_t x_stride, d_in;
    int n_rows;         // 1 to 8
    const float* norm;  // [d_in]: x is normed with it first; or null
    float eps;
    Epilogue epilogue;
    float* out;
    int64_t out_stride;
};

// What two tiles of a unit are. kSides: how many it has.
//   1: tile u of the weights, one behind the other; 2: neighbours of one weight, or with kSwiglu
//   the same tile of both.
__device__ inline const TileWeight& weight_of(const MatvecArgs& a, int unit) {
    int w = 0;
    while (w + 1 < a.n_weights && unit >= a.weights[w + 1].first_unit) w++;
    return a.weights[w];
}

// Elements of x lie in shared memory so that a lane's of the four mma of a chunk are side by side:
// quad q, elements 4 q to 4 q + 3, is number
__device__ inline int quad_place(int q) {
    return q / 16 * 16 + q % 4 * 4 + q / 4 % 4;
}

// Bytes from one row of x to the next in shared memory: rows start 32 bytes apart modulo the banks.
__host__ __device__ inline int64_t x_pitch_bytes(int64_t n_chunks) {
    return (n_chunks * 128 + 255) / 256 * 256 + 32;
}

// Shared memory of a block.
struct BlockShape {
    int n_chunks, n_rows, n_sides, n_warps;
    int scale_block;  // elements that share a scale; 0: none do
    bool normed;
};
struct SharedPlan {
    // Where: x [n_rows][pitch] at 0; starts, of the blocks that share a scale, [blocks][4] float4;
    // squares of parts of x [n_rows][n_parts]; sums of warps
    // [2][n_warps][n_sides][kTileRows][n_kept].
    int64_t starts, squares, sums, n_bytes;
    int n_parts;
    int n_kept;  // columns of the sums: n_rows, made even
};
__host__ __device__ inline SharedPlan shared_plan(const BlockShape& b) {
    SharedPlan plan;
    auto behind = [](int64_t at, int64_t n_bytes) { return (at + n_bytes + 15) / 16 * 16; };
    plan.n_parts = (b.n_chunks * kTileChunk + kPartElements - 1) / kPartElements;
    plan.n_kept = (b.n_rows + 1) / 2 * 2;
    const int blocks_of_chunk = b.scale_block == 0 ? 0 : kTileChunk / b.scale_block;
    plan.starts = behind(0, b.n_rows * x_pitch_bytes(b.n_chunks));
    plan.squares = behind(plan.starts, int64_t{b.n_chunks} * blocks_of_chunk * 64);
    plan.sums = behind(plan.squares, b.normed ? int64_t{b.n_rows} * plan.n_parts * 4 : 0);
    plan.n_bytes =
        behind(plan.sums, int64_t{2} * b.n_sides * b.n_warps * kTileRows * plan.n_kept * 4);
    return plan;
}

// Elements k to k + 7 of a row; those past its end are 0.
struct Eight {
    float4 low, high;

    __device__ Eight() : low(make_float4(0, 0, 0, 0)), high(low) {}
    __device__ void load(const float* row, int k, int d_in, bool aligned) {
        if (aligned && k + 8 <= d_in) {
            low = *reinterpret_cast<const float4*>(row + k);
            high = *reinterpret_cast<const float4*>(row + k + 4);
        } else {
            auto at = [&](int i) { return k + i < d_in ? row[k + i] : 0.0f; };
            low = make_float4(at(0), at(1), at(2), at(3));
            high = make_float4(at(4), at(5), at(6), at(7));
        }
    }
};

// Brings the rows of x to shared memory as bf16, zeros behind the last column; where x is normed,
// times `norm`, and the squares of each part; and what sums over each `block` elements begin with:
// -taken times that of x. Warps take parts of 256 elements in turns, lanes eight neighbours each.
// Starts of rows that are not there are left as they are, and end in sums that nobody reads.
template <int block, int kWarps>
class XLoader {
  public:
    __device__ XLoader(const MatvecArgs& a, const SharedPlan& plan, float taken, uint8_t* shared,
                       int warp, int lane)
        : a_(a),
          plan_(plan),
          shared_(shared),
          taken_(taken),
          lane_(lane),
          d_in_(static_cast<int>(a.d_in)),
          n_elements_(a.geometry.n_chunks * kTileChunk),
          aligned_(a.x_stride % 4 == 0 && reinterpret_cast<uintptr_t>(a.x) % 16 == 0),
          part_(warp) {
        open();
    }
    // What the kernel before has no part in: the first weights of the norm.
    __device__ void begin() {
        if (a_.norm != nullptr) load_norms();
    }
    __device__ void run() {
        for (bool first = true; begun_[0].row < a_.n_rows; first = false) {
            Eight x[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; i++) {
                const Piece& piece = begun_[i];
                if (piece.row < a_.n_rows && piece.k < n_elements_) {
                    x[i].load(a_.x + piece.row * a_.x_stride, piece.k, d_in_, aligned_);
                }
            }
            if (!first && a_.norm != nullptr) load_norms();
#pragma unroll
            for (int i = 0; i < kAtOnce; i++) {
                if (begun_[i].row >= a_.n_rows) return;  // of all lanes
                place(begun_[i], x[i], norms_[i]);
            }
            open();
        }
    }

  private:
    static constexpr int kAtOnce = 2;  // whose loads are in flight
    struct Piece {
        int row, part, k;
    };

    __device__ void open() {
#pragma unroll
        for (int i = 0; i < kAtOnce; i++) {
            while (part_ >= plan_.n_parts) part_ -= plan_.n_parts, row_++;
            begun_[i] = {row_, part_, part_ * kPartElements + 8 * lane_};
            part_ += kWarps;
        }
    }
    __device__ void load_norms() {
#pragma unroll
        for (int i = 0; i < kAtOnce; i++) {
            if (begun_[i].row < a_.n_rows && begun_[i].k < n_elements_) {
                norms_[i].load(a_.norm, begun_[i].k, d_in_, true);
            }
        }
    }
    __device__ void place(const Piece& piece, Eight x, const Eight& norm) const {
        const bool is_there = piece.k < n_elements_;
        if (a_.norm != nullptr) {
            float square = x.low.x * x.low.x;
            square = fmaf(x.low.y, x.low.y, square), square = fmaf(x.low.z, x.low.z, square);
            square = fmaf(x.low.w, x.low.w, square), square = fmaf(x.high.x, x.high.x, square);
            square = fmaf(x.high.y, x.high.y, square), square = fmaf(x.high.z, x.high.z, square);
            square = fmaf(x.high.w, x.high.w, square);
            for (int l = 16; l > 0; l /= 2) square += __shfl_xor_sync(0xffffffffu, square, l);
            if (lane_ == 0) {
                reinterpret_cast<float*>(
                    shared_ + plan_.squares)[piece.row * plan_.n_parts + piece.part] = square;
            }
            x.low = make_float4(x.low.x * norm.low.x, x.low.y * norm.low.y, x.low.z * norm.low.z,
                                x.low.w * norm.low.w);
            x.high = make_float4(x.high.x * norm.high.x, x.high.y * norm.high.y,
                                 x.high.z * norm.high.z, x.high.w * norm.high.w);
        }
        const __nv_bfloat162 pairs[4] = {
            __floats2bfloat162_rn(x.low.x, x.low.y), __floats2bfloat162_rn(x.low.z, x.low.w),
            __floats2bfloat162_rn(x.high.x, x.high.y), __floats2bfloat162_rn(x.high.z, x.high.w)};
        if (is_there) {
            uint32_t words[4];
            memcpy(words, pairs, sizeof words);
            auto* to =
                reinterpret_cast<uint2*>(shared_ + piece.row * x_pitch_bytes(a_.geometry.n_chunks));
            to[quad_place(piece.k / 4)] = make_uint2(words[0], words[1]);
            to[quad_place(piece.k / 4 + 1)] = make_uint2(words[2], words[3]);
        }
        if constexpr (block > 0) {
            float sum = 0;
#pragma unroll
            for (const __nv_bfloat162& pair : pairs) {
                const float2 two = __bfloat1622float2(pair);
                sum += two.x + two.y;
            }
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            if constexpr (block == 32) sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            constexpr int kLanes = block / 8;
            if (is_there && lane_ % kLanes < 2) {  // both copies
                auto* starts = reinterpret_cast<float*>(shared_ + plan_.starts);
                starts[(piece.k / block * 4 + piece.row / 2) * 4 + lane_ % kLanes * 2 +
                       piece.row % 2] = -taken_ * sum;
            }
        }
    }

    const MatvecArgs& a_;
    const SharedPlan& plan_;
    uint8_t* const shared_;
    const float taken_;
    const int lane_, d_in_, n_elements_;
    const bool aligned_;
    int row_ = 0, part_;  // what is opened next
    Piece begun_[kAtOnce];
    Eight norms_[kAtOnce];
};

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
    // Chunk i of the group that is loaded, of all sides.
    __device__ bool has(int i) const { return base_ + i * kWarps < n_chunks_; }
    __device__ void load(Chunk (&to)[kSides], int i) const {
        to[0].load(from_, i * (kWarps / kSourceStep));
        if constexpr (kSides == 2) to[1].load(from_.at(second_), i * (kWarps / kSourceStep));
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
        const int tile = (unit_ - weight.first_unit) * (is_pair() ? 2 : 1);
        part_ = weight.data + int64_t{tile} * a_.geometry.part_bytes;
        if constexpr (kSides == 2) {
            // A last tile without a neighbour is taken twice.
            second_ = !is_pair()                  ? a_.weights[1].data - a_.weights[0].data
                      : tile + 1 < weight.n_tiles ? a_.geometry.part_bytes
                                                  : 0;
        }
    }
    __device__ bool is_pair() const { return kSides == 2 && a_.epilogue != Epilogue::kSwiglu; }

    const MatvecArgs& a_;
    const int n_chunks_, first_;
    int base_, unit_;
    const uint8_t* part_ = nullptr;
    int64_t second_ = 0;
    ChunkSource from_{};
};

// A product of a unit, of a row of its tiles and a column, and the thread that stores it.
template <int kSides>
struct Product {
    const TileWeight& weight;
    int j, column;  // row of the weight, of x

    // number: row + n_rows_of(a) * column
    __device__ Product(const MatvecArgs& a, int unit, int number)
        : weight(weight_of(a, unit)),
          j((unit - weight.first_unit) * rows_of_unit(a) + number % rows_of_unit(a)),
          column(number / rows_of_unit(a)) {}
    // Products of a unit for each column.
    __device__ static int rows_of_unit(const MatvecArgs& a) {
        return kSides == 2 && a.epilogue != Epilogue::kSwiglu ? 2 * kTileRows : kTileRows;
    }

    __device__ bool is_there() const { return j < weight.n_rows; }
    __device__ float* place(const MatvecArgs& a) const {
        return a.out + column * a.out_stride + weight.column + j;
    }
    // before: what is added to. p: the product; with kSwiglu gate's, and up's.
    __device__ void store(const MatvecArgs& a, float before, float p, float up) const {
        if (weight.bias != nullptr) p += weight.bias[j];
        switch (a.epilogue) {
            case Epilogue::kStore:
                *place(a) = p;
                break;
            case Epilogue::kAdd:
                *place(a) = before + p;
                break;
            case Epilogue::kSwiglu:
                if (a.weights[1].bias != nullptr) up += a.weights[1].bias[j];
                *place(a) = p / (1 + __expf(-p)) * up;
                break;
        }
    }
};

template <class Chunk, int kWarps, int kSides, int kDepth, int kBlocksAnSm>
__global__ void __launch_bounds__(32 * kWarps, kBlocksAnSm)
    matvec_kernel(const __grid_constant__ MatvecArgs a) {
    constexpr int kStartsOfChunk =
        Chunk::kBlock == 0 ? 0 : 4 * kTileChunk / std::max(Chunk::kBlock, 1);
    using Product = Product<kSides>;
    extern __shared__ __align__(16) uint8_t shared[];
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int g = lane / 4, t = lane % 4, n_chunks = a.geometry.n_chunks;

    // Weights are nobody's product: they come while the kernel before runs.
    Feed<Chunk, kWarps, kSides, kDepth> feed(a, warp, lane);
    Chunk ring[kDepth][kSides];
#pragma unroll
    for (int i = 0; i < kDepth; i++) {
        if (feed.has(i)) feed.load(ring[i], i);
    }
    feed.next_group();

    const SharedPlan plan =
        shared_plan({n_chunks, a.n_rows, kSides, kWarps, Chunk::kBlock, a.norm != nullptr});
    const auto taken = static_cast<float>(Chunk::kBias + a.geometry.kind.offset);
    XLoader<Chunk::kBlock, kWarps> x_loader(a, plan, taken, shared, warp, lane);
    x_loader.begin();
    wait_for_previous_kernel();  // x is its product
    let_next_kernel_start();
    x_loader.run();
    __syncthreads();  // x and what belongs to it is complete before it is read

    // Of column g, the sixteen elements of every chunk that the lane multiplies; of a column
    // without a row, whose sums nobody reads, those of the last.
    const auto* x_lane = reinterpret_cast<const uint4*>(shared + std::min(g, a.n_rows - 1) *
                                                                     x_pitch_bytes(n_chunks)) +
                         2 * t;
    const auto* starts = reinterpret_cast<const float4*>(shared + plan.starts);
    const auto* squares = reinterpret_cast<const float*>(shared + plan.squares);
    auto* sums = reinterpret_cast<float*>(shared + plan.sums);
    const float per_start = -1 / taken;
    // Sums of a side, of a warp, of all.
    const int side_floats = kTileRows * plan.n_kept, warp_floats = kSides * side_floats,
              unit_floats = kWarps * warp_floats;
    const int n_products = Product::rows_of_unit(a) * a.n_rows;
    const int n_storing = (n_products + 31) / 32;  // warps
    int parity = 0, storing = 0;                   // the first warp that stores
    for (int unit = static_cast<int>(blockIdx.x); unit < a.n_units;
         unit += static_cast<int>(gridDim.x)) {
        const int number = (warp - storing + (warp < storing ? kWarps : 0)) * 32 + lane;
        float before = 0;  // asked for early, as it takes its time
        if (a.epilogue == Epilogue::kAdd && number < n_products) {
            const Product product(a, unit, number);
            if (product.is_there()) before = *product.place(a);
        }
        float total[kSides][4] = {};
        auto multiply = [&](int i, int chunk) {
            const uint4 x[2] = {x_lane[8 * chunk], x_lane[8 * chunk + 1]};
#pragma unroll
            for (int side = 0; side < kSides; side++) {
                ring[i][side].multiply(x, starts + chunk * kStartsOfChunk, per_start, lane,
                                       total[side]);
            }
        };
        for (int base = warp; base < n_chunks; base += kDepth * kWarps) {
            if (base + (kDepth - 1) * kWarps < n_chunks && feed.has(kDepth - 1)) {
#pragma unroll
                for (int i = 0; i < kDepth; i++) {
                    multiply(i, base + i * kWarps);
                    feed.load(ring[i], i);
                }
            } else {
#pragma unroll
                for (int i = 0; i < kDepth; i++) {
                    if (base + i * kWarps < n_chunks) multiply(i, base + i * kWarps);
                    if (feed.has(i)) feed.load(ring[i], i);
                }
            }
            feed.next_group();
        }
        float* of_unit = sums + parity * unit_floats;
        if (2 * t < plan.n_kept) {
            float* mine = of_unit + warp * warp_floats + g * plan.n_kept + 2 * t;
#pragma unroll
            for (int side = 0; side < kSides; side++, mine += side_floats) {
                *reinterpret_cast<float2*>(mine) = make_float2(total[side][0], total[side][1]);
                *reinterpret_cast<float2*>(mine + 8 * plan.n_kept) =
                    make_float2(total[side][2], total[side][3]);
            }
        }
        // Orders the warps' sums before they are added; those of the unit after next, which use the
        // same room, come behind the next unit's barrier.
        __syncthreads();
        parity ^= 1;
        storing = storing + n_storing < kWarps ? storing + n_storing : 0;
        if (number >= n_products) continue;
        const Product product(a, unit, number);
        const bool is_swiglu = a.epilogue == Epilogue::kSwiglu;
        // Rows of a pair lie one behind the other as the sides do.
        const int row = number % Product::rows_of_unit(a);
        const float* of_warp = of_unit + row * plan.n_kept + product.column;
        float p = 0, up = 0, square = 0;
#pragma unroll
        for (int w = 0; w < kWarps; w++, of_warp += warp_floats) {
            p += of_warp[0];
            if (kSides == 2 && is_swiglu) up += of_warp[side_floats];
        }
        if (a.norm != nullptr) {
            const float* of_row = squares + product.column * plan.n_parts;
            for (int part = 0; part < plan.n_parts; part++) square += of_row[part];
            const float inverse = rsqrtf(square / static_cast<float>(a.d_in) + a.eps);
            p *= inverse, up *= inverse;
        }
        if (product.is_there()) product.store(a, before, p, up);
    }
}

// How a call is cut up. Warps decide the order of sums: they follow from the weights' shape alone.
struct MatvecPlan {
    int n_warps = 8;
    bool pairs = false;  // units of neighbours
};

int ceil_div(int a, int b) {
    return (a + b - 1) / b;
}

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
    a.n_units = 0;
    if (a.epilogue == Epilogue::kSwiglu) {
        a.n_units = a.weights[0].n_tiles, a.weights[1].first_unit = a.n_units;
        return;
    }
    for (int i = 0; i < a.n_weights; i++) {
        a.weights[i].first_unit = a.n_units;
        a.n_units += ceil_div(a.weights[i].n_tiles, pairs ? 2 : 1);
    }
}

template <class Chunk, int kWarps, int kSides>
void launch_shape(const MatvecArgs& a, const Context& c) {
    // As many chunks on their way as registers have room for, and half of a multiprocessor left
    // for the kernel behind.
    constexpr int kDepth = Chunk::kRegisters * kSides <= 16 ? 4 : 2;
    constexpr int kBlocksAnSm = 16 / kWarps, kBlocksAtOnce = kBlocksAnSm;
    const auto kernel = matvec_kernel<Chunk, kWarps, kSides, kDepth, kBlocksAnSm>;
    const SharedPlan plan = shared_plan(
        {a.geometry.n_chunks, a.n_rows, kSides, kWarps, Chunk::kBlock, a.norm != nullptr});
    const auto shared_bytes = static_cast<int>(plan.n_bytes);
    if (shared_bytes > 48 << 10) {
        check(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
            "matvec: shared memory");
    }
    const int blocks_an_sm =
        std::clamp(c.shared_bytes_an_sm / (shared_bytes + 1024), 1, kBlocksAtOnce);
    // So many that all have the same number of units, or one less.
    const int n_turns = ceil_div(a.n_units, c.n_sms * blocks_an_sm);
    launch_dependent(c, kernel, dim3(static_cast<unsigned>(ceil_div(a.n_units, n_turns))),
                     32 * kWarps, static_cast<size_t>(shared_bytes), "matvec", a);
}

template <Codes codes, Scales scales, class T = void>
void launch(MatvecArgs a, const Context& c) {
    using Chunk = StreamedChunk<codes, scales, T>;
    int n_tiles = 0;
    for (int i = 0; i < a.n_weights; i++) n_tiles += a.weights[i].n_tiles;
    const MatvecPlan cut = plan_matvec(n_tiles, a.geometry.n_chunks, a.epilogue);
    number_units(a, cut.pairs);
    if (cut.pairs || a.epilogue == Epilogue::kSwiglu) {
        launch_shape<Chunk, 8, 2>(a, c);
    } else if (cut.n_warps == 8) {
        launch_shape<Chunk, 8, 1>(a, c);
    } else {
        launch_shape<Chunk, 16, 1>(a, c);
    }
}

void launch_of_kind(const MatvecArgs& a, const Context& c) {
    const TileGeometry& g = a.geometry;
    switch (g.kind.codes) {
        case Codes::kBF16:
            return launch<Codes::kBF16, Scales::kNone>(a, c);
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
                                    linear.bias ? device_plane<const float>(linear.bias) : nullptr,
                                    0,
                                    ceil_div(static_cast<int>(w.n_rows()), kTileRows),
                                    static_cast<int>(w.n_rows()),
                                    column};
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
        auto n_bytes = [&] {
            return shared_plan(
                       {g.n_chunks, n, 2, 16, scale_block_of(g.kind.scales), call.norm != nullptr})
                .n_bytes;
        };
        while (n > 1 && n_bytes() > c.shared_bytes_a_block) n--;
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
