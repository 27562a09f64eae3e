#pragma once

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

// Calls visit(tensor) for every weight, in the order in which a step reads them; a tied head is not
// visited twice.
template <class WeightsOrConst, class Visit>
void for_each_tensor(WeightsOrConst& weights, bool tied_head, Visit visit) {
    auto visit_linear = [&](auto& linear) {
        visit(linear.weight);
        if (linear.bias) visit(linear.bias);
    };
    visit(weights.embedding);
    for (auto& layer : weights.layers) {
        visit(layer.attn_norm);
        for (auto* linear : {&layer.q, &layer.k, &layer.v}) visit_linear(*linear);
        if (layer.q_norm) visit(layer.q_norm);
        if (layer.k_norm) visit(layer.k_norm);
        visit_linear(layer.o);
        visit(layer.ffn_norm);
        for (auto* linear : {&layer.gate, &layer.up, &layer.down}) visit_linear(*linear);
    }
    visit(weights.output_norm);
    if (!tied_head) visit_linear(weights.head);
}

}  // namespace ridge
