#pragma once

#include <cstdint>
#include <string_view>

#include "model/tables.h"

namespace ridge::cuda {

// What becomes of a product p, the bias included.
enum class Epilogue : uint8_t {
    kStore,   // out = p
    kAdd,     // out += p
    kSwiglu,  // out = silu(p of the first weight) * (p of the second)
};

// Rows times weights in tiles (cuda/tiles.h), for matvec and gemm.
struct ProductCall {
    Rows x;  // [n_rows, d_in] f32
    LinearGroup weights;
    Rows out;                      // kSwiglu: [n_rows, d_out of one]; else of all, side by side
    const Tensor* norm = nullptr;  // [d_in]: x is normed with it first
    float eps = 0;
    Epilogue epilogue = Epilogue::kStore;
};

// Whether one launch can multiply both.
bool have_one_kind(const Tensor& a, const Tensor& b);
bool is_in_tiles(const Tensor& weight);
// Why a weight is not, as a fallback tells it; "" where it is.
std::string_view why_not_in_tiles(const Tensor& weight);
// Whether all weights are in tiles, and two of a SwiGLU are of one kind.
bool is_in_tiles(const ProductCall& call);

}  // namespace ridge::cuda
