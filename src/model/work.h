#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "format/tensor.h"
#include "model/kv_cache.h"
#include "model/rope_table.h"
#include "model/rows.h"
#include "model/sample_params.h"
#include "model/weights.h"
#include "text/token.h"

namespace ridge {

struct LinearGroup;
struct Step;

// What one call of a node has to do at the least, whichever kernel does it: every operand is read
// once and every result written once. In a node that calls others, what they hand to each other is
// not counted.
struct Work {
    int64_t weight_bytes = 0;      // matrices, norms and biases, as they lie in memory
    int64_t kv_bytes = 0;          // keys and values, read or written
    int64_t activation_bytes = 0;  // rows that come in and go out
    int64_t flops = 0;             // a multiplication and an addition are two
    int64_t n_rows = 0;
    int layer = -1;  // whose it is, where the call itself says so
    // Matrices that it multiplies by, or looks up in: those of the model, which outlive a step.
    std::array<const Tensor*, 3> matrices{};
    Rows out{};  // where the result is; of kv_append none

    int64_t bytes() const { return weight_bytes + kv_bytes + activation_bytes; }
};

// Flops of one element, or of one row and position, by the equation of the operator.
constexpr int64_t kRmsNormFlops = 4;  // square, add, scale, weight
constexpr int64_t kRopeFlops = 3;     // a pair: four multiplications and two additions
constexpr int64_t kSwigluFlops = 5;   // negate, exp, add, divide, multiply
// Of one query head: d_head products for the score, and as many for the sum.
constexpr int64_t attention_flops(int64_t d_head) {
    return 4 * d_head;
}

// One for each node of Ops, Stages and Tables: the same arguments.
Work embed_rows_work(const Step& s, const Tensor& table, const std::span<const Token>& tokens,
                     const Rows& out);
Work rms_norm_work(const Step& s, const Heads& x, const Tensor& weight, const float& eps,
                   const Heads& out);
Work matmul_work(const Step& s, const Rows& x, const LinearGroup& weights, const Rows& out);
Work rope_work(const Step& s, const Heads& x, const std::span<const int32_t>& positions,
               const RopeTable& table);
Work kv_append_work(const Step& s, const Heads& k, const Heads& v, const KvLayer& kv);
Work attention_work(const Step& s, const Heads& q, const KvLayer& kv, const Heads& out);
Work swiglu_work(const Step& s, const Rows& gate_up, const Rows& out);
Work add_work(const Step& s, const Rows& y, const Rows& x);
Work sample_work(const Step& s, const Rows& logits, const std::span<Sampled>& drawn);

Work attn_in_work(const Step& s, const Layer& layer, const Rows& x, const Rows& qkv,
                  const KvLayer& kv);
Work attn_work(const Step& s, const Layer& layer, const Rows& q, const KvLayer& kv,
               const Rows& out);
Work attn_out_work(const Step& s, const Layer& layer, const Rows& a, const Rows& x);
Work ffn_in_work(const Step& s, const Layer& layer, const Rows& x, const Rows& out);
Work ffn_out_work(const Step& s, const Layer& layer, const Rows& f, const Rows& x);
Work head_work(const Step& s, const Weights& weights, const Rows& x, const Rows& logits);

Work layer_work(const Step& s, const Layer& layer, const Rows& x, const KvLayer& kv);
Work step_work(const Step& s, const Weights& weights, const KvCache& kv, const Rows& logits);

}  // namespace ridge
