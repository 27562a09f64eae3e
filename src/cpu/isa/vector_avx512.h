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
    static constexpr int kPrefetchBytes = 8192;
    // Registers of weight rows in a tile of codes; the same, and rows of the input, of floats.
    static constexpr int kGemmRegs = 2, kGemmFloatRegs = 2, kGemmFloatTile = 12;
    // Attention: registers that hold sums of a decode step; rows and vectors of a prompt's tile.
    static constexpr int kSumRegisters = 16, kPromptRows = 6, kPromptVectors = 4;
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
    static void load_bf16_pairs(const uint8_t* p, Float* w) { bf16_pairs(load(p), w); }
    static void bf16_pairs(Int v, Float* w) {
        w[0] = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
        w[1] = _mm512_castsi512_ps(
            _mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
    }
    // Compact BF16: what the table says of the low nibbles of v, or of the high ones.
    using Table = __m512i;
    static Table load_table(const uint8_t* p) { return _mm512_broadcast_i32x4(load16(p)); }
    template <bool high>
    static Int look_up_nibbles(Table table, Int v) {
        return _mm512_shuffle_epi8(table, and_bytes(high ? _mm512_srli_epi16(v, 4) : v, 15));
    }
    // Bytes of low and high in turn; of each 16 the first eight to out[0], the others to out[1].
    static void zip_bytes(Int low, Int high, Int* out) {
        out[0] = _mm512_unpacklo_epi8(low, high);
        out[1] = _mm512_unpackhi_epi8(low, high);
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

    static Float splat(float x) { return _mm512_set1_ps(x); }
    static Float splat_f16(const uint8_t* p) {
        int16_t bits;
        memcpy(&bits, p, sizeof bits);
        return _mm512_cvtph_ps(_mm256_set1_epi16(bits));
    }
    static Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
    static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }  // of NaN: b
    // In halves. g++ 12 warns of the intrinsics that reduce, and of those that take a half.
    static float reduce_max(Float v) {
        const __m256 eight = _mm256_max_ps(half_of<0>(v), half_of<1>(v));
        __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
        four = _mm_max_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_max_ps(four, _mm_movehdup_ps(four)));
    }
    static float reduce_add(Float v) {
        const __m256 eight = _mm256_add_ps(half_of<0>(v), half_of<1>(v));
        __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
        four = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ps(four, _mm_movehdup_ps(four)));
    }
    // p * 2^n, where shifted is n + 1.5 * 2^23 and the result is a normal number.
    static Float add_exponent(Float p, Float shifted) {
        return _mm512_castsi512_ps(_mm512_add_epi32(
            _mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(shifted), 23)));
    }
    // x < limit ? 0 : v
    static Float zero_below(Float x, Float limit, Float v) {
        return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), v);
    }
    // v in the first n lanes, `other` in those behind.
    static Float keep_first(Float v, int n, Float other) {
        const auto mask = static_cast<__mmask16>(n >= 16 ? 0xffff : (1 << n) - 1);
        return _mm512_mask_mov_ps(other, mask, v);
    }
    static void store_f16(uint8_t* p, Float v) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                            _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    static void store_bf16(uint8_t* p, Float v) {
        const Int bits = _mm512_castps_si512(v);
        const Int odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        const Int rounded =
            _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
        const Int quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
        const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        const Int upper = _mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, is_nan, quiet), 16);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(upper));
    }

  private:
    template <int half>
    static __m256 half_of(Float v) {
        return _mm512_maskz_extractf32x8_ps(0xff, v, half);
    }
    static __m128i load16(const uint8_t* p) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    }
    static __m256i load32(const uint8_t* p) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    }
};

}  // namespace
}  // namespace ridge::cpu
