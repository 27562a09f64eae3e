#pragma once

#include <string_view>

#include "model/step.h"

namespace ridge::cpu {

// Stages in one pass over their weights, for rows of either class; the equations are those of the
// default bodies (model/stages.cpp).

// norm, QKV, q/k norm, RoPE, K and V into the cache
void attn_in_fused(Step& s, const Layer& layer, Rows x, Rows qkv, KvLayer kv);
// Why it does not serve, empty where it does.
std::string_view unfit_for_attn_in(const Step& s, const Layer& layer, const Rows& x,
                                   const Rows& qkv, const KvLayer& kv);
// x += a O
void attn_out_fused(Step& s, const Layer& layer, Rows a, Rows x);
// out = silu(n gate) * (n up), n = norm(x)
void ffn_in_fused(Step& s, const Layer& layer, Rows x, Rows out);
// x += f down
void ffn_out_fused(Step& s, const Layer& layer, Rows f, Rows x);

}  // namespace ridge::cpu
