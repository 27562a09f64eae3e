#include "model/step.h"
#include "model/tables.h"

namespace ridge {
namespace {

void attn_in(Step& s, const Layer& layer, Rows x, Rows qkv, KvLayer kv) {
    const Config& c = s.config;
    Rows h = s.scratch(x.n_rows, c.d_model);
    s.ops.rms_norm(s, x, layer.attn_norm, c.norm_eps, h);
    s.ops.matmul(s, h, {layer.q, layer.k, layer.v}, qkv);

    Heads q(qkv.cols(0, c.d_q()), c.n_heads, c.d_head);
    Heads k(qkv.cols(c.d_q(), c.d_kv()), c.n_kv_heads, c.d_head);
    Heads v(qkv.cols(c.d_q() + c.d_kv(), c.d_kv()), c.n_kv_heads, c.d_head);
    if (c.qk_norm) {
        s.ops.rms_norm(s, q, layer.q_norm, c.norm_eps, q);
        s.ops.rms_norm(s, k, layer.k_norm, c.norm_eps, k);
    }
    s.ops.rope(s, q, s.batch.positions, s.rope_table);
    s.ops.rope(s, k, s.batch.positions, s.rope_table);
    s.ops.kv_append(s, k, v, kv);
}

void attn(Step& s, const Layer& layer, Rows q, KvLayer kv, Rows out) {
    const Config& c = s.config;
    for (const Linear* linear : {&layer.q, &layer.k, &layer.v}) {
        kv.exact = kv.exact || linear->weight.format->id == FormatId::kF32;
    }
    s.ops.attention(s, Heads(q, c.n_heads, c.d_head), kv, Heads(out, c.n_heads, c.d_head));
}

void attn_out(Step& s, const Layer& layer, Rows a, Rows x) {
    Rows y = s.scratch(x.n_rows, s.config.d_model);
    s.ops.matmul(s, a, layer.o, y);
    s.ops.add(s, y, x);
}

void ffn_in(Step& s, const Layer& layer, Rows x, Rows out) {
    const Config& c = s.config;
    Rows h = s.scratch(x.n_rows, c.d_model), gate_up = s.scratch(x.n_rows, 2 * c.d_ff);
    s.ops.rms_norm(s, x, layer.ffn_norm, c.norm_eps, h);
    s.ops.matmul(s, h, {layer.gate, layer.up}, gate_up);
    s.ops.swiglu(s, gate_up, out);
}

void ffn_out(Step& s, const Layer& layer, Rows f, Rows x) {
    Rows y = s.scratch(x.n_rows, s.config.d_model);
    s.ops.matmul(s, f, layer.down, y);
    s.ops.add(s, y, x);
}

// The rows that want logits are normed run by run of neighbours, so that no op has to gather.
void head(Step& s, const Weights& w, Rows x, Rows logits) {
    std::span<const int32_t> wanted = s.batch.logit_rows;
    if (wanted.empty()) return;  // a piece of a prompt: kernels need not look at the weight
    Rows h = s.scratch(static_cast<int64_t>(wanted.size()), s.config.d_model);
    for (size_t begin = 0, end; begin < wanted.size(); begin = end) {
        end = begin + 1;
        while (end < wanted.size() && wanted[end] == wanted[end - 1] + 1) end++;
        int64_t n = static_cast<int64_t>(end - begin);
        s.ops.rms_norm(s, x.slice(wanted[begin], n), w.output_norm, s.config.norm_eps,
                       h.slice(static_cast<int64_t>(begin), n));
    }
    // Logits are decode rows, whatever row they are of: how many of a prompt's rows want them does
    // not change their arithmetic.
    const SequenceSpan span{0, static_cast<int32_t>(wanted.size()), RowClass::kDecode, {}};
    const std::span<const SequenceSpan> of_batch = s.spans;
    s.spans = {&span, 1};
    s.ops.matmul(s, h, w.head, logits);
    s.spans = of_batch;
}

// What runs within its life is shown under the node's name.
class Range {
  public:
    Range(const Step& s, const char* name) : tables_(s.tables) {
        if (tables_.begin_range != nullptr) tables_.begin_range(name);
    }
    ~Range() {
        if (tables_.end_range != nullptr) tables_.end_range();
    }
    Range(const Range&) = delete;

  private:
    const Tables& tables_;
};

void layer_of_stages(Step& s, const Layer& layer, Rows x, KvLayer kv) {
    run_stages(s, layer, x, kv,
               {[](Step& step, const Layer& l, Rows in, Rows qkv, KvLayer cache) {
                    step.stages.attn_in(step, l, in, qkv, cache);
                },
                [](Step& step, const Layer& l, Rows qkv, KvLayer cache, Rows out) {
                    step.stages.attn(step, l, qkv.cols(0, step.config.d_q()), cache, out);
                }});
}

void step_of_layers(Step& s, const Weights& w, const KvCache& kv, Rows logits) {
    Rows x = s.scratch(s.batch.n_rows(), s.config.d_model);
    {
        Range range(s, s.ops.embed_rows.name());
        s.ops.embed_rows(s, w.embedding, s.batch.tokens, x);
    }
    for (const Layer& layer : w.layers) s.tables.layer(s, layer, x, kv.layer(layer.index));
    if (s.batch.logit_rows.empty()) return;
    StageScope stage_scope(s.memory);
    Range range(s, s.stages.head.name());
    s.stages.head(s, w, x, logits);
}

}  // namespace

void run_stages(Step& s, const Layer& layer, Rows x, KvLayer kv, const AttentionStages& attention) {
    const Config& c = s.config;
    LayerScope scope(s.memory);
    Rows qkv = s.scratch(x.n_rows, c.d_q() + 2 * c.d_kv()), a = s.scratch(x.n_rows, c.d_q()),
         f = s.scratch(x.n_rows, c.d_ff);
    auto stage = [&](const char* name, const auto& run, auto... args) {
        if (s.batch.before_stage != nullptr) (*s.batch.before_stage)();
        StageScope stage_scope(s.memory);
        Range range(s, name);
        run(s, layer, args...);
    };
    stage(s.stages.attn_in.name(), attention.attn_in, x, qkv, kv);
    stage(s.stages.attn.name(), attention.attn, qkv, kv, a);
    stage(s.stages.attn_out.name(), s.stages.attn_out, a, x);
    stage(s.stages.ffn_in.name(), s.stages.ffn_in, x, f);
    stage(s.stages.ffn_out.name(), s.stages.ffn_out, f, x);
}

void add_default_bodies(Tables& tables) {
    tables.stages.attn_in.set("ops", attn_in);
    tables.stages.attn.set("ops", attn);
    tables.stages.attn_out.set("ops", attn_out);
    tables.stages.ffn_in.set("ops", ffn_in);
    tables.stages.ffn_out.set("ops", ffn_out);
    tables.stages.head.set("ops", head);
    tables.layer.set("stages", layer_of_stages);
    tables.step.set("layers", step_of_layers);
}

}  // namespace ridge
