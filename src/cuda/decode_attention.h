#pragma once

#include <string_view>

#include "model/tables.h"

namespace ridge::cuda {

// out[i, h] = sum_p softmax_p(q[i, h] . K[p] / sqrt(d_head)) V[p], p = 0 .. position[i]
//   q, out [n_rows, n_heads, d_head] f32; n_heads / n_kv_heads heads share each K and V; position
//   -1 gives zeros. Of the batch's rows of class decode; those of prompts are left alone.
void attend_decode_rows(Step& s, Heads q, KvLayer kv, Heads out);
// Why it does not serve, empty where it does.
std::string_view unfit_for_decode_attention(const Step& s, const Heads& q, const KvLayer& kv,
                                            const Heads& out);

// attn of rows that are each a sequence's newest, and what comes before it in attn_in: q/k norms
// and RoPE of `qkv`, which the projections have just made, and K and V into the cache.
//   qkv [n_rows, (n_heads + 2 n_kv_heads) d_head], out [n_rows, n_heads d_head], f32
void attend_fresh_rows(Step& s, const Layer& layer, Rows qkv, KvLayer kv, Rows out);

// The op at its checkpoint: decode rows here, prompts by what is below.
void decode_attention(Step& s, Heads q, KvLayer kv, Heads out);

}  // namespace ridge::cuda
