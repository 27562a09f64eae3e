#pragma once

#include <string_view>

#include "model/tables.h"

namespace ridge::cuda {

// Stages of decode rows in few kernels: norms within the product that reads them, residuals and
// SwiGLU within the one that they follow, q/k norms, RoPE and the cache in one. Batches with prompt
// rows, and weights without tiles, go to the entry below.
void layer_fused(Step& s, const Layer& layer, Rows x, KvLayer kv);
std::string_view unfit_for_layer(const Step& s, const Layer& layer, const Rows& x,
                                 const KvLayer& kv);
void attn_in_fused(Step& s, const Layer& layer, Rows x, Rows qkv, KvLayer kv);
void attn_out_fused(Step& s, const Layer& layer, Rows a, Rows x);
void ffn_in_fused(Step& s, const Layer& layer, Rows x, Rows out);
void ffn_out_fused(Step& s, const Layer& layer, Rows f, Rows x);
void head_fused(Step& s, const Weights& w, Rows x, Rows logits);

}  // namespace ridge::cuda
