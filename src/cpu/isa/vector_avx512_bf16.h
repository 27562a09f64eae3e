#pragma once

#include "cpu/isa/vector_avx512.h"

namespace ridge::cpu {
namespace {

struct Avx512Bf16 : Avx512 {
    static Int splat_pair(uint32_t pair) { return _mm512_set1_epi32(static_cast<int>(pair)); }
    // acc[i] += a[i][0] b[i][0] + a[i][1] b[i][1]
    static Float dot_bf16(Float acc, Int a, Int b) {
        return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
    }
    // Rounded to nearest even: a's numbers, then b's.
    static Int pack_bf16(Float a, Float b) { return (Int)_mm512_cvtne2ps_pbh(b, a); }
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
