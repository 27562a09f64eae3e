#include "cuda/checkpoints.h"

#include "cuda/decode_attention.h"
#include "cuda/fused.h"
#include "cuda/gemm.h"
#include "cuda/graph.h"
#include "cuda/kv_append.h"
#include "cuda/matvec.h"
#include "cuda/plain.h"
#include "cuda/prefill_attention.h"
#include "cuda/ranges.h"
#include "cuda/row_ops.h"
#include "cuda/sample.h"
#include "cuda/tiles.h"
#include "cuda/weight_stream.h"

namespace ridge {
namespace {

using namespace cuda;

constexpr Checkpoint kCheckpoints[] = {
    {"plain", "one simple kernel for each operator, weights as the file has them",
     [](Tables& tables, const Caps& caps) {
         tables.kernels = caps.kernels;
         add_plain_ops(tables, "plain");
         add_default_bodies(tables);
         tables.layer.set("plain", layer_with_its_weights);
         tables.begin_range = begin_range, tables.end_range = end_range;
     }},
    {"matvec", "weights in tiles stream once, multiplied on tensor units, eight rows at a time",
     [](Tables& tables, const Caps&) {
         tables.matmul_layout = &tiles_layout();
         tables.ops.matmul.set("matvec", matmul_tiles, unfit_for_tiles);
         tables.ops.embed_rows.set("matvec", embed_rows_tiles, unfit_for_embedding);
     }},
    {"rms_norm", "a warp for each head, a block for each longer row; residuals in quads",
     [](Tables& tables, const Caps&) {
         tables.ops.rms_norm.set("rms_norm", rms_norm);
         tables.ops.add.set("rms_norm", add);
     }},
    {"rope", "sines and cosines of a row made once for all its heads",
     [](Tables& tables, const Caps&) { tables.ops.rope.set("rope", rope); }},
    {"swiglu", "one pass in quads",
     [](Tables& tables, const Caps&) { tables.ops.swiglu.set("swiglu", swiglu); }},
    {"decode_attention",
     "decode rows: blocks of positions on all multiprocessors, merged in order; rows appended in "
     "parallel",
     [](Tables& tables, const Caps&) {
         tables.ops.kv_append.set("decode_attention", kv_append);
         tables.ops.attention.set("decode_attention", decode_attention, unfit_for_decode_attention);
     }},
    {"sample", "tokens drawn on the device, from a list of the most probable",
     [](Tables& tables, const Caps&) {
         tables.ops.sample.set("sample", sample, unfit_for_sample);
     }},
    {"gemm",
     "prompt rows in large tiles on tensor units in f16, codes unpacked once for all of them; "
     "residuals and SwiGLU within",
     [](Tables& tables, const Caps&) {
         tables.ops.matmul.set("gemm", matmul_by_class, unfit_for_tiles);
         tables.stages.attn_out.set("gemm", attn_out_of_prompts);
         tables.stages.ffn_in.set("gemm", ffn_in_of_prompts);
         tables.stages.ffn_out.set("gemm", ffn_out_of_prompts);
     }},
    {"prefill_attention",
     "prompt rows in blocks on tensor units, heads that share K and V packed into them",
     [](Tables& tables, const Caps&) {
         tables.ops.attention.set("prefill_attention", prefill_attention,
                                  unfit_for_prefill_attention);
     }},
    {"fused",
     "norms, residuals and SwiGLU within the products of decode rows; heads' norms, RoPE and the "
     "cache within attention",
     [](Tables& tables, const Caps&) {
         tables.layer.set("fused", layer_fused, unfit_for_layer);
         tables.stages.attn_in.set("fused", attn_in_fused);
         tables.stages.attn_out.set("fused", attn_out_fused);
         tables.stages.ffn_in.set("fused", ffn_in_fused);
         tables.stages.ffn_out.set("fused", ffn_out_fused);
         tables.stages.head.set("fused", head_fused);
     }},
    {"graph", "a decode step captured once for each batch size, replayed for every position",
     [](Tables& tables, const Caps&) { tables.step.set("graph", step_in_graph, unfit_for_graph); }},
};

}  // namespace

std::span<const Checkpoint> cuda_checkpoints() {
    return kCheckpoints;
}

}  // namespace ridge
