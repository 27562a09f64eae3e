#include "cuda/product.h"

#include "cuda/tiles.h"

namespace ridge::cuda {

bool have_one_kind(const Tensor& a, const Tensor& b) {
    return a.format == b.format && a.group_size == b.group_size && a.scale_format == b.scale_format;
}

bool is_in_tiles(const Tensor& weight) {
    return weight.layout == &tiles_layout();
}

std::string_view why_not_in_tiles(const Tensor& weight) {
    if (is_in_tiles(weight)) return "";
    return has_tiles(weight.format->id) ? "weights are not packed" : "weights of F32";
}

bool is_in_tiles(const ProductCall& call) {
    for (int i = 0; i < call.weights.n_weights; i++) {
        if (!is_in_tiles(call.weights.weights[static_cast<size_t>(i)]->weight)) return false;
    }
    if (call.epilogue != Epilogue::kSwiglu) return true;
    if (call.weights.n_weights != 2) return false;
    const Tensor &gate = call.weights.weights[0]->weight, &up = call.weights.weights[1]->weight;
    return have_one_kind(gate, up) && gate.n_rows() == up.n_rows();
}

}  // namespace ridge::cuda
