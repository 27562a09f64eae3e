#include <algorithm>
#include <climits>

#include "base/checked_math.h"
#include "cuda/check.h"
#include "cuda/context.h"
#include "cuda/device/matvec_row.cuh"
#include "cuda/device/matvec_rows.cuh"
#include "cuda/matvec.h"
#include "cuda/tiles.h"

// matvec on decode rows (device/matvec_rows.cuh, of a single row of codes device/matvec_row.cuh):
// how a call is cut up, and which kernel it goes to.

namespace ridge::cuda {
namespace {

using namespace matvec;

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
    constexpr int kDepth = depth_of<Chunk, kSides>;
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
