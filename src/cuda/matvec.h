#pragma once

#include <string_view>

#include "cuda/product.h"

namespace ridge::cuda {

// Rows of decode: `call` is_in_tiles().
void run_matvec(const Step& s, const ProductCall& call);

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
