#pragma once

#include <cstdint>
#include <string_view>

#include "cpu/kernels.h"
#include "model/step.h"

namespace ridge::cpu {

// Attention over the cache of ref/host_kv.h, by the functions of an instruction set. d_head is a
// multiple of 16 in all of these.

// Why the ops below do not serve, empty where they do: nodes ask before they call.
std::string_view unfit_for_append(const Step& s, const Heads& k, const Heads& v, const KvLayer& kv);
std::string_view unfit_for_attention(const Step& s, const Heads& q, const KvLayer& kv,
                                     const Heads& out);

// Whether prompt rows multiply pairs of bf16, to which q, K, V and weights are rounded: where the
// machine has a unit for it, and nobody asked for float32.
bool rounds_to_bf16(const Kernels& kernels, const KvLayer& kv);

// One row into the cache: k, v [n_kv_heads, d_head] f32, rounded as the cache's types say.
void append_row(const Kernels& kernels, const KvLayer& kv, int64_t slot, const float* k,
                const float* v);
// One head of it: k, v [d_head].
void append_head(const Kernels& kernels, const KvLayer& kv, int64_t slot, int64_t head,
                 const float* k, const float* v);

// cache[slot[i]] = k[i], v[i]; slot -1 is skipped     k, v [n_rows, n_kv_heads, d_head] f32
void kv_append(Step& s, Heads k, Heads v, KvLayer kv);

// out[i, h] = sum_p softmax_p(q[i, h] . K[p] / sqrt(d_head)) V[p], p = 0 .. position[i]
//   q, out [n_rows, n_heads, d_head] f32; n_heads / n_kv_heads heads share each K and V; position
//   -1 gives zeros. The rows of one class; those of the other are left alone.
void attend_decode_rows(Step& s, Heads q, KvLayer kv, Heads out);
void attend_prompt_rows(Step& s, Heads q, KvLayer kv, Heads out);

// The op at its checkpoints: decode rows here and prompt rows by what is below; then both here.
void decode_attention(Step& s, Heads q, KvLayer kv, Heads out);
void prefill_attention(Step& s, Heads q, KvLayer kv, Heads out);

}  // namespace ridge::cpu
