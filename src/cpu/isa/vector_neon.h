#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "cpu/isa/vector_twice.h"

namespace ridge::cpu {
namespace {

// Four rows in a register: Advanced SIMD with the 4-way dot product of signed bytes, which takes
// one of its operands from a lane of a register: the codes of 16 elements of an activation row are
// loaded once and never spread.
struct Neon4 {
    static constexpr int kRows = 4;
    static constexpr bool kUnsignedWide = false, kByteShifts = true;
    static constexpr int kPrefetchBytes = 4096;
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
    static void load_bf16_pairs(const uint8_t* p, Float* w) { bf16_pairs(load(p), w); }
    static void bf16_pairs(Int pairs, Float* w) {
        const uint32x4_t v = vreinterpretq_u32_u8(pairs);
        w[0] = vreinterpretq_f32_u32(vshlq_n_u32(v, 16));
        w[1] = vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xffff0000u)));
    }
    // Compact BF16: what the table says of the low nibbles of v, or of the high ones.
    using Table = uint8x16_t;
    static Table load_table(const uint8_t* p) { return vld1q_u8(p); }
    template <bool high>
    static Int look_up_nibbles(Table table, Int v) {
        return vqtbl1q_u8(table, high ? vshrq_n_u8(v, 4) : vandq_u8(v, vdupq_n_u8(15)));
    }
    // Bytes of low and high in turn, the first eight of each to out[0], the others to out[1].
    static void zip_bytes(Int low, Int high, Int* out) {
        out[0] = vzip1q_u8(low, high);
        out[1] = vzip2q_u8(low, high);
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

// Half a group in two registers. A block's codes are 16 of the 32 registers and stay there while
// several activation rows are multiplied.
struct Neon8 : Twice<Neon4> {
    static constexpr int kMaxRows = 4;
    static constexpr bool kByteShifts = true;
    // Registers of weight rows in a tile of codes; the same, and rows of the input, of floats.
    static constexpr int kGemmRegs = 1, kGemmFloatRegs = 2, kGemmFloatTile = 6;
    // Attention: registers that hold sums of a decode step; rows and vectors of a prompt's tile.
    static constexpr int kSumRegisters = 8, kPromptRows = 6, kPromptVectors = 2;
};

// A whole group in four: what one row reads in one pass, a part of a block's codes at a time.
struct Neon16 : Twice<Twice<Neon4>> {
    static constexpr int kMaxRows = 2;
    static constexpr bool kByteShifts = true;
};

}  // namespace
}  // namespace ridge::cpu
