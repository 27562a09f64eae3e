#include "cpu/checkpoints.h"

#include "cpu/attention.h"
#include "cpu/fused.h"
#include "cpu/interleaved.h"
#include "cpu/matmul.h"
#include "cpu/plain.h"
#include "cpu/row_ops.h"
#include "cpu/sample.h"
#include "ref/ref.h"

namespace ridge {
namespace {

constexpr Checkpoint kCheckpoints[] = {
    {"ref", "the equations in scalar float32 with float64 sums, on one thread",
     [](Tables& t, const Caps&) {
         ref::add_ref_ops(t, "ref");
         add_default_bodies(t);
     }},
    {"plain", "one simple kernel for each operator, on all threads",
     [](Tables& t, const Caps&) { add_plain_ops(t, "plain"); }},
    {"matvec",
     "weights in groups of 16 rows stream once, multiplied with int8 blocks of activations",
     [](Tables& t, const Caps& caps) {
         t.kernels = caps.kernels;
         t.matmul_layout = &cpu::interleaved_layout();
         t.ops.matmul.set("matvec", cpu::matmul_groups);
     }},
    {"row_ops",
     "norms, residuals, SwiGLU and RoPE in vectors; a row's angles in float64, shared by its heads",
     [](Tables& t, const Caps&) {
         t.ops.rms_norm.set("row_ops", cpu::rms_norm);
         t.ops.add.set("row_ops", cpu::add);
         t.ops.rope.set("row_ops", cpu::rope);
         t.ops.swiglu.set("row_ops", cpu::swiglu);
     }},
    {"sample", "candidates found through the maxima of blocks of logits, on all threads",
     [](Tables& t, const Caps&) { t.ops.sample.set("sample", cpu::sample); }},
    {"decode_attention",
     "decode rows by blocks of 256 positions on all threads, heads sharing each tile of the cache",
     [](Tables& t, const Caps&) {
         t.ops.kv_append.set("decode_attention", cpu::kv_append, cpu::unfit_for_append);
         t.ops.attention.set("decode_attention", cpu::decode_attention, cpu::unfit_for_attention);
     }},
    {"gemm", "prompt rows by panels of weights, unpacked once for all of them",
     [](Tables& t, const Caps&) { t.ops.matmul.set("gemm", cpu::matmul_by_class); }},
    {"prefill_attention",
     "prompt rows in blocks that multiply each tile of the cache once, the causal half skipped",
     [](Tables& t, const Caps&) {
         t.ops.attention.set("prefill_attention", cpu::prefill_attention, cpu::unfit_for_attention);
     }},
    {"fused", "norms, RoPE, SwiGLU and residuals within the passes over the weights",
     [](Tables& t, const Caps&) {
         t.stages.attn_in.set("fused", cpu::attn_in_fused, cpu::unfit_for_attn_in);
         t.stages.attn_out.set("fused", cpu::attn_out_fused);
         t.stages.ffn_in.set("fused", cpu::ffn_in_fused);
         t.stages.ffn_out.set("fused", cpu::ffn_out_fused);
     }},
};

}  // namespace

std::span<const Checkpoint> cpu_checkpoints() {
    return kCheckpoints;
}

}  // namespace ridge
