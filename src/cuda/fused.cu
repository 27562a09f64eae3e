#include <algorithm>

#include "cuda/context.h"
#include "cuda/decode_attention.h"
#include "cuda/device/async.cuh"
#include "cuda/device/block.cuh"
#include "cuda/device/kv_cache.cuh"
#include "cuda/device/turns.cuh"
#include "cuda/fused.h"
#include "cuda/matvec.h"
#include "cuda/ranges.h"
#include "cuda/tiles.h"
#include "cuda/weight_stream.h"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 128;

struct HeadsArgs {
    float* qkv;  // [n_rows, (n_heads + 2 n_kv_heads) d_head]
    int64_t stride;
    int n_heads, n_kv_heads, d_head;
    const float *q_norm, *k_norm;  // [d_head], or null
    float eps;
    const int32_t* positions;  // [n_rows]
    const int64_t* slots;      // [n_rows]
    const double* frequency;   // [n_pairs]
    int n_pairs;
    bool half_split;
};

// heads: the norm of each head of q and k, RoPE, then k and v to the cache; q stays in place
//   A block for each head of a row; its elements go through shared memory, f32 throughout, one
//   rounding where the cache stores. Equations: rms_norm, rope and kv_append of model/tables.h.
__global__ void __launch_bounds__(kThreads)
    heads_kernel(const __grid_constant__ HeadsArgs a, const __grid_constant__ KvTiles kv) {
    extern __shared__ float head[];  // [d_head]
    __shared__ float partial[32];
    wait_for_previous_kernel();
    let_next_kernel_start();
    const int h = static_cast<int>(blockIdx.y), d = a.d_head;
    const bool is_q = h < a.n_heads, is_k = !is_q && h < a.n_heads + a.n_kv_heads;
    float* x = a.qkv + blockIdx.x * a.stride + int64_t{h} * d;
    const int64_t slot = a.slots[blockIdx.x];
    if (!is_q && slot < 0) return;
    const int32_t position = a.positions[blockIdx.x];
    float square = 0;
    for (int i = static_cast<int>(threadIdx.x); i < d; i += kThreads) {
        head[i] = x[i];
        square = fmaf(x[i], x[i], square);
    }
    const float* norm = is_q ? a.q_norm : is_k ? a.k_norm : nullptr;
    if (norm != nullptr) {
        const float inverse = rsqrtf(block_sum(square, partial) / static_cast<float>(d) + a.eps);
        for (int i = static_cast<int>(threadIdx.x); i < d; i += kThreads) {
            head[i] *= inverse * norm[i];
        }
    }
    __syncthreads();  // the head is complete before its pairs are turned
    if ((is_q || is_k) && position >= 0) {
        for (int pair = static_cast<int>(threadIdx.x); pair < a.n_pairs; pair += kThreads) {
            const float2 turn = sine_and_cosine(position, a.frequency[pair]);
            float& first = head[a.half_split ? pair : 2 * pair];
            float& second = head[a.half_split ? pair + a.n_pairs : 2 * pair + 1];
            rotate(turn, first, second);
        }
    }
    __syncthreads();  // all pairs are turned before others read them
    if (is_q) {
        for (int i = static_cast<int>(threadIdx.x); i < d; i += kThreads) x[i] = head[i];
        return;
    }
    const int64_t page = slot / kKvPagePositions;
    const int p = static_cast<int>(slot % kKvPagePositions);
    const int kv_head = h - a.n_heads - (is_k ? 0 : a.n_kv_heads);
    const HostKvRow row = is_k ? kv.k_row(page, p, kv_head) : kv.v_row(page, p, kv_head);
    if (row.dtype != DType::kQ8_0) {
        for (int i = static_cast<int>(threadIdx.x); i < d; i += kThreads) {
            store_element(head[i], row, i);
        }
        return;
    }
    // A warp for each 32 elements, which share a scale.
    for (int i = static_cast<int>(threadIdx.x); i < d; i += kThreads) {
        const f16 scale =
            q8_scale(__reduce_max_sync(kAllLanes, __float_as_uint(head[i]) & 0x7fffffffu));
        write_as(q8_code(head[i], q8_inverse(scale)), row.element(i, 1));
        if (i % kKvScaleElements == 0) write_as(scale, row.scale(i / kKvScaleElements));
    }
}

bool all_decode(const Step& s) {
    return std::all_of(s.spans.begin(), s.spans.end(), [](const SequenceSpan& span) {
        return span.row_class == RowClass::kDecode;
    });
}

// Rows of norm(x) times q, k and v.
ProductCall projections(const Step& s, const Layer& layer, const Rows& x, const Rows& qkv) {
    ProductCall call{x, {layer.q, layer.k, layer.v}, qkv};
    call.norm = &layer.attn_norm, call.eps = s.config.norm_eps;
    return call;
}

}  // namespace

std::string_view unfit_for_layer(const Step& s, const Layer& layer, const Rows& x,
                                 const KvLayer& kv) {
    const Config& c = s.config;
    for (const Linear* linear :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
        const std::string_view why = why_not_in_tiles(linear->weight);
        if (!why.empty()) return why;
    }
    const Heads heads(Rows{nullptr, 0, DType::kF32, x.n_rows, c.d_q(), c.d_q()}, c.n_heads,
                      c.d_head);
    return unfit_for_decode_attention(s, heads, kv, heads);
}

// Five kernels: the heads' norms, RoPE and the cache are a part of attention.
static void run_layer(Step& s, const Layer& layer, Rows x, KvLayer kv) {
    const Range range("layer", layer.index);
    run_stages(s, layer, x, kv,
               {[](Step& step, const Layer& l, Rows in, Rows qkv, KvLayer cache) {
                    if (step.planning) return;
                    const auto work = [&] {
                        Work of_products = attn_in_work(step, l, in, qkv, cache);
                        of_products.kv_bytes = 0;
                        return of_products;
                    };
                    trace_part(step.trace, step.stages.attn_in.name(), "fused", work,
                               [&] { run_matvec(step, projections(step, l, in, qkv)); });
                },
                [](Step& step, const Layer& l, Rows qkv, KvLayer cache, Rows out) {
                    const auto work = [&] {
                        const Rows q = qkv.cols(0, step.config.d_q());
                        Work of_attention = attn_work(step, l, q, cache, out);
                        of_attention.kv_bytes += attn_in_work(step, l, q, qkv, cache).kv_bytes;
                        return of_attention;
                    };
                    trace_part(step.trace, step.stages.attn.name(), "fused", work,
                               [&] { attend_fresh_rows(step, l, qkv, cache, out); });
                }});
}

// Of sequences with one decode row each. Others go to the entry below. A plan has room for both, in
// either order of the regions that stages use in turns: the body's stages are odd in number.
void layer_fused(Step& s, const Layer& layer, Rows x, KvLayer kv) {
    const bool fits = have_one_decode_row_each(s.spans);
    if (s.planning && all_decode(s)) {
        run_layer(s, layer, x, kv);
        run_layer(s, layer, x, kv);
    }
    if (s.planning || !fits) return s.tables.layer.below("fused", s, layer, x, kv);
    with_weights(s, layer.index, [&] { run_layer(s, layer, x, kv); });
}

void attn_in_fused(Step& s, const Layer& layer, Rows x, Rows qkv, KvLayer kv) {
    const ProductCall call = projections(s, layer, x, qkv);
    if (!all_decode(s) || !is_in_tiles(call)) {
        return s.stages.attn_in.below("fused", s, layer, x, qkv, kv);
    }
    if (s.planning) return;
    run_matvec(s, call);
    const Config& config = s.config;
    const Context& c = context_of(s);
    HeadsArgs a{};
    a.qkv = device_rows<float>(qkv), a.stride = qkv.stride;
    a.n_heads = config.n_heads, a.n_kv_heads = config.n_kv_heads, a.d_head = config.d_head;
    if (config.qk_norm) {
        a.q_norm = device_plane<const float>(layer.q_norm);
        a.k_norm = device_plane<const float>(layer.k_norm);
    }
    a.eps = config.norm_eps;
    a.positions = c.mirror.positions, a.slots = c.mirror.slots;
    a.frequency = c.mirror.rope_frequency;
    a.n_pairs = static_cast<int>(s.rope_table.frequency.size());
    a.half_split = s.rope_table.style == RopeStyle::kHalfSplit;
    const dim3 grid(static_cast<unsigned>(x.n_rows),
                    static_cast<unsigned>(config.n_heads + 2 * config.n_kv_heads));
    launch_dependent(c, heads_kernel, grid, kThreads,
                     static_cast<size_t>(config.d_head) * sizeof(float), "heads", a, KvTiles(kv));
}

void attn_out_fused(Step& s, const Layer& layer, Rows a, Rows x) {
    ProductCall call{a, layer.o, x};
    call.epilogue = Epilogue::kAdd;
    if (!all_decode(s) || !is_in_tiles(call)) {
        return s.stages.attn_out.below("fused", s, layer, a, x);
    }
    if (!s.planning) run_matvec(s, call);
}

void ffn_in_fused(Step& s, const Layer& layer, Rows x, Rows out) {
    ProductCall call{x, {layer.gate, layer.up}, out};
    call.norm = &layer.ffn_norm, call.eps = s.config.norm_eps, call.epilogue = Epilogue::kSwiglu;
    if (!all_decode(s) || !is_in_tiles(call)) {
        return s.stages.ffn_in.below("fused", s, layer, x, out);
    }
    if (!s.planning) run_matvec(s, call);
}

void ffn_out_fused(Step& s, const Layer& layer, Rows f, Rows x) {
    ProductCall call{f, layer.down, x};
    call.epilogue = Epilogue::kAdd;
    if (!all_decode(s) || !is_in_tiles(call)) {
        return s.stages.ffn_out.below("fused", s, layer, f, x);
    }
    if (!s.planning) run_matvec(s, call);
}

// Where every row wants logits, as in decode, no row has to be gathered.
void head_fused(Step& s, const Weights& w, Rows x, Rows logits) {
    const std::span<const int32_t> wanted = s.batch.logit_rows;
    ProductCall call{x, w.head, logits};
    call.norm = &w.output_norm, call.eps = s.config.norm_eps;
    if (!all_decode(s) || static_cast<int64_t>(wanted.size()) != x.n_rows || !is_in_tiles(call)) {
        return s.stages.head.below("fused", s, w, x, logits);
    }
    if (!s.planning) run_matvec(s, call);
}

}  // namespace ridge::cuda
