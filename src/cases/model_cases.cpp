#include "cases/model_cases.h"

#include <algorithm>

#include "format/affine.h"

namespace ridge {
namespace {

constexpr float kTolerance = 1e-4f;

CaseWeight weight_of(const Linear& linear) {
    const Tensor& tensor = linear.weight;
    CaseWeight weight{.d_out = tensor.n_rows(), .format = tensor.format->id};
    weight.bias = static_cast<bool>(linear.bias);
    if (is_affine(weight.format)) {
        weight.group_size = tensor.group_size;
        weight.scale_format = tensor.scale_format;
    }
    return weight;
}

class Calls {
  public:
    Calls(const Config& config, const StepShape& step) : config_(config), step_(step) {}

    // A call that is there already, by its name, is not added again: layers are alike.
    void add(Case c) {
        c = finish_case(std::move(c));
        const auto same = [&](const Case& other) { return other.name == c.name; };
        if (std::none_of(cases_.begin(), cases_.end(), same)) cases_.push_back(std::move(c));
    }

    Case rows(Op op, int64_t n_rows, int64_t d_in) const {
        return {.op = op,
                .n_rows = n_rows,
                .d_in = d_in,
                .row_class = step_.row_class,
                .tolerance = kTolerance,
                .cancels = true};
    }

    Case norm(int n_heads, int64_t d) const {
        Case c = rows(Op::kRmsNorm, step_.n_rows, d);
        c.n_heads = n_heads;
        c.eps = config_.norm_eps;
        return c;
    }

    Case matmul(int64_t n_rows, int64_t d_in, std::vector<const Linear*> linears) const {
        Case c = rows(Op::kMatmul, n_rows, d_in);
        for (const Linear* linear : linears) c.weights.push_back(weight_of(*linear));
        return c;
    }

    Case rope(int n_heads) const {
        Case c = rows(Op::kRope, step_.n_rows, 0);
        c.n_heads = n_heads;
        c.d_head = config_.d_head;
        c.d_rope = config_.d_rope;
        c.rope_style = config_.rope_style;
        c.rope_theta = config_.rope_theta;
        c.rope_factors = config_.rope_factors;
        for (int32_t i = 0; i < step_.n_rows; i++) {
            const bool is_prompt = step_.row_class == RowClass::kPrompt;
            const int64_t behind = is_prompt ? step_.n_rows - 1 - i : 0;
            c.positions.push_back(static_cast<int32_t>(step_.n_ctx - 1 - behind));
        }
        return c;
    }

    Case cache(Op op) const {
        Case c = rows(op, step_.n_rows, 0);
        c.n_heads = config_.n_heads;
        c.n_kv_heads = config_.n_kv_heads;
        c.d_head = config_.d_head;
        c.k_dtype = step_.k_dtype, c.v_dtype = step_.v_dtype;
        if (step_.row_class == RowClass::kPrompt) {
            c.sequences.push_back({step_.n_ctx, step_.n_rows, RowClass::kPrompt, 0});
            return c;
        }
        for (int32_t i = 0; i < step_.n_rows; i++) {
            c.sequences.push_back({step_.n_ctx, 1, RowClass::kDecode, static_cast<uint64_t>(i)});
        }
        return c;
    }

    std::vector<Case> take() { return std::move(cases_); }

  private:
    const Config& config_;
    const StepShape& step_;
    std::vector<Case> cases_;
};

void add_layer(Calls& calls, const Config& config, const Layer& layer, int64_t n) {
    calls.add(calls.norm(1, config.d_model));
    calls.add(calls.matmul(n, config.d_model, {&layer.q, &layer.k, &layer.v}));
    if (config.qk_norm) {
        calls.add(calls.norm(config.n_heads, config.d_head));
        calls.add(calls.norm(config.n_kv_heads, config.d_head));
    }
    calls.add(calls.rope(config.n_heads));
    calls.add(calls.rope(config.n_kv_heads));
    calls.add(calls.cache(Op::kKvAppend));
    calls.add(calls.cache(Op::kAttention));
    calls.add(calls.matmul(n, config.d_q(), {&layer.o}));
    calls.add(calls.rows(Op::kAdd, n, config.d_model));
    calls.add(calls.matmul(n, config.d_model, {&layer.gate, &layer.up}));
    calls.add(calls.rows(Op::kSwiglu, n, config.d_ff));
    calls.add(calls.matmul(n, config.d_ff, {&layer.down}));
}

}  // namespace

std::vector<Case> model_cases(const Config& config, const Weights& weights, const StepShape& step) {
    Calls calls(config, step);
    Case embed = calls.rows(Op::kEmbedRows, step.n_rows, config.d_model);
    embed.weights.push_back(weight_of({weights.embedding, {}}));
    calls.add(std::move(embed));
    for (const Layer& layer : weights.layers) add_layer(calls, config, layer, step.n_rows);
    const int64_t n_logit_rows = step.row_class == RowClass::kDecode ? step.n_rows : 1;
    Case head = calls.matmul(n_logit_rows, config.d_model, {&weights.head});
    head.row_class = RowClass::kDecode;
    calls.add(std::move(head));
    Case sample = calls.rows(Op::kSample, n_logit_rows, config.n_vocab);
    sample.row_class = RowClass::kDecode;
    SampleParams greedy;
    greedy.temperature = 0;
    sample.params.assign(static_cast<size_t>(n_logit_rows), greedy);
    sample.tolerance = 0;
    sample.cancels = false;
    calls.add(std::move(sample));
    return calls.take();
}

}  // namespace ridge
