#pragma once

#include "cpu/isa/vector_avx512.h"

namespace ridge::cpu {
namespace {

struct Avx512Bf16 : Avx512 {
    // Byte i of each lane of c, as floats.
    template <int i>
    static Float code_floats(Int c) {
        const __m512i spread = _mm512_broadcast_i32x4(
            _mm_setr_epi8(i, -1, -1, -1, 4 + i, -1, -1, -1, 8 + i, -1, -1, -1, 12 + i, -1, -1, -1));
        return _mm512_cvtepi32_ps(_mm512_shuffle_epi8(c, spread));
    }
    // Rounded to nearest even, in pairs: out [16][2].
    static void store_bf16_pairs(uint8_t* out, Float even, Float odd) {
        alignas(64) static constexpr uint16_t kInterleave[32] = {
            0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
            8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
        const auto both = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
        _mm512_storeu_si512(out, _mm512_permutexvar_epi16(_mm512_load_si512(kInterleave), both));
    }
};

}  // namespace
}  // namespace ridge::cpu
