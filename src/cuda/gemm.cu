#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "base/checked_math.h"
#include "cuda/check.h"
#include "cuda/context.h"
#include "cuda/device/gemm_block.cuh"
#include "cuda/device/gemm_tokens.cuh"
#include "cuda/device/gemm_unpack.cuh"
#include "cuda/gemm.h"
#include "model/tuning.h"

namespace ridge::cuda {
namespace {

// Tiles of a block: 256 tokens by 128 rows of weights in 8 warps of 64 by 64, 128 by 64 in 4 warps
// of 64 by 32, and 64 by 64 in 4 of 32 by 32.
using LargeShape = GemmShape<4, 2, 4, 4, 3, 1>;
using MediumShape = GemmShape<2, 2, 4, 2, 3, 3>;
using SmallShape = GemmShape<2, 2, 2, 2, 4, 3>;

// A call's rows of x as the gemm reads them.
struct RoundedRows {
    Rows operands;  // [parts * 16, n_chunks * 64] f16
    Rows inverses;  // [1, parts * 16] f32
};

// Enqueues the rounding of a call's rows of x; where they will lie when planning, too.
RoundedRows round_tokens(Step& s, const ProductCall& call) {
    const int64_t n_chunks = (call.x.n_cols + kTileChunk - 1) / kTileChunk;
    const int64_t n_parts = (call.x.n_rows + kTokensOfPart - 1) / kTokensOfPart;
    const RoundedRows tokens{
        s.scratch(n_parts * kTokensOfPart, n_chunks * kTileChunk, DType::kF16),
        s.scratch(1, n_parts * kTokensOfPart),
    };
    if (s.planning) return tokens;
    const Rows& x = call.x;
    const TokenArgs a{device_rows<const float>(x),
                      x.stride,
                      x.n_cols,
                      static_cast<int>(x.n_rows),
                      static_cast<int>(n_chunks),
                      call.norm == nullptr ? nullptr : device_plane<const float>(*call.norm),
                      call.eps,
                      reinterpret_cast<uint4*>(device_rows<uint16_t>(tokens.operands)),
                      device_rows<float>(tokens.inverses)};
    const bool aligned =
        has_aligned_quads(x, x.n_cols) && reinterpret_cast<uintptr_t>(a.norm) % 16 == 0;
    constexpr int kOfWarp = 4 * kHeldQuads * 32;
    const int64_t n_warps = (n_chunks * kTileChunk + kOfWarp - 1) / kOfWarp;
    const auto n_threads =
        static_cast<unsigned>(std::min<int64_t>(32 * n_warps, kMostTokenThreads));
    launch_dependent(context_of(s), aligned ? tokens_kernel<true> : tokens_kernel<false>,
                     dim3(static_cast<unsigned>(n_parts * kTokensOfPart / 2)), n_threads, 0,
                     "tokens", a);
    return tokens;
}

int parts_of(const Tensor& weight) {
    return static_cast<int>((weight.n_rows() + kTileRows - 1) / kTileRows);
}

// Neighbours among a call's weights that are of one kind.
struct Run {
    int first = 0, n = 0;
    int64_t column = 0;  // of out, for the first one's row 0
    int n_parts = 0;     // of all
    FormatId format{};
    TileGeometry geometry;
};

template <class Use>
void for_each_run(const ProductCall& call, Use use) {
    Run run;
    while (run.first < call.weights.n_weights) {
        const auto weight = [&](int i) -> const Tensor& {
            return call.weights.weights[static_cast<size_t>(run.first + i)]->weight;
        };
        int64_t n_columns = 0;
        run.n_parts = 0;
        for (run.n = 0; run.first + run.n < call.weights.n_weights; run.n++) {
            const Tensor& w = weight(run.n);
            CHECK(w.n_cols() == call.x.n_cols);
            if (!have_one_kind(w, weight(0))) break;
            n_columns += w.n_rows(), run.n_parts += parts_of(w);
        }
        run.format = weight(0).format->id, run.geometry = tile_geometry(weight(0));
        use(run);
        run.first += run.n, run.column += n_columns;
    }
}

// What a run's weights are when they have been unpacked.
TileGeometry unpacked_geometry(int n_chunks) {
    TileGeometry g;
    g.kind = {Codes::kF16, Scales::kNone, 0};
    g.n_chunks = n_chunks;
    g.high = g.scales = g.supers = g.powers = n_chunks * kOperandBytes;
    g.part_bytes = g.powers + kPowerBytes;
    return g;
}

// Up to so many rows weights are always unpacked where they are multiplied; and where they would
// take more memory than that.
constexpr int64_t kFewRows = 64, kMostUnpackedBytes = int64_t{384} << 20;

int64_t unpacked_bytes(const Run& run) {
    return int64_t{run.n_parts} * unpacked_geometry(run.geometry.n_chunks).part_bytes;
}
bool may_unpack_first(const ProductCall& call, const Run& run, GemmTiles wanted) {
    if (run.geometry.kind.codes == Codes::kF16) return false;
    if (wanted != GemmTiles::kFitting) return wanted == GemmTiles::kLarge;
    return call.x.n_rows > kFewRows && unpacked_bytes(run) <= kMostUnpackedBytes;
}

// use(of) for formats' kinds; decltype(of)::kKind is the kind, which kernels are made for.
template <TileKind kind>
struct OfKind {
    static constexpr TileKind kKind = kind;
};
template <class Use>
void use_kind(FormatId format, Use use) {
    switch (format) {
        case FormatId::kF32:
        case FormatId::kF16:
        case FormatId::kBF16:
            return use(OfKind<tile_kind(FormatId::kF16)>{});
        case FormatId::kQ4_0:
            return use(OfKind<tile_kind(FormatId::kQ4_0)>{});
        case FormatId::kQ4_1:
            return use(OfKind<tile_kind(FormatId::kQ4_1)>{});
        case FormatId::kQ5_0:
            return use(OfKind<tile_kind(FormatId::kQ5_0)>{});
        case FormatId::kQ5_1:
            return use(OfKind<tile_kind(FormatId::kQ5_1)>{});
        case FormatId::kQ8_0:
            return use(OfKind<tile_kind(FormatId::kQ8_0)>{});
        case FormatId::kQ2_K:
            return use(OfKind<tile_kind(FormatId::kQ2_K)>{});
        case FormatId::kQ3_K:
            return use(OfKind<tile_kind(FormatId::kQ3_K)>{});
        case FormatId::kQ4_K:
            return use(OfKind<tile_kind(FormatId::kQ4_K)>{});
        case FormatId::kQ5_K:
            return use(OfKind<tile_kind(FormatId::kQ5_K)>{});
        case FormatId::kQ6_K:
            return use(OfKind<tile_kind(FormatId::kQ6_K)>{});
        case FormatId::kIQ4_NL:
            return use(OfKind<tile_kind(FormatId::kIQ4_NL)>{});
        case FormatId::kIQ4_XS:
            return use(OfKind<tile_kind(FormatId::kIQ4_XS)>{});
        case FormatId::kAffine4:
            return use(OfKind<tile_kind(FormatId::kAffine4)>{});
        case FormatId::kAffine8:
            return use(OfKind<tile_kind(FormatId::kAffine8)>{});
    }
}

template <class Shape>
int shared_bytes_of(const TileGeometry& g) {
    return GemmShared<Shape>(g.kind, g.group_scale_bytes).n_bytes;
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

// How a run is multiplied: codes are unpacked first, by a kernel of its own, or by each block that
// multiplies them.
struct Way {
    GemmTiles tiles = GemmTiles::kSmall;
    bool unpacks_first = false;
};

bool fits(const Context& c, GemmTiles tiles, const TileGeometry& g) {
    const int n_bytes = tiles == GemmTiles::kLarge    ? shared_bytes_of<LargeShape>(g)
                        : tiles == GemmTiles::kMedium ? shared_bytes_of<MediumShape>(g)
                                                      : shared_bytes_of<SmallShape>(g);
    return n_bytes <= c.shared_bytes_a_block;
}

// What was measured to be the fastest, where that is possible. Weights that are operands as they
// lie are never unpacked.
std::optional<Way> chosen_way(const Context& c, const ProductCall& call, const Run& run,
                              GemmWay chosen) {
    constexpr GemmTiles kTiles[] = {GemmTiles::kFitting, GemmTiles::kLarge,  GemmTiles::kMedium,
                                    GemmTiles::kSmall,   GemmTiles::kMedium, GemmTiles::kSmall};
    if (chosen == GemmWay::kReckoned) return {};
    const bool are_codes = run.geometry.kind.codes != Codes::kF16;
    const bool unpacks_first = are_codes && chosen <= GemmWay::kSmall;
    const GemmTiles tiles = kTiles[static_cast<int>(chosen)];
    if (unpacks_first && !may_unpack_first(call, run, GemmTiles::kFitting)) return {};
    const TileGeometry operands = unpacked_geometry(run.geometry.n_chunks);
    if (!fits(c, tiles, unpacks_first ? operands : run.geometry)) return {};
    return Way{tiles, unpacks_first};
}

// The large shape is for operands as they lie.
Way fitting_way(const Context& c, const ProductCall& call, const Run& run, GemmTiles wanted) {
    const bool may_unpack = may_unpack_first(call, run, wanted);
    const bool are_codes = run.geometry.kind.codes != Codes::kF16;
    const TileGeometry operands = unpacked_geometry(run.geometry.n_chunks);
    if (wanted == GemmTiles::kMedium || wanted == GemmTiles::kSmall) return {wanted, false};
    if (wanted == GemmTiles::kLarge && fits(c, wanted, operands)) return {wanted, may_unpack};
    Way best;
    double least = HUGE_VAL;
    const auto consider = [&](const Way& way, double cost) {
        if (cost < least) best = way, least = cost;
    };
    constexpr double kMediumShare[] = {0.65, 0.8, 0.85}, kSmallShare[] = {0.3, 0.5, 0.6};
    if (!are_codes || may_unpack) {
        // What is unpacked is as many bytes as the memory moves while a multiprocessor multiplies
        // so many parts.
        constexpr double kPartUnpacked = 6;
        const double before = are_codes ? kPartUnpacked * run.n_parts / c.n_sms : 0;
        const auto with = [&](GemmTiles tiles, double cost) {
            consider({tiles, are_codes}, before + cost);
        };
        with(GemmTiles::kLarge, cost_of<LargeShape>(c, call, run, operands, {1, 1, 1}));
        with(GemmTiles::kMedium, cost_of<MediumShape>(c, call, run, operands, kMediumShare));
        with(GemmTiles::kSmall, cost_of<SmallShape>(c, call, run, operands, kSmallShare));
    }
    if (are_codes) {
        constexpr double kUnpackingShare = 0.7;  // of the speed where nothing is unpacked
        const TileGeometry& g = run.geometry;
        const double medium = cost_of<MediumShape>(c, call, run, g, kMediumShare),
                     small = cost_of<SmallShape>(c, call, run, g, kSmallShare);
        consider({GemmTiles::kMedium, false}, medium / kUnpackingShare);
        consider({GemmTiles::kSmall, false}, small / kUnpackingShare);
    }
    return best;
}

// Enqueues the unpacking of a run's weights.
void unpack(const Context& c, const ProductCall& call, const Run& run, const Rows& to) {
    UnpackArgs a{};
    a.geometry = run.geometry;
    a.part_bytes = unpacked_geometry(run.geometry.n_chunks).part_bytes;
    a.out = reinterpret_cast<uint8_t*>(device_rows<uint16_t>(to));
    int n_parts = 0;
    for (int i = 0; i < 3; i++) {
        a.first_part[i] = i < run.n ? n_parts : INT32_MAX;
        if (i >= run.n) continue;
        const Tensor& weight = call.weights.weights[static_cast<size_t>(run.first + i)]->weight;
        a.weights[i] = device_plane<const uint8_t>(weight);
        n_parts += parts_of(weight);
    }
    const dim3 grid(
        static_cast<unsigned>(n_parts),
        static_cast<unsigned>(ceil_div(run.geometry.n_chunks, kUnpackWarps * kUnpackedAtOnce)));
    use_kind(run.format, [&](auto of) {
        constexpr TileKind kKind = decltype(of)::kKind;
        if constexpr (kKind.codes != Codes::kF16) {
            launch_dependent(c, unpack_kernel<kKind.codes, kKind.scales, kKind.offset>, grid,
                             32 * kUnpackWarps, 0, "unpack", a);
        }
    });
}

// unpacked: the run's weights as f16, or null.
template <class Shape>
GemmArgs args_of(const ProductCall& call, const Run& run, const RoundedRows& tokens,
                 const Rows* unpacked) {
    GemmArgs a{};
    a.geometry = unpacked ? unpacked_geometry(run.geometry.n_chunks) : run.geometry;
    a.weights_are_fresh = unpacked != nullptr;
    a.tokens = reinterpret_cast<const uint8_t*>(device_rows<const uint16_t>(tokens.operands));
    a.token_inverses = device_rows<const float>(tokens.inverses);
    a.n_tokens = static_cast<int>(call.x.n_rows);
    a.n_token_tiles = ceil_div(a.n_tokens, Shape::kBlockTokenParts * kTokensOfPart);
    a.epilogue = call.epilogue;
    a.out = device_rows<float>(call.out), a.out_stride = call.out.stride;
    int64_t column = run.column, n_parts = 0;
    for (int i = run.first; i < run.first + run.n; i++) {
        const Linear& linear = *call.weights.weights[static_cast<size_t>(i)];
        const auto* data =
            unpacked ? reinterpret_cast<const uint8_t*>(device_rows<const uint16_t>(*unpacked)) +
                           n_parts * a.geometry.part_bytes
                     : device_plane<const uint8_t>(linear.weight);
        a.weights[a.n_weights++] = {
            data, linear.bias ? device_plane<const float>(linear.bias) : nullptr,
            static_cast<int>(linear.weight.n_rows()), a.n_weight_tiles, column};
        a.n_weight_tiles += ceil_div(parts_of(linear.weight), Shape::kBlockWeightParts);
        n_parts += parts_of(linear.weight), column += linear.weight.n_rows();
    }
    // A tile has half as many rows of gate and of up.
    if (a.epilogue == Epilogue::kSwiglu) {
        a.n_weight_tiles =
            ceil_div(parts_of(call.weights.weights[0]->weight), Shape::kBlockWeightParts / 2);
    }
    return a;
}

template <TileKind kind, class Shape>
void launch_kernel(const Context& c, const GemmArgs& a) {
    const auto kernel = gemm_kernel<kind.codes, kind.scales, kind.offset, Shape>;
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
void launch(const Context& c, const ProductCall& call, const Run& run, const RoundedRows& tokens,
            const Rows* unpacked) {
    const GemmArgs a = args_of<Shape>(call, run, tokens, unpacked);
    if (a.geometry.kind.codes == Codes::kF16) {
        return launch_kernel<tile_kind(FormatId::kF16), Shape>(c, a);
    }
    if constexpr (!std::is_same_v<Shape, LargeShape>) {
        use_kind(run.format, [&](auto of) { launch_kernel<decltype(of)::kKind, Shape>(c, a); });
    }
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
        if (is_in_tiles(linear.weight)) {
            run_gemm(s, {x, linear, part});
        } else {
            matmul_below(s, x, linear, part);
        }
    }
}

}  // namespace

void run_gemm(Step& s, const ProductCall& call, GemmTiles tiles) {
    CHECK(is_in_tiles(call) && call.out.n_rows == call.x.n_rows && call.x.n_rows <= INT32_MAX);
    const RoundedRows tokens = round_tokens(s, call);
    int64_t n_bytes = 0;  // runs follow each other: they unpack to one place
    for_each_run(call, [&](const Run& run) {
        if (may_unpack_first(call, run, tiles)) n_bytes = std::max(n_bytes, unpacked_bytes(run));
    });
    const Rows room = s.scratch(1, n_bytes / 2, DType::kF16);
    if (s.planning) return;
    const Context& c = context_of(s);
    const auto chosen = static_cast<GemmWay>(
        tuning_of(s, matmul_call(RowClass::kPrompt, rows_class_of_cuda(call.x.n_rows),
                                 call.x.n_cols, call.weights))
            .way);
    for_each_run(call, [&](const Run& run) {
        const std::optional<Way> measured =
            tiles == GemmTiles::kFitting ? chosen_way(c, call, run, chosen) : std::nullopt;
        const Way way = measured ? *measured : fitting_way(c, call, run, tiles);
        if (way.unpacks_first) unpack(c, call, run, room);
        const Rows* unpacked = way.unpacks_first ? &room : nullptr;
        switch (way.tiles) {
            case GemmTiles::kLarge:
                return launch<LargeShape>(c, call, run, tokens, unpacked);
            case GemmTiles::kMedium:
                return launch<MediumShape>(c, call, run, tokens, unpacked);
            default:
                return launch<SmallShape>(c, call, run, tokens, unpacked);
        }
    });
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
