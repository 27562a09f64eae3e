#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace ridge::cpu {
namespace {

// All 16 rows of a group in one register: AVX-512 F, BW, VL, DQ and VNNI.
struct Avx512 {
    static constexpr int kRows = 16, kMaxRows = 8;
    static constexpr bool kUnsignedWide = true;
    static constexpr int kPrefetchBytes = 4096;
    // Registers of weight rows, and rows of the input, in a tile of codes and of floats.
    static constexpr int kGemmRegs = 2, kGemmTile = 6, kGemmFloatRegs = 2, kGemmFloatTile = 12;
    using Int = __m512i;
    using Float = __m512;

    static void prefetch(const uint8_t* p) { _mm_prefetch(p, _MM_HINT_T0); }
    static Int load(const uint8_t* p) { return _mm512_loadu_si512(p); }
    static void store_bytes(uint8_t* p, Int v) { _mm512_storeu_si512(p, v); }
    static Int zero() { return _mm512_setzero_si512(); }
    static Int and_bytes(Int v, int mask) {
        return _mm512_and_si512(v, _mm512_set1_epi8(static_cast<char>(mask)));
    }
    static Int or_bits(Int a, Int b) { return _mm512_or_si512(a, b); }
    template <int n>
    static Int shift_left(Int v) {
        return _mm512_slli_epi16(v, n);
    }
    template <int n>
    static Int shift_right(Int v) {
        return _mm512_srli_epi16(v, n);
    }
    static Int wide_codes(Int v) { return v; }
    // kIq4Values, each plus 128.
    static Int iq4_levels(Int codes) {
        const __m128i levels = _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, -127, -115, -103, -90,
                                             -75, -59, -39, -15);
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(levels), codes);
    }
    static Int broadcast_codes(const int8_t* x) {
        int32_t four;
        memcpy(&four, x, sizeof four);
        return _mm512_set1_epi32(four);
    }
    static Int dot(Int acc, Int c, const int8_t* x) {
        return _mm512_dpbusd_epi32(acc, c, broadcast_codes(x));
    }
    static Int dot_wide(Int acc, Int c, const int8_t* x) { return dot(acc, c, x); }
    // times * *x, where times is a power of two, of either sign
    template <int times>
    static Int broadcast_times(const int32_t* x) {
        constexpr int shift = __builtin_ctz(times < 0 ? -times : times);
        static_assert((times < 0 ? -times : times) == 1 << shift);
        const Int product = _mm512_slli_epi32(_mm512_set1_epi32(*x), shift);
        return times < 0 ? _mm512_sub_epi32(zero(), product) : product;
    }

    static Float load_floats(const float* p) { return _mm512_loadu_ps(p); }
    static Float zero_float() { return _mm512_setzero_ps(); }
    static Float to_float(Int v) { return _mm512_cvtepi32_ps(v); }
    static Float broadcast(const float* x) { return _mm512_set1_ps(*x); }
    static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
    static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
    static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
    static Float negate(Float a) { return _mm512_sub_ps(_mm512_set1_ps(-0.0f), a); }
    static void store(float* p, Float v) { _mm512_storeu_ps(p, v); }

    static Float load_f32(const uint8_t* p) { return _mm512_loadu_ps(p); }
    static Float load_f16(const uint8_t* p) { return _mm512_cvtph_ps(load32(p)); }
    static Float load_bf16(const uint8_t* p) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load32(p)), 16));
    }
    // Pairs along k: w[0] of even k, w[1] of odd.
    static void load_bf16_pairs(const uint8_t* p, Float* w) {
        const Int v = load(p);
        w[0] = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
        w[1] = _mm512_castsi512_ps(
            _mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
    }
    static Float load_u8(const uint8_t* p) {
        return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load16(p)));
    }
    static Float load_i8(const uint8_t* p) {
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(p)));
    }
    static Float load_low_nibbles(const uint8_t* p) {
        return _mm512_cvtepi32_ps(
            _mm512_and_si512(_mm512_cvtepu8_epi32(load16(p)), _mm512_set1_epi32(15)));
    }
    static Float load_high_nibbles(const uint8_t* p) {
        return _mm512_cvtepi32_ps(_mm512_srli_epi32(_mm512_cvtepu8_epi32(load16(p)), 4));
    }

  private:
    static __m128i load16(const uint8_t* p) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    }
    static __m256i load32(const uint8_t* p) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    }
};

}  // namespace
}  // namespace ridge::cpu
