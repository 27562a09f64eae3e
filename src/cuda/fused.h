#pragma once

#include <string_view>

#include "model/tables.h"

namespace ridge::cuda {

// A decode layer in five kernels, where every row is a sequence of its own: the projections with
// the norm, attention with the heads' norms, RoPE and the cache, O with the residual, gate and up
// with norm and SwiGLU, down with the residual. Other batches, and weights without tiles, go to the
// entry below, whose stages are these: decode rows with the norm, SwiGLU and residuals within the
// products, heads' norms, RoPE and the cache in one kernel before attention. Their sums have
// another order, so that a row's bits are those of its kind of batch. Prompt rows go below.
void layer_fused(Step& s, const Layer& layer, Rows x, KvLayer kv);
std::string_view unfit_for_layer(const Step& s, const Layer& layer, const Rows& x,
                                 const KvLayer& kv);
void attn_in_fused(Step& s, const Layer& layer, Rows x, Rows qkv, KvLayer kv);
void attn_out_fused(Step& s, const Layer& layer, Rows a, Rows x);
void ffn_in_fused(Step& s, const Layer& layer, Rows x, Rows out);
void ffn_out_fused(Step& s, const Layer& layer, Rows f, Rows x);
void head_fused(Step& s, const Weights& w, Rows x, Rows logits);

}  // namespace ridge::cuda
