#pragma once

#include <array>
#include <span>
#include <vector>

#include "file/model_file.h"
#include "format/tensor.h"
#include "model/config.h"

namespace ridge {

// y = W x + b. weight [d_out, d_in]; bias [d_out], or without a format where there is none.
struct Linear {
    Tensor weight;
    Tensor bias;
};

struct Layer {
    int index = 0;
    Tensor attn_norm;       // [d_model]
    Linear q, k, v;         // [n_heads * d_head, d_model], [n_kv_heads * d_head, d_model] twice
    Tensor q_norm, k_norm;  // [d_head]; where config.qk_norm
    Linear o;               // [d_model, n_heads * d_head]
    Tensor ffn_norm;        // [d_model]
    Linear gate, up;        // [d_ff, d_model]
    Linear down;            // [d_model, d_ff]
};

struct Weights {
    Tensor embedding;  // [n_vocab, d_model]
    std::vector<Layer> layers;
    Tensor output_norm;  // [d_model]
    Linear head;         // [n_vocab, d_model]; the embedding where config.tied_head
};

// Finds every tensor and checks its shape, the one place where shapes are checked. Errors name the
// file, the tensor, the shape found and the one expected. The tensors are views into `file`.
Weights read_weights(const ModelFile& file, const Config& config);

// Calls visit(tensors, layer) for all weights, in the order in which a step reads them: with those
// that a stage reads side by side, which is gate and up, or with one alone. tensors: a span of
// pointers; layer: whose they are, -1 of those that are no layer's. A tied head is not visited
// twice.
template <class WeightsOrConst, class Visit>
void for_each_side_by_side(WeightsOrConst& weights, bool tied_head, Visit visit) {
    int layer_index = -1;
    auto visit_all = [&](auto&... tensors) {
        auto pointers = std::array{&tensors...};
        visit(std::span(pointers), layer_index);
    };
    auto visit_if = [&](auto& tensor) {
        if (tensor) visit_all(tensor);
    };
    auto visit_linear = [&](auto& linear) {
        visit_all(linear.weight);
        visit_if(linear.bias);
    };
    visit_all(weights.embedding);
    for (auto& layer : weights.layers) {
        layer_index = layer.index;
        visit_all(layer.attn_norm);
        for (auto* linear : {&layer.q, &layer.k, &layer.v}) visit_linear(*linear);
        visit_if(layer.q_norm);
        visit_if(layer.k_norm);
        visit_linear(layer.o);
        visit_all(layer.ffn_norm);
        visit_all(layer.gate.weight, layer.up.weight);
        visit_if(layer.gate.bias);
        visit_if(layer.up.bias);
        visit_linear(layer.down);
    }
    layer_index = -1;
    visit_all(weights.output_norm);
    if (!tied_head) visit_linear(weights.head);
}

// Calls visit(tensor) for every weight, in the same order.
template <class WeightsOrConst, class Visit>
void for_each_tensor(WeightsOrConst& weights, bool tied_head, Visit visit) {
    for_each_side_by_side(weights, tied_head, [&](auto tensors, int) {
        for (auto* tensor : tensors) visit(*tensor);
    });
}

// An embedding that is not the head, too, and of which a step reads single rows: it stays as files
// have it.
inline bool is_looked_up(const Weights& weights, const Tensor& tensor, bool tied_head) {
    return &tensor == &weights.embedding && !tied_head;
}

}  // namespace ridge
