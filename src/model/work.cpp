#include "model/work.h"

#include <algorithm>

#include "format/packing.h"
#include "model/step.h"

namespace ridge {
namespace {

int64_t bytes_of(const Rows& rows) {
    return rows.n_rows * rows.n_cols * dtype_bytes(rows.dtype);
}

// Counting the bytes of a tensor takes longer than some kernels: a trace counts them once.
int64_t bytes_of(const Step& s, const Tensor& tensor) {
    if (!tensor) return 0;
    return s.trace != nullptr ? s.trace->bytes_of(tensor) : bytes_in_memory(tensor);
}

int64_t position_bytes(const KvLayer& kv) {
    return kv.n_kv_heads *
           (kv_head_bytes(kv.k_dtype, kv.d_head) + kv_head_bytes(kv.v_dtype, kv.d_head));
}

void count_norm(Work& work, const Step& s, const Tensor& weight, int64_t n_elements) {
    work.weight_bytes += bytes_of(s, weight);
    work.flops += kRmsNormFlops * n_elements;
}

void count_linear(Work& work, const Step& s, const Linear& linear, int64_t n_rows) {
    work.weight_bytes += bytes_of(s, linear.weight) + bytes_of(s, linear.bias);
    work.flops += 2 * n_rows * linear.weight.n_elements();
    auto* free = std::find(work.matrices.begin(), work.matrices.end(), nullptr);
    if (free != work.matrices.end()) *free = &linear.weight;
}

// K and V of the step's rows that go into the cache.
void count_append(Work& work, const Step& s, const KvLayer& kv) {
    const auto n = std::count_if(s.batch.slots.begin(), s.batch.slots.end(),
                                 [](int64_t slot) { return slot >= 0; });
    work.kv_bytes += n * position_bytes(kv);
}

// A sequence's keys and values count once for all its rows and heads; a row sees its own position
// and all before it.
void count_attention(Work& work, const Step& s, const KvLayer& kv) {
    for (const SequenceSpan& span : s.spans) {
        int64_t n_ctx = 0, n_seen = 0;
        for (int32_t i = 0; i < span.n_rows; i++) {
            const int64_t n = s.batch.positions[static_cast<size_t>(span.first_row + i)] + 1;
            n_ctx = std::max(n_ctx, n);
            n_seen += n;
        }
        work.kv_bytes += n_ctx * position_bytes(kv);
        work.flops += attention_flops(s.config.d_head) * s.config.n_heads * n_seen;
    }
}

// Weights, keys, values and flops of a node that runs these one after the other; the rows between
// them are its own affair.
void add(Work& sum, const Work& part) {
    sum.weight_bytes += part.weight_bytes;
    sum.kv_bytes += part.kv_bytes;
    sum.flops += part.flops;
}

Work of_rows(const Rows& in, const Rows& out) {
    Work work;
    work.activation_bytes = bytes_of(in) + bytes_of(out);
    work.n_rows = in.n_rows;
    work.out = out;
    return work;
}

}  // namespace

Work embed_rows_work(const Step& s, const Tensor& table, const std::span<const Token>& tokens,
                     const Rows& out) {
    Work work;
    work.n_rows = static_cast<int64_t>(tokens.size());
    work.weight_bytes = work.n_rows * (bytes_of(s, table) / table.n_rows());
    work.activation_bytes = bytes_of(out);
    work.matrices[0] = &table;
    work.out = out;
    return work;
}

Work rms_norm_work(const Step& s, const Heads& x, const Tensor& weight, const float&,
                   const Heads& out) {
    Work work = of_rows(x.rows, out.rows);
    count_norm(work, s, weight, x.rows.n_rows * x.rows.n_cols);
    return work;
}

Work matmul_work(const Step& s, const Rows& x, const LinearGroup& weights, const Rows& out) {
    Work work = of_rows(x, out);
    for (int i = 0; i < weights.n_weights; i++) {
        count_linear(work, s, *weights.weights[static_cast<size_t>(i)], x.n_rows);
    }
    return work;
}

Work rope_work(const Step&, const Heads& x, const std::span<const int32_t>&,
               const RopeTable& table) {
    Work work;
    const int64_t n = x.rows.n_rows * x.n_heads * table.d_rope();
    work.activation_bytes = 2 * n * dtype_bytes(x.rows.dtype);
    work.flops = kRopeFlops * n;
    work.n_rows = x.rows.n_rows;
    work.out = x.rows;
    return work;
}

Work kv_append_work(const Step& s, const Heads& k, const Heads& v, const KvLayer& kv) {
    Work work = of_rows(k.rows, v.rows);
    work.out = {};
    count_append(work, s, kv);
    return work;
}

Work attention_work(const Step& s, const Heads& q, const KvLayer& kv, const Heads& out) {
    Work work = of_rows(q.rows, out.rows);
    count_attention(work, s, kv);
    return work;
}

Work swiglu_work(const Step&, const Rows& gate_up, const Rows& out) {
    Work work = of_rows(gate_up, out);
    work.flops = kSwigluFlops * out.n_rows * out.n_cols;
    return work;
}

Work add_work(const Step&, const Rows& y, const Rows& x) {
    Work work = of_rows(y, x);
    work.activation_bytes += bytes_of(x);
    work.flops = x.n_rows * x.n_cols;
    return work;
}

Work sample_work(const Step&, const Rows& logits, const std::span<Sampled>&) {
    Work work;
    work.activation_bytes = bytes_of(logits);
    work.n_rows = logits.n_rows;
    return work;
}

Work attn_in_work(const Step& s, const Layer& layer, const Rows& x, const Rows& qkv,
                  const KvLayer& kv) {
    const Config& c = s.config;
    const Rows q = qkv.cols(0, c.d_q());
    Work work = of_rows(x, q);
    work.layer = layer.index;
    count_norm(work, s, layer.attn_norm, x.n_rows * x.n_cols);
    for (const Linear* linear : {&layer.q, &layer.k, &layer.v}) {
        count_linear(work, s, *linear, x.n_rows);
    }
    if (c.qk_norm) {
        count_norm(work, s, layer.q_norm, x.n_rows * c.d_q());
        count_norm(work, s, layer.k_norm, x.n_rows * c.d_kv());
    }
    work.flops += kRopeFlops * x.n_rows * (c.n_heads + c.n_kv_heads) * s.rope_table.d_rope();
    count_append(work, s, kv);
    return work;
}

Work attn_work(const Step& s, const Layer& layer, const Rows& q, const KvLayer& kv,
               const Rows& out) {
    Work work = of_rows(q, out);
    work.layer = layer.index;
    count_attention(work, s, kv);
    return work;
}

// out += in W^T: out is read, too.
static Work projection_work(const Step& s, const Linear& linear, int layer, const Rows& in,
                            const Rows& out) {
    Work work = of_rows(in, out);
    work.layer = layer;
    work.activation_bytes += bytes_of(out);
    work.flops = out.n_rows * out.n_cols;
    count_linear(work, s, linear, in.n_rows);
    return work;
}

Work attn_out_work(const Step& s, const Layer& layer, const Rows& a, const Rows& x) {
    return projection_work(s, layer.o, layer.index, a, x);
}

Work ffn_in_work(const Step& s, const Layer& layer, const Rows& x, const Rows& out) {
    Work work = of_rows(x, out);
    work.layer = layer.index;
    count_norm(work, s, layer.ffn_norm, x.n_rows * x.n_cols);
    count_linear(work, s, layer.gate, x.n_rows);
    count_linear(work, s, layer.up, x.n_rows);
    work.flops += kSwigluFlops * out.n_rows * out.n_cols;
    return work;
}

Work ffn_out_work(const Step& s, const Layer& layer, const Rows& f, const Rows& x) {
    return projection_work(s, layer.down, layer.index, f, x);
}

Work head_work(const Step& s, const Weights& weights, const Rows& x, const Rows& logits) {
    Rows read = x;  // of the rows that want logits
    read.n_rows = logits.n_rows;
    Work work = of_rows(read, logits);
    count_norm(work, s, weights.output_norm, read.n_rows * read.n_cols);
    count_linear(work, s, weights.head, read.n_rows);
    return work;
}

Work layer_work(const Step& s, const Layer& layer, const Rows& x, const KvLayer& kv) {
    const Config& c = s.config;
    const Rows qkv{nullptr, 0, x.dtype, x.n_rows, c.d_q() + 2 * c.d_kv(), 0};
    const Rows q{nullptr, 0, x.dtype, x.n_rows, c.d_q(), 0};
    const Rows f{nullptr, 0, x.dtype, x.n_rows, c.d_ff, 0};
    Work work = of_rows(x, x);
    work.layer = layer.index;
    add(work, attn_in_work(s, layer, x, qkv, kv));
    add(work, attn_work(s, layer, q, kv, q));
    add(work, attn_out_work(s, layer, q, x));
    add(work, ffn_in_work(s, layer, x, f));
    add(work, ffn_out_work(s, layer, f, x));
    return work;
}

Work step_work(const Step& s, const Weights& weights, const KvCache& kv, const Rows& logits) {
    const Rows x{nullptr, 0, DType::kF32, s.batch.n_rows(), s.config.d_model, 0};
    Work work;
    work.n_rows = x.n_rows;
    work.activation_bytes = bytes_of(logits);
    work.out = logits;
    add(work, embed_rows_work(s, weights.embedding, s.batch.tokens, x));
    for (const Layer& layer : weights.layers)
        add(work, layer_work(s, layer, x, kv.layer(layer.index)));
    if (!s.batch.logit_rows.empty()) add(work, head_work(s, weights, x, logits));
    return work;
}

}  // namespace ridge
