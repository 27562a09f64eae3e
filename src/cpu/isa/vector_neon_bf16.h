#pragma once

#include "cpu/isa/vector_neon.h"

namespace ridge::cpu {
namespace {

// Four rows, and pairs of bf16: bfdot.
struct Neon4Bf16 : Neon4 {
    // Attention: rows and vectors of a prompt's tile.
    static constexpr int kPromptRows = 6, kPromptVectors = 4;

    static Int splat_pair(uint32_t pair) {
        // GCC 12 would make a constant pair of ones by an instruction for f16, where it is another.
        asm("" : "+r"(pair));
        return vreinterpretq_u8_u32(vdupq_n_u32(pair));
    }
    // acc[i] += a[i][0] b[i][0] + a[i][1] b[i][1]
    static Float dot_bf16(Float acc, Int a, Int b) {
        return vbfdotq_f32(acc, vreinterpretq_bf16_u8(a), vreinterpretq_bf16_u8(b));
    }
    // Rounded to nearest even: a's numbers, then b's.
    static Int pack_bf16(Float a, Float b) {
        return vreinterpretq_u8_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(a), b));
    }
    // Rounded likewise, in pairs: out [4][2].
    static void store_bf16_pairs(uint8_t* out, Float even, Float odd) {
        const auto low = vreinterpret_u16_bf16(vcvt_bf16_f32(even));
        const auto high = vreinterpret_u16_bf16(vcvt_bf16_f32(odd));
        const uint16x4x2_t pairs = vzip_u16(low, high);
        vst1q_u8(out, vreinterpretq_u8_u16(vcombine_u16(pairs.val[0], pairs.val[1])));
    }
};

}  // namespace
}  // namespace ridge::cpu
