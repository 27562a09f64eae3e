#pragma once

#include <span>
#include <string_view>

#include "model/tables.h"

// The scalar oracle: every operator of Ops as its plainest equation, on one thread, in host memory.
// Activations are stored as float32; every sum, exponential, sine and root is taken in float64, and
// each result is rounded once, where it is stored. Weights are read through unpack_row, so that any
// format and layout serves; the KV cache lies as host_kv.h says. Frozen: faster kernels agree with
// it, it never follows them. In a dry run (Step::planning) the operators do nothing, and none of
// them takes scratch.
namespace ridge::ref {

// token in [0, n_vocab); out f32.
void embed_rows(Step& step, const Tensor& table, Tokens token, Rows out);

// The scale 1 / sqrt(mean + eps) and both products in float64. out may be x.
void rms_norm(Step& step, Heads x, const Tensor& weight, float eps, Heads out);

// The bias is added before the one rounding. out must not overlap x.
void matmul(Step& step, Rows x, LinearGroup weights, Rows out);

// Angle position * frequency, its sine and cosine and the rotation in float64. The elements after
// the first d_rope of a head stay as they are; so do rows whose position is -1.
void rope(Step& step, Heads x, Positions position, const RopeTable& table);

// Rounds to the cache's types, to nearest even. Slots are Batch::slots.
void kv_append(Step& step, Heads k, Heads v, KvLayer kv);

// Positions and views are the batch's. Query head h reads KV head h / (n_heads / n_kv_heads). A row
// of position -1 gives zeros. Nothing is read but the slots of positions 0..position.
void attention(Step& step, Heads q, KvLayer kv, Heads out);

// silu(g) = g / (1 + exp(-g)).
void swiglu(Step& step, Rows gate_up, Rows out);

// One float32 addition an element.
void add(Step& step, Rows y, Rows x);

// Draws as sample_params.h says. Biases and penalties are applied to the logits in float32; all
// probabilities are float64. Good enough to serve as a host backend's own: time grows with n_vocab,
// and only as many candidates are sorted as the draw walks past. Error names the position where a
// logit is NaN or +inf or all are -inf, and the token of a bias that is NaN, +inf or of no token.
void sample(Step& step, Rows logits, std::span<Sampled> drawn);

// Sets every node of tables.ops to the function above, as entry `checkpoint`.
void add_ref_ops(Tables& tables, std::string_view checkpoint);

}  // namespace ridge::ref
