#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace ridge::cpu {
namespace {

// Four rows in a register: Advanced SIMD with the 4-way dot product of signed bytes, which takes
// one of its operands from a lane of a register: the codes of 16 elements of an activation row are
// loaded once and never spread.
struct Neon4 {
    static constexpr int kRows = 4;
    static constexpr bool kUnsignedWide = false, kByteShifts = true;
    static constexpr int kPrefetchBytes = 2048;
    using Int = uint8x16_t;
    using Float = float32x4_t;

    static void prefetch(const uint8_t* p) { __builtin_prefetch(p); }
    static Int load(const uint8_t* p) { return vld1q_u8(p); }
    static void store_bytes(uint8_t* p, Int v) { vst1q_u8(p, v); }
    static Int zero() { return vdupq_n_u8(0); }
    static Int and_bytes(Int v, int mask) {
        return vandq_u8(v, vdupq_n_u8(static_cast<uint8_t>(mask)));
    }
    static Int or_bits(Int a, Int b) { return vorrq_u8(a, b); }
    template <int n>
    static Int shift_left(Int v) {
        return vshlq_n_u8(v, n);
    }
    template <int n>
    static Int shift_right(Int v) {
        return vshrq_n_u8(v, n);
    }
    static Int wide_codes(Int v) { return veorq_u8(v, vdupq_n_u8(0x80)); }
    // kIq4Values
    static Int iq4_levels(Int codes) {
        const int8x16_t levels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
        return vreinterpretq_u8_s8(vqtbl1q_s8(levels, codes));
    }
    static int8x16_t load_codes(const int8_t* x) { return vld1q_s8(x); }
    // Adds the products of c with codes 4 lane .. 4 lane + 3.
    template <int lane>
    static Int dot_lane(Int acc, Int c, int8x16_t codes) {
        return from_int(vdotq_laneq_s32(to_int(acc), vreinterpretq_s8_u8(c), codes, lane));
    }
    template <int times>
    static Int broadcast_times(const int32_t* x) {
        return from_int(vdupq_n_s32(times * *x));
    }

    static Float load_floats(const float* p) { return vld1q_f32(p); }
    static Float zero_float() { return vdupq_n_f32(0); }
    static Float to_float(Int v) { return vcvtq_f32_s32(to_int(v)); }
    static Float broadcast(const float* x) { return vdupq_n_f32(*x); }
    static Float add(Float a, Float b) { return vaddq_f32(a, b); }
    static Float mul(Float a, Float b) { return vmulq_f32(a, b); }
    static Float fma(Float a, Float b, Float c) { return vfmaq_f32(c, a, b); }
    static Float negate(Float a) { return vnegq_f32(a); }
    static void store(float* p, Float v) { vst1q_f32(p, v); }

    static Float load_f32(const uint8_t* p) { return vreinterpretq_f32_u8(vld1q_u8(p)); }
    static Float load_f16(const uint8_t* p) {
        return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
    }
    static Float load_bf16(const uint8_t* p) {
        return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
    }
    // Pairs along k: w[0] of even k, w[1] of odd.
    static void load_bf16_pairs(const uint8_t* p, Float* w) {
        const uint32x4_t v = vreinterpretq_u32_u8(vld1q_u8(p));
        w[0] = vreinterpretq_f32_u32(vshlq_n_u32(v, 16));
        w[1] = vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xffff0000u)));
    }
    static Float load_u8(const uint8_t* p) { return vcvtq_f32_u32(load_bytes(p)); }
    static Float load_i8(const uint8_t* p) {
        const int32x4_t wide = vshlq_n_s32(vreinterpretq_s32_u32(load_bytes(p)), 24);
        return vcvtq_f32_s32(vshrq_n_s32(wide, 24));
    }
    static Float load_low_nibbles(const uint8_t* p) {
        return vcvtq_f32_u32(vandq_u32(load_bytes(p), vdupq_n_u32(15)));
    }
    static Float load_high_nibbles(const uint8_t* p) {
        return vcvtq_f32_u32(vshrq_n_u32(load_bytes(p), 4));
    }

    static Float splat(float x) { return vdupq_n_f32(x); }
    static Float splat_f16(const uint8_t* p) {
        uint16_t bits;
        memcpy(&bits, p, sizeof bits);
        return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits)));
    }
    static Float sub(Float a, Float b) { return vsubq_f32(a, b); }
    // Of NaN: b, which the instruction for maxima would not give.
    static Float max(Float a, Float b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
    static float reduce_max(Float v) { return vmaxvq_f32(v); }
    static float reduce_add(Float v) { return vaddvq_f32(v); }
    // p * 2^n, where shifted is n + 1.5 * 2^23 and the result is a normal number.
    static Float add_exponent(Float p, Float shifted) {
        const uint32x4_t exponent = vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23);
        return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p), exponent));
    }
    // x < limit ? 0 : v
    static Float zero_below(Float x, Float limit, Float v) {
        return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v), vcltq_f32(x, limit)));
    }
    // v in the first n lanes, `other` in those behind.
    static Float keep_first(Float v, int n, Float other) {
        const int32x4_t lane = {0, 1, 2, 3};
        return vbslq_f32(vcltq_s32(lane, vdupq_n_s32(n)), v, other);
    }
    static void store_f16(uint8_t* p, Float v) { vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32(v))); }
    static void store_bf16(uint8_t* p, Float v) {
        const uint32x4_t bits = vreinterpretq_u32_f32(v);
        const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
        const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
        const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
        const uint32x4_t upper = vbslq_u32(vceqq_f32(v, v), rounded, quiet);
        vst1_u8(p, vreinterpret_u8_u16(vshrn_n_u32(upper, 16)));
    }

  private:
    static int32x4_t to_int(Int v) { return vreinterpretq_s32_u8(v); }
    static Int from_int(int32x4_t v) { return vreinterpretq_u8_s32(v); }
    // Four bytes, in lanes of 32 bits.
    static uint32x4_t load_bytes(const uint8_t* p) {
        uint32_t four;
        memcpy(&four, p, sizeof four);
        const uint8x8_t bytes = vreinterpret_u8_u32(vdup_n_u32(four));
        return vmovl_u16(vget_low_u16(vmovl_u8(bytes)));
    }
};

// Two of V as one of twice as many rows.
template <class V>
struct Twice {
    static constexpr int kRows = 2 * V::kRows;
    static constexpr bool kUnsignedWide = V::kUnsignedWide, kByteShifts = V::kByteShifts;
    static constexpr int kPrefetchBytes = V::kPrefetchBytes;
    struct Int {
        typename V::Int low, high;
    };
    struct Float {
        typename V::Float low, high;
    };

    static void prefetch(const uint8_t* p) { V::prefetch(p); }
    static Int load(const uint8_t* p) { return {V::load(p), V::load(p + 4 * V::kRows)}; }
    static void store_bytes(uint8_t* p, Int v) {
        V::store_bytes(p, v.low);
        V::store_bytes(p + 4 * V::kRows, v.high);
    }
    static Int zero() { return {V::zero(), V::zero()}; }
    static Int and_bytes(Int v, int mask) {
        return {V::and_bytes(v.low, mask), V::and_bytes(v.high, mask)};
    }
    static Int or_bits(Int a, Int b) {
        return {V::or_bits(a.low, b.low), V::or_bits(a.high, b.high)};
    }
    template <int n>
    static Int shift_left(Int v) {
        return {V::template shift_left<n>(v.low), V::template shift_left<n>(v.high)};
    }
    template <int n>
    static Int shift_right(Int v) {
        return {V::template shift_right<n>(v.low), V::template shift_right<n>(v.high)};
    }
    static Int wide_codes(Int v) { return {V::wide_codes(v.low), V::wide_codes(v.high)}; }
    static Int iq4_levels(Int codes) {
        return {V::iq4_levels(codes.low), V::iq4_levels(codes.high)};
    }
    static auto load_codes(const int8_t* x) { return V::load_codes(x); }
    template <int lane, class Codes>
    static Int dot_lane(Int acc, Int c, Codes codes) {
        return {V::template dot_lane<lane>(acc.low, c.low, codes),
                V::template dot_lane<lane>(acc.high, c.high, codes)};
    }
    template <int times>
    static Int broadcast_times(const int32_t* x) {
        const auto both = V::template broadcast_times<times>(x);
        return {both, both};
    }

    static Float load_floats(const float* p) {
        return {V::load_floats(p), V::load_floats(p + V::kRows)};
    }
    static Float zero_float() { return {V::zero_float(), V::zero_float()}; }
    static Float to_float(Int v) { return {V::to_float(v.low), V::to_float(v.high)}; }
    static Float broadcast(const float* x) { return splat(*x); }
    static Float add(Float a, Float b) { return {V::add(a.low, b.low), V::add(a.high, b.high)}; }
    static Float mul(Float a, Float b) { return {V::mul(a.low, b.low), V::mul(a.high, b.high)}; }
    static Float fma(Float a, Float b, Float c) {
        return {V::fma(a.low, b.low, c.low), V::fma(a.high, b.high, c.high)};
    }
    static Float negate(Float a) { return {V::negate(a.low), V::negate(a.high)}; }
    static void store(float* p, Float v) {
        V::store(p, v.low);
        V::store(p + V::kRows, v.high);
    }

    static Float load_f32(const uint8_t* p) {
        return {V::load_f32(p), V::load_f32(p + 4 * V::kRows)};
    }
    static Float load_f16(const uint8_t* p) {
        return {V::load_f16(p), V::load_f16(p + 2 * V::kRows)};
    }
    static Float load_bf16(const uint8_t* p) {
        return {V::load_bf16(p), V::load_bf16(p + 2 * V::kRows)};
    }
    static void load_bf16_pairs(const uint8_t* p, Float* w) {
        typename V::Float low[2], high[2];
        V::load_bf16_pairs(p, low);
        V::load_bf16_pairs(p + 4 * V::kRows, high);
        w[0] = {low[0], high[0]};
        w[1] = {low[1], high[1]};
    }
    static Float load_u8(const uint8_t* p) { return {V::load_u8(p), V::load_u8(p + V::kRows)}; }
    static Float load_i8(const uint8_t* p) { return {V::load_i8(p), V::load_i8(p + V::kRows)}; }
    static Float load_low_nibbles(const uint8_t* p) {
        return {V::load_low_nibbles(p), V::load_low_nibbles(p + V::kRows)};
    }
    static Float load_high_nibbles(const uint8_t* p) {
        return {V::load_high_nibbles(p), V::load_high_nibbles(p + V::kRows)};
    }

    static Float splat(float x) { return {V::splat(x), V::splat(x)}; }
    static Float splat_f16(const uint8_t* p) { return {V::splat_f16(p), V::splat_f16(p)}; }
    static Float sub(Float a, Float b) { return {V::sub(a.low, b.low), V::sub(a.high, b.high)}; }
    static Float max(Float a, Float b) { return {V::max(a.low, b.low), V::max(a.high, b.high)}; }
    static float reduce_max(Float v) { return V::reduce_max(V::max(v.low, v.high)); }
    static float reduce_add(Float v) { return V::reduce_add(V::add(v.low, v.high)); }
    static Float add_exponent(Float p, Float shifted) {
        return {V::add_exponent(p.low, shifted.low), V::add_exponent(p.high, shifted.high)};
    }
    static Float zero_below(Float x, Float limit, Float v) {
        return {V::zero_below(x.low, limit.low, v.low), V::zero_below(x.high, limit.high, v.high)};
    }
    static Float keep_first(Float v, int n, Float other) {
        return {V::keep_first(v.low, n, other.low),
                V::keep_first(v.high, n - V::kRows, other.high)};
    }
    static void store_f16(uint8_t* p, Float v) {
        V::store_f16(p, v.low);
        V::store_f16(p + 2 * V::kRows, v.high);
    }
    static void store_bf16(uint8_t* p, Float v) {
        V::store_bf16(p, v.low);
        V::store_bf16(p + 2 * V::kRows, v.high);
    }
};

// Half a group in two registers. A block's codes are 16 of the 32 registers and stay there while
// several activation rows are multiplied.
struct Neon8 : Twice<Neon4> {
    static constexpr int kMaxRows = 4;
    // Registers of weight rows in a tile of codes; the same, and rows of the input, of floats.
    static constexpr int kGemmRegs = 1, kGemmFloatRegs = 2, kGemmFloatTile = 6;
    // Attention: registers that hold sums of a decode step; rows and vectors of a prompt's tile.
    static constexpr int kSumRegisters = 8, kPromptRows = 6, kPromptVectors = 2;
};

// A whole group in four: what one row reads in one pass, a part of a block's codes at a time.
struct Neon16 : Twice<Twice<Neon4>> {
    static constexpr int kMaxRows = 2;
};

}  // namespace
}  // namespace ridge::cpu
