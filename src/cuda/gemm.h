#pragma once

#include <string_view>

#include "cuda/product.h"

namespace ridge::cuda {

// How large the pieces are that blocks compute. What a row's result is does not depend on it.
enum class GemmTiles : uint8_t { kFitting, kLarge, kMedium, kSmall };

// What `ridge tune` chooses among for one shape (MatmulTuning::way), by the numbers that files
// have: tiles of a size, of weights in codes that a kernel of its own unpacks first or that each
// block unpacks. Reckoned: what suits the sizes and the device, which is also what runs where
// shared memory or scratch has no room for the way that was chosen.
enum class GemmWay : int {
    kReckoned,
    kLarge,
    kMedium,
    kSmall,
    kMediumInBlocks,
    kSmallInBlocks,
};

// Rows of prompts, on tensor units in f16: `call` is_in_tiles(). Also when planning, since it takes
// scratch. kFitting: what suits the sizes and the device, as does kLarge where shared memory has no
// room for it. Of kLarge codes are unpacked by a kernel of its own, of smaller ones by each block.
void run_gemm(Step& s, const ProductCall& call, GemmTiles tiles = GemmTiles::kFitting);

// matmul of rows of prompts; decode rows, and weights without tiles, go to the entry below.
void matmul_by_class(Step& s, Rows x, LinearGroup weights, Rows out);

// Stages of prompt rows with residuals and SwiGLU within the products. Decode rows, and weights
// without tiles, go to the entry below.
void attn_out_of_prompts(Step& s, const Layer& layer, Rows a, Rows x);
void ffn_in_of_prompts(Step& s, const Layer& layer, Rows x, Rows out);
void ffn_out_of_prompts(Step& s, const Layer& layer, Rows f, Rows x);

}  // namespace ridge::cuda
