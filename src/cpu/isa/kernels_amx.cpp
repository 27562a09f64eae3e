#include "cpu/isa/probes.h"
#include "cpu/isa/tile_attention.h"
#include "cpu/isa/tile_gemm.h"
#include "cpu/isa/tiles_amx.h"
#include "cpu/isa/vector_avx512_bf16.h"

namespace ridge::cpu {
namespace {

// Four tiles of sums: two tiles of each operand, each times each.
template <bool int8>
uint64_t multiply_tiles(const uint8_t* operands, int64_t n_rounds) {
    AmxTiles::begin();
    AmxTiles::zero<0>();
    AmxTiles::zero<1>();
    AmxTiles::zero<2>();
    AmxTiles::zero<3>();
    AmxTiles::load<4>(operands, 64);
    AmxTiles::load<5>(operands + 1024, 64);
    AmxTiles::load<6>(operands + 2048, 64);
    AmxTiles::load<7>(operands + 3072, 64);
    for (int64_t round = 0; round < n_rounds; round++) {
        if constexpr (int8) {
            AmxTiles::dot_int8<0, 4, 6>();
            AmxTiles::dot_int8<1, 4, 7>();
            AmxTiles::dot_int8<2, 5, 6>();
            AmxTiles::dot_int8<3, 5, 7>();
        } else {
            AmxTiles::dot_bf16<0, 4, 6>();
            AmxTiles::dot_bf16<1, 4, 7>();
            AmxTiles::dot_bf16<2, 5, 6>();
            AmxTiles::dot_bf16<3, 5, 7>();
        }
    }
    alignas(64) uint8_t sums[4][1024];
    AmxTiles::store<0>(sums[0], 64);
    AmxTiles::store<1>(sums[1], 64);
    AmxTiles::store<2>(sums[2], 64);
    AmxTiles::store<3>(sums[3], 64);
    AmxTiles::end();
    return fold(sums, sizeof sums);
}

constexpr int64_t kTileSums = 16 * 16, kTilesOfRound = 4;

}  // namespace

void add_amx_kernels(Kernels& kernels) {
    fill_tile_gemm_kernels<AmxTiles, Avx512Bf16>(kernels);
    kernels.attention.prompt_bf16 = tile_prompt_unit<AmxTiles, Avx512Bf16>();
    kernels.probes.arithmetic[kBf16Matrix] = {"tdpbf16ps", 2 * kTileSums * 32 * kTilesOfRound,
                                              multiply_tiles<false>};
    kernels.probes.arithmetic[kInt8Matrix] = {"tdpbssd", 2 * kTileSums * 64 * kTilesOfRound,
                                              multiply_tiles<true>};
}

}  // namespace ridge::cpu
