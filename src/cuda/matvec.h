#pragma once

#include <cstdint>

#include "model/tables.h"

namespace ridge::cuda {

// What becomes of a product p, the bias included.
enum class Epilogue : uint8_t {
    kStore,   // out = p
    kAdd,     // out += p
    kSwiglu,  // out = silu(p of the first weight) * (p of the second)
};

struct MatvecCall {
    Rows x;  // [n_rows, d_in] f32
    LinearGroup weights;
    Rows out;                      // kSwiglu: [n_rows, d_out of one]; else of all, side by side
    const Tensor* norm = nullptr;  // [d_in]: x is normed with it first
    float eps = 0;
    Epilogue epilogue = Epilogue::kStore;
};

// Whether run_matvec() can do it: all weights are in tiles, and two of a SwiGLU are of one kind.
bool is_matvec(const MatvecCall& call);
void run_matvec(const Step& s, const MatvecCall& call);

// Rows of x times weights in tiles (cuda/tiles.h). Weights of other layouts, F32 among them, go to
// the entry below.
void matmul_tiles(Step& s, Rows x, LinearGroup weights, Rows out);
std::string_view unfit_for_tiles(const Step& s, const Rows& x, const LinearGroup& weights,
                                 const Rows& out);

// Rows of a table in tiles.
void embed_rows_tiles(Step& s, const Tensor& table, Tokens token, Rows out);
std::string_view unfit_for_embedding(const Step& s, const Tensor& table, const Tokens& token,
                                     const Rows& out);

}  // namespace ridge::cuda
