#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "cpu/isa/vector_twice.h"

namespace ridge::cpu {
namespace {

// Eight rows, half a group, in a register: AVX2, FMA and F16C. The 4-way dot product is made of
// products of unsigned and signed bytes summed in pairs to int16 and then to int32. The pairs do
// not overflow: codes of up to 6 bits give 2 * 63 * 127; wide codes are taken as signed, and their
// sign is moved to the activations: 2 * 128 * 127.
struct Avx2 {
    static constexpr int kRows = 8, kMaxRows = 4;
    static constexpr bool kUnsignedWide = false;
    static constexpr int kPrefetchBytes = 8192;
    // Registers of weight rows in a tile of codes; the same, and rows of the input, of floats.
    static constexpr int kGemmRegs = 1, kGemmFloatRegs = 2, kGemmFloatTile = 6;
    // Attention: registers that hold sums of a decode step; rows and vectors of a prompt's tile.
    static constexpr int kSumRegisters = 8, kPromptRows = 6, kPromptVectors = 2;
    using Int = __m256i;
    using Float = __m256;

    static void prefetch(const uint8_t* p) { _mm_prefetch(p, _MM_HINT_T0); }
    static Int load(const uint8_t* p) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    }
    static void store_bytes(uint8_t* p, Int v) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
    }
    static Int zero() { return _mm256_setzero_si256(); }
    static Int and_bytes(Int v, int mask) {
        return _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(mask)));
    }
    static Int or_bits(Int a, Int b) { return _mm256_or_si256(a, b); }
    template <int n>
    static Int shift_left(Int v) {
        return _mm256_slli_epi16(v, n);
    }
    template <int n>
    static Int shift_right(Int v) {
        return _mm256_srli_epi16(v, n);
    }
    static Int wide_codes(Int v) {
        return _mm256_xor_si256(v, _mm256_set1_epi8(static_cast<char>(0x80)));
    }
    // kIq4Values
    static Int iq4_levels(Int codes) {
        const __m128i levels =
            _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), codes);
    }
    static Int broadcast_codes(const int8_t* x) {
        int32_t four;
        memcpy(&four, x, sizeof four);
        return _mm256_set1_epi32(four);
    }
    static Int add_pairs(Int acc, Int pairs) {
        return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    static Int dot(Int acc, Int c, const int8_t* x) {
        return add_pairs(acc, _mm256_maddubs_epi16(c, broadcast_codes(x)));
    }
    static Int dot_wide(Int acc, Int c, const int8_t* x) {
        const Int signed_x = _mm256_sign_epi8(broadcast_codes(x), c);
        return add_pairs(acc, _mm256_maddubs_epi16(_mm256_abs_epi8(c), signed_x));
    }
    template <int times>
    static Int broadcast_times(const int32_t* x) {
        constexpr int shift = __builtin_ctz(times < 0 ? -times : times);
        static_assert((times < 0 ? -times : times) == 1 << shift);
        const Int product = _mm256_slli_epi32(_mm256_set1_epi32(*x), shift);
        return times < 0 ? _mm256_sub_epi32(zero(), product) : product;
    }

    static Float load_floats(const float* p) { return _mm256_loadu_ps(p); }
    static Float zero_float() { return _mm256_setzero_ps(); }
    static Float to_float(Int v) { return _mm256_cvtepi32_ps(v); }
    static Float broadcast(const float* x) { return _mm256_set1_ps(*x); }
    static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
    static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
    static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
    static Float negate(Float a) { return _mm256_sub_ps(_mm256_set1_ps(-0.0f), a); }
    static void store(float* p, Float v) { _mm256_storeu_ps(p, v); }

    static Float load_f32(const uint8_t* p) {
        return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
    }
    static Float load_f16(const uint8_t* p) { return _mm256_cvtph_ps(load16(p)); }
    static Float load_bf16(const uint8_t* p) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p)), 16));
    }
    static void load_bf16_pairs(const uint8_t* p, Float* w) { bf16_pairs(load(p), w); }
    static void bf16_pairs(Int v, Float* w) {
        w[0] = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
        w[1] = _mm256_castsi256_ps(
            _mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
    }
    // Compact BF16: what the table says of the low nibbles of v, or of the high ones.
    using Table = __m256i;
    static Table load_table(const uint8_t* p) { return _mm256_broadcastsi128_si256(load16(p)); }
    template <bool high>
    static Int look_up_nibbles(Table table, Int v) {
        return _mm256_shuffle_epi8(table, and_bytes(high ? _mm256_srli_epi16(v, 4) : v, 15));
    }
    // Bytes of low and high in turn; of each 16 the first eight to out[0], the others to out[1].
    static void zip_bytes(Int low, Int high, Int* out) {
        out[0] = _mm256_unpacklo_epi8(low, high);
        out[1] = _mm256_unpackhi_epi8(low, high);
    }
    static Float load_u8(const uint8_t* p) {
        return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load8(p)));
    }
    static Float load_i8(const uint8_t* p) {
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load8(p)));
    }
    static Float load_low_nibbles(const uint8_t* p) {
        return _mm256_cvtepi32_ps(
            _mm256_and_si256(_mm256_cvtepu8_epi32(load8(p)), _mm256_set1_epi32(15)));
    }
    static Float load_high_nibbles(const uint8_t* p) {
        return _mm256_cvtepi32_ps(_mm256_srli_epi32(_mm256_cvtepu8_epi32(load8(p)), 4));
    }

    static Float splat(float x) { return _mm256_set1_ps(x); }
    static Float splat_f16(const uint8_t* p) {
        int16_t bits;
        memcpy(&bits, p, sizeof bits);
        return _mm256_cvtph_ps(_mm_set1_epi16(bits));
    }
    static Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
    static Float max(Float a, Float b) { return _mm256_max_ps(a, b); }  // of NaN: b
    static float reduce_max(Float v) {
        __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        four = _mm_max_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_max_ps(four, _mm_movehdup_ps(four)));
    }
    static float reduce_add(Float v) {
        __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        four = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ps(four, _mm_movehdup_ps(four)));
    }
    // p * 2^n, where shifted is n + 1.5 * 2^23 and the result is a normal number.
    static Float add_exponent(Float p, Float shifted) {
        return _mm256_castsi256_ps(_mm256_add_epi32(
            _mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
    }
    // x < limit ? 0 : v
    static Float zero_below(Float x, Float limit, Float v) {
        return _mm256_and_ps(_mm256_cmp_ps(x, limit, _CMP_NLT_UQ), v);
    }
    // v in the first n lanes, `other` in those behind.
    static Float keep_first(Float v, int n, Float other) {
        const Int lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        const Int kept = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
        return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(kept));
    }
    static void store_f16(uint8_t* p, Float v) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                         _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    static void store_bf16(uint8_t* p, Float v) {
        const Int bits = _mm256_castps_si256(v);
        const Int odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        const Int rounded =
            _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
        const Int quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
        const Int is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
        const Int upper = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
        _mm_storeu_si128(
            reinterpret_cast<__m128i*>(p),
            _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1)));
    }

  private:
    static __m128i load8(const uint8_t* p) {
        return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    }
    static __m128i load16(const uint8_t* p) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    }
};

// A whole group: for one row of floats, whose two chains of sums would wait for each other.
using Avx2Group = Twice<Avx2>;

}  // namespace
}  // namespace ridge::cpu
