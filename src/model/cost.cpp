#include "model/cost.h"

namespace ridge {
namespace {

template <class Count>
int64_t sum_over(const Config& config, const Weights& weights, Count count) {
    int64_t n = 0;
    for_each_tensor(weights, config.tied_head, [&](const Tensor& tensor) { n += count(tensor); });
    return n;
}

}  // namespace

int64_t total_weight_bytes(const Config& config, const Weights& weights) {
    return sum_over(config, weights, [](const Tensor& tensor) { return tensor.n_bytes(); });
}

int64_t decode_weight_bytes(const Config& config, const Weights& weights) {
    int64_t n = total_weight_bytes(config, weights);
    if (config.tied_head) return n;
    int64_t embedding = weights.embedding.n_bytes();
    return n - embedding + embedding / config.n_vocab;
}

int64_t n_parameters(const Config& config, const Weights& weights) {
    return sum_over(config, weights, [](const Tensor& tensor) { return tensor.n_elements(); });
}

}  // namespace ridge
