#pragma once

#include <string_view>

#include "cuda/matvec.h"
#include "model/tables.h"

namespace ridge::cuda {

// Rows of prompts times weights in tiles (cuda/tiles.h), on tensor units in bf16.
struct GemmCall {
    Rows x;  // [n_rows, d_in] f32
    LinearGroup weights;
    Rows out;                      // kSwiglu: [n_rows, d_out of one]; else of all, side by side
    const Tensor* norm = nullptr;  // [d_in]: x is normed with it first
    float eps = 0;
    Epilogue epilogue = Epilogue::kStore;
};

// How large the pieces are that blocks compute. What a row's result is does not depend on it.
enum class GemmTiles : uint8_t { kFitting, kLarge, kMedium, kSmall };

// Whether run_gemm() can do it: all weights are in tiles, and two of a SwiGLU are of one kind.
bool is_gemm(const GemmCall& call);
// Also when planning, since it takes scratch. kFitting: what suits the sizes and the device, as
// does kLarge where shared memory has no room for it.
void run_gemm(Step& s, const GemmCall& call, GemmTiles tiles = GemmTiles::kFitting);

// matmul of rows of prompts; decode rows, and weights without tiles, go to the entry below.
void matmul_by_class(Step& s, Rows x, LinearGroup weights, Rows out);

// Stages of prompt rows with residuals and SwiGLU within the products. Decode rows, and weights
// without tiles, go to the entry below.
void attn_out_of_prompts(Step& s, const Layer& layer, Rows a, Rows x);
void ffn_in_of_prompts(Step& s, const Layer& layer, Rows x, Rows out);
void ffn_out_of_prompts(Step& s, const Layer& layer, Rows f, Rows x);

}  // namespace ridge::cuda
