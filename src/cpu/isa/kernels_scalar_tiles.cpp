#include "cpu/isa/tile_attention.h"
#include "cpu/isa/tile_gemm.h"
#include "cpu/isa/tiles_scalar.h"
#include "cpu/isa/vector_scalar.h"

namespace ridge::cpu {

void add_scalar_tile_kernels(Kernels& kernels) {
    fill_tile_gemm_kernels<ScalarTiles, Scalar>(kernels);
    kernels.attention.prompt_bf16 = tile_prompt_unit<ScalarTiles, Scalar>();
}

}  // namespace ridge::cpu
