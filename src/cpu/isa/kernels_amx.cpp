#include "cpu/isa/tile_attention.h"
#include "cpu/isa/tile_gemm.h"
#include "cpu/isa/tiles_amx.h"
#include "cpu/isa/vector_avx512_bf16.h"

namespace ridge::cpu {

void add_amx_kernels(Kernels& kernels) {
    fill_tile_gemm_kernels<AmxTiles, Avx512Bf16>(kernels);
    kernels.attention.prompt_bf16 = tile_prompt_unit<AmxTiles, Avx512Bf16>();
}

}  // namespace ridge::cpu
