#include <algorithm>
#include <cmath>

#include "base/checked_math.h"
#include "cuda/check.h"
#include "cuda/context.h"
#include "cuda/device/gemm_block.cuh"
#include "cuda/device/quads.cuh"
#include "cuda/gemm.h"

namespace ridge::cuda {
namespace {

// Tiles of a block: 256 tokens by 128 rows of weights in 8 warps of 64 by 64, 128 by 64 in 4 warps
// of 64 by 32, and 64 by 64 in 4 of 32 by 32.
using LargeShape = GemmShape<4, 2, 4, 4, 3, 1>;
using MediumShape = GemmShape<2, 2, 4, 2, 3, 3>;
using SmallShape = GemmShape<2, 2, 2, 2, 4, 3>;

constexpr int kTokenWarps = 16, kTokenThreads = 32 * kTokenWarps;

struct TokenArgs {
    const float* x;  // [n_rows, d_in]
    int64_t stride, d_in;
    int n_rows, n_chunks;
    const float* norm;  // [d_in], or null
    float eps;
    uint4* out;  // [parts, n_chunks, 4 mma, 32 lanes]
};

// tokens: x, or x / sqrt(mean(x^2) + eps) * norm, as parts of bf16 (device/gemm_feed.cuh)
//   A block of 16 warps for a part of 16 rows, or for some of its chunks; a warp for each chunk, of
//   which a lane makes four runs of 16 bytes. With a norm a warp first adds up the squares of one
//   row, in f64, and its chunks are read again, from a cache.
//   Bytes: 6 n_rows d_in.
template <bool kAligned>
__global__ void __launch_bounds__(kTokenThreads)
    tokens_kernel(const __grid_constant__ TokenArgs a) {
    static_assert(kTokenWarps == kTokensOfPart);
    __shared__ float scales[kTokensOfPart];
    wait_for_previous_kernel();
    let_next_kernel_start();
    const int lane = lane_of_thread(), warp = warp_of_thread();
    const int64_t first_row = int64_t{blockIdx.x} * kTokensOfPart, n_quads = (a.d_in + 3) / 4;
    if (a.norm != nullptr) {
        const int64_t row = first_row + warp;
        constexpr int kAtOnce = 8;  // loads in flight
        double sum = 0;
        for (int64_t first = lane; first < n_quads && row < a.n_rows; first += 32 * kAtOnce) {
            float4 quads[kAtOnce] = {};
#pragma unroll
            for (int i = 0; i < kAtOnce; i++) {
                const int64_t quad = first + 32 * i;
                if (quad >= n_quads) continue;
                quads[i] = load_quad<kAligned>(a.x + row * a.stride, quad, a.d_in);
            }
#pragma unroll
            for (int i = 0; i < kAtOnce; i++) {
                const double x = quads[i].x, y = quads[i].y, z = quads[i].z, w = quads[i].w;
                sum = fma(x, x, fma(y, y, fma(z, z, fma(w, w, sum))));
            }
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            scales[warp] =
                static_cast<float>(rsqrt(sum / static_cast<double>(a.d_in) + double{a.eps}));
        }
        __syncthreads();  // all rows have their scales
    }
    const int g = lane / 4, t = lane % 4;
    const int n_warps = static_cast<int>(gridDim.y) * kTokenWarps;
    for (int chunk = static_cast<int>(blockIdx.y) * kTokenWarps + warp; chunk < a.n_chunks;
         chunk += n_warps) {
        float4 quads[4][2] = {};
#pragma unroll
        for (int mma = 0; mma < 4; mma++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int64_t quad = int64_t{16} * chunk + 4 * mma + t,
                              row = first_row + g + 8 * half;
                if (row >= a.n_rows || quad >= n_quads) continue;
                quads[mma][half] = load_quad<kAligned>(a.x + row * a.stride, quad, a.d_in);
            }
        }
#pragma unroll
        for (int mma = 0; mma < 4; mma++) {
            const int64_t quad = int64_t{16} * chunk + 4 * mma + t;
            if (a.norm != nullptr && quad < n_quads) {
                const float4 w = load_quad<kAligned>(a.norm, quad, a.d_in);
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float4& v = quads[mma][half];
                    const float scale = scales[g + 8 * half];
                    v = {v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z,
                         v.w * scale * w.w};
                }
            }
            const float4 &low = quads[mma][0], &high = quads[mma][1];
            a.out[((int64_t{blockIdx.x} * a.n_chunks + chunk) * 4 + mma) * 32 + lane] =
                make_uint4(pair_of_bf16(low.x, low.y), pair_of_bf16(low.z, low.w),
                           pair_of_bf16(high.x, high.y), pair_of_bf16(high.z, high.w));
        }
    }
}

// Enqueues the rounding of a call's rows of x; where they will lie when planning, too.
Rows round_tokens(Step& s, const ProductCall& call) {
    const int64_t n_chunks = (call.x.n_cols + kTileChunk - 1) / kTileChunk;
    const int64_t n_parts = (call.x.n_rows + kTokensOfPart - 1) / kTokensOfPart;
    const Rows tokens = s.scratch(n_parts * kTokensOfPart, n_chunks * kTileChunk, DType::kBF16);
    if (s.planning) return tokens;
    const Rows& x = call.x;
    const TokenArgs a{device_rows<const float>(x),
                      x.stride,
                      x.n_cols,
                      static_cast<int>(x.n_rows),
                      static_cast<int>(n_chunks),
                      call.norm == nullptr ? nullptr : device_plane<const float>(*call.norm),
                      call.eps,
                      reinterpret_cast<uint4*>(device_rows<uint16_t>(tokens))};
    const bool aligned =
        has_aligned_quads(x, x.n_cols) && reinterpret_cast<uintptr_t>(a.norm) % 16 == 0;
    // A part's squares are added up by one block.
    const int64_t n_blocks = a.norm != nullptr ? 1 : (n_chunks + kTokenWarps - 1) / kTokenWarps;
    const dim3 grid(static_cast<unsigned>(n_parts), static_cast<unsigned>(n_blocks));
    launch_dependent(context_of(s), aligned ? tokens_kernel<true> : tokens_kernel<false>, grid,
                     kTokenThreads, 0, "tokens", a);
    return tokens;
}

int parts_of(const Tensor& weight) {
    return static_cast<int>((weight.n_rows() + kTileRows - 1) / kTileRows);
}

// Neighbours among a call's weights that are of one kind.
struct Run {
    int first = 0, n = 0;
    int64_t column = 0;  // of out, for the first one's row 0
};

template <class Shape>
int shared_bytes_of(const TileGeometry& g) {
    return GemmShared<Shape>(g).n_bytes;
}

// How long a shape would take, up to a factor: the tiles of the multiprocessor with the most, by
// their size, and by what it does in a time with as many blocks as it runs at once. `share`: of the
// large shape's, with one block, two, and three.
template <class Shape>
double cost_of(const Context& c, const ProductCall& call, const Run& run, const TileGeometry& g,
               const double (&share)[3]) {
    const int shared_bytes = shared_bytes_of<Shape>(g);
    if (shared_bytes > c.shared_bytes_a_block) return HUGE_VAL;
    int n_weight_tiles = 0;
    for (int i = run.first; i < run.first + run.n; i++) {
        n_weight_tiles += ceil_div(parts_of(call.weights.weights[static_cast<size_t>(i)]->weight),
                                   Shape::kBlockWeightParts);
    }
    constexpr int kTokens = Shape::kBlockTokenParts * kTokensOfPart;
    const int n_tiles = n_weight_tiles * ceil_div(static_cast<int>(call.x.n_rows), kTokens);
    const int n = ceil_div(n_tiles, c.n_sms);
    const int at_once =
        std::min({n, Shape::kBlocksAnSm, c.shared_bytes_an_sm / (shared_bytes + 1024)});
    constexpr int kArea = Shape::kBlockWeightParts * Shape::kBlockTokenParts;
    return n * kArea / share[std::clamp(at_once, 1, 3) - 1];
}

GemmTiles fitting_tiles(const Context& c, const ProductCall& call, const Run& run,
                        const TileGeometry& g, GemmTiles wanted) {
    const bool has_room = shared_bytes_of<LargeShape>(g) <= c.shared_bytes_a_block;
    if (wanted != GemmTiles::kFitting && (wanted != GemmTiles::kLarge || has_room)) return wanted;
    const double large = cost_of<LargeShape>(c, call, run, g, {1, 1, 1});
    const double medium = cost_of<MediumShape>(c, call, run, g, {0.65, 0.8, 0.85});
    const double small = cost_of<SmallShape>(c, call, run, g, {0.3, 0.5, 0.6});
    if (large <= medium && large <= small) return GemmTiles::kLarge;
    return medium < small ? GemmTiles::kMedium : GemmTiles::kSmall;
}

template <class Shape>
GemmArgs args_of(const ProductCall& call, const Run& run, const Rows& tokens,
                 const TileGeometry& g) {
    GemmArgs a{};
    a.geometry = g;
    a.tokens = reinterpret_cast<const uint8_t*>(device_rows<const uint16_t>(tokens));
    a.n_tokens = static_cast<int>(call.x.n_rows);
    a.n_token_tiles = ceil_div(a.n_tokens, Shape::kBlockTokenParts * kTokensOfPart);
    a.epilogue = call.epilogue;
    a.out = device_rows<float>(call.out), a.out_stride = call.out.stride;
    int64_t column = run.column;
    for (int i = run.first; i < run.first + run.n; i++) {
        const Linear& linear = *call.weights.weights[static_cast<size_t>(i)];
        a.weights[a.n_weights++] = {device_plane<const uint8_t>(linear.weight),
                                    linear.bias ? device_plane<const float>(linear.bias) : nullptr,
                                    static_cast<int>(linear.weight.n_rows()), a.n_weight_tiles,
                                    column};
        a.n_weight_tiles += ceil_div(parts_of(linear.weight), Shape::kBlockWeightParts);
        column += linear.weight.n_rows();
    }
    // A tile has half as many rows of gate and of up.
    if (a.epilogue == Epilogue::kSwiglu) {
        a.n_weight_tiles =
            ceil_div(parts_of(call.weights.weights[0]->weight), Shape::kBlockWeightParts / 2);
    }
    return a;
}

template <Codes codes, class Shape>
void launch_kernel(const Context& c, const GemmArgs& a) {
    const auto kernel = gemm_kernel<codes, Shape>;
    const int shared_bytes = shared_bytes_of<Shape>(a.geometry);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
          "gemm: shared memory");
    const int blocks_an_sm =
        std::clamp(c.shared_bytes_an_sm / (shared_bytes + 1024), 1, Shape::kBlocksAnSm);
    const int64_t n_tiles = int64_t{a.n_weight_tiles} * a.n_token_tiles;
    CHECK(n_tiles <= INT32_MAX);
    const int64_t grid = std::min<int64_t>(n_tiles, int64_t{c.n_sms} * blocks_an_sm);
    launch_dependent(c, kernel, dim3(static_cast<unsigned>(grid)), Shape::kThreads,
                     static_cast<size_t>(shared_bytes), "gemm", a);
}

template <class Shape>
void launch(const Context& c, const ProductCall& call, const Run& run, const Rows& tokens,
            const TileGeometry& g) {
    const GemmArgs a = args_of<Shape>(call, run, tokens, g);
    switch (g.kind.codes) {
        case Codes::kFour:
            return launch_kernel<Codes::kFour, Shape>(c, a);
        case Codes::kFive:
            return launch_kernel<Codes::kFive, Shape>(c, a);
        case Codes::kSix:
            return launch_kernel<Codes::kSix, Shape>(c, a);
        case Codes::kEight:
            return launch_kernel<Codes::kEight, Shape>(c, a);
        case Codes::kBF16:
            return launch_kernel<Codes::kBF16, Shape>(c, a);
        case Codes::kF16:
            return launch_kernel<Codes::kF16, Shape>(c, a);
    }
}

bool in_tiles(const Tensor& weight) {
    return weight.layout == &tiles_layout();
}

// use(row_class, first, n) for rows that are neighbours and of one class, which are all of the
// step's while it is called.
template <class Use>
void for_each_class(Step& s, Use use) {
    const std::span<const SequenceSpan> spans = s.spans;
    for (auto span = spans.begin(); span != spans.end();) {
        const int32_t first = span->first_row;
        SequenceSpan rows{0, 0, span->row_class, {}};
        for (; span != spans.end() && span->row_class == rows.row_class; span++) {
            rows.n_rows += span->n_rows;
        }
        s.spans = {&rows, 1};
        use(rows.row_class, first, rows.n_rows);
    }
    s.spans = spans;
}

void matmul_below(Step& s, const Rows& x, const LinearGroup& weights, const Rows& out) {
    s.ops.matmul.below("gemm", s, x, weights, out);
}

// Rows of prompts; each weight that has no tiles goes to the entry below alone.
void multiply_prompt(Step& s, const Rows& x, const LinearGroup& weights, const Rows& out) {
    ScratchScope scope(s.memory);  // kernels run in the stream's order
    const ProductCall call{x, weights, out};
    if (is_in_tiles(call)) return run_gemm(s, call);
    int64_t column = 0;
    for (int i = 0; i < weights.n_weights; i++) {
        const Linear& linear = *weights.weights[static_cast<size_t>(i)];
        const Rows part = out.cols(column, linear.weight.n_rows());
        column += linear.weight.n_rows();
        if (in_tiles(linear.weight)) {
            run_gemm(s, {x, linear, part});
        } else {
            matmul_below(s, x, linear, part);
        }
    }
}

}  // namespace

void run_gemm(Step& s, const ProductCall& call, GemmTiles tiles) {
    CHECK(is_in_tiles(call) && call.out.n_rows == call.x.n_rows && call.x.n_rows <= INT32_MAX);
    const Rows tokens = round_tokens(s, call);
    if (s.planning) return;
    const Context& c = context_of(s);
    const auto weight = [&](int i) -> const Tensor& {
        return call.weights.weights[static_cast<size_t>(i)]->weight;
    };
    Run run;
    while (run.first < call.weights.n_weights) {
        int64_t n_columns = 0;
        for (run.n = 0; run.first + run.n < call.weights.n_weights; run.n++) {
            const Tensor& w = weight(run.first + run.n);
            CHECK(w.n_cols() == call.x.n_cols);
            if (!have_one_kind(w, weight(run.first))) break;
            n_columns += w.n_rows();
        }
        const TileGeometry g = tile_geometry(weight(run.first));
        switch (fitting_tiles(c, call, run, g, tiles)) {
            case GemmTiles::kLarge:
                launch<LargeShape>(c, call, run, tokens, g);
                break;
            case GemmTiles::kMedium:
                launch<MediumShape>(c, call, run, tokens, g);
                break;
            default:
                launch<SmallShape>(c, call, run, tokens, g);
        }
        run.first += run.n, run.column += n_columns;
    }
}

void matmul_by_class(Step& s, Rows x, LinearGroup weights, Rows out) {
    CHECK(out.n_cols == weights.d_out() && out.n_rows == x.n_rows);
    for_each_class(s, [&](RowClass row_class, int64_t first, int64_t n) {
        const Rows some = x.slice(first, n), to = out.slice(first, n);
        if (row_class == RowClass::kPrompt) {
            multiply_prompt(s, some, weights, to);
        } else {
            matmul_below(s, some, weights, to);
        }
    });
}

// A stage whose rows of prompts are one call; of decode rows, and where that is not possible, by
// what is below: below(first, n). When planning for prompts, decode rows may come among them, too.
template <class Below>
static void run_stage(Step& s, const ProductCall& call, Below below) {
    if (!is_in_tiles(call)) return below(0, call.x.n_rows);
    for_each_class(s, [&](RowClass row_class, int64_t first, int64_t n) {
        ScratchScope scope(s.memory);  // kernels run in the stream's order
        if (row_class == RowClass::kDecode) return below(first, n);
        if (s.planning) {
            ScratchScope scope_of_decode(s.memory);
            below(first, n);
        }
        ProductCall some = call;
        some.x = call.x.slice(first, n), some.out = call.out.slice(first, n);
        run_gemm(s, some);
    });
}

void attn_out_of_prompts(Step& s, const Layer& layer, Rows a, Rows x) {
    ProductCall call{a, layer.o, x};
    call.epilogue = Epilogue::kAdd;
    run_stage(s, call, [&](int64_t first, int64_t n) {
        s.stages.attn_out.below("gemm", s, layer, a.slice(first, n), x.slice(first, n));
    });
}

void ffn_in_of_prompts(Step& s, const Layer& layer, Rows x, Rows out) {
    ProductCall call{x, {layer.gate, layer.up}, out};
    call.norm = &layer.ffn_norm, call.eps = s.config.norm_eps, call.epilogue = Epilogue::kSwiglu;
    run_stage(s, call, [&](int64_t first, int64_t n) {
        s.stages.ffn_in.below("gemm", s, layer, x.slice(first, n), out.slice(first, n));
    });
}

void ffn_out_of_prompts(Step& s, const Layer& layer, Rows f, Rows x) {
    ProductCall call{f, layer.down, x};
    call.epilogue = Epilogue::kAdd;
    run_stage(s, call, [&](int64_t first, int64_t n) {
        s.stages.ffn_out.below("gemm", s, layer, f.slice(first, n), x.slice(first, n));
    });
}

}  // namespace ridge::cuda
