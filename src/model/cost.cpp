#include "model/cost.h"

#include "format/packing.h"

namespace ridge {
namespace {

template <class Count>
int64_t sum_over(const Config& config, const Weights& weights, Count count) {
    int64_t n = 0;
    for_each_tensor(weights, config.tied_head, [&](const Tensor& tensor) { n += count(tensor); });
    return n;
}

// The embedding counts with one row, where it is not the LM head too.
int64_t of_a_step(const Config& config, int64_t total, int64_t embedding) {
    return config.tied_head ? total : total - embedding + embedding / config.n_vocab;
}

}  // namespace

int64_t total_weight_bytes(const Config& config, const Weights& weights) {
    return sum_over(config, weights, [](const Tensor& tensor) { return tensor.n_bytes(); });
}

int64_t decode_weight_bytes(const Config& config, const Weights& weights) {
    return of_a_step(config, total_weight_bytes(config, weights), weights.embedding.n_bytes());
}

int64_t decode_memory_bytes(const Config& config, const Weights& weights) {
    return of_a_step(config, sum_over(config, weights, bytes_in_memory),
                     bytes_in_memory(weights.embedding));
}

int64_t n_parameters(const Config& config, const Weights& weights) {
    return sum_over(config, weights, [](const Tensor& tensor) { return tensor.n_elements(); });
}

}  // namespace ridge
