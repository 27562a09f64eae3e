#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "base/host_device.h"
#include "format/block_parts.h"
#include "format/blocks.h"

namespace ridge {

// One block -> float32, out [kSmallBlock] or [kSuperBlock]. Bit for bit what the formats' reference
// gives, so the order of operations is part of each equation: (d * scale) * q, then - (dmin * min),
// each rounded on its own. Loops are plain, over a fixed count, so that compilers turn them into
// vector code for any instruction set.

static_assert(std::endian::native == std::endian::little, "blocks are read as they lie");

RIDGE_HOST_DEVICE inline float scale_value(uint16_t bits) {
    return to_float(f16{bits});
}

RIDGE_HOST_DEVICE inline void decode_block(const BlockQ4_0& block, float* __restrict out) {
    const float d = scale_value(block.d);
    for (int i = 0; i < 16; i++) out[i] = d * static_cast<float>((block.qs[i] & 15) - 8);
    for (int i = 0; i < 16; i++) out[i + 16] = d * static_cast<float>((block.qs[i] >> 4) - 8);
}

RIDGE_HOST_DEVICE inline void decode_block(const BlockQ4_1& block, float* __restrict out) {
    const float d = scale_value(block.d), m = scale_value(block.m);
    for (int i = 0; i < 16; i++) out[i] = d * static_cast<float>(block.qs[i] & 15) + m;
    for (int i = 0; i < 16; i++) out[i + 16] = d * static_cast<float>(block.qs[i] >> 4) + m;
}

RIDGE_HOST_DEVICE inline void decode_block(const BlockQ5_0& block, float* __restrict out) {
    const float d = scale_value(block.d);
    uint8_t codes[kSmallBlock];
    five_bit_codes(block, codes);
    for (int i = 0; i < kSmallBlock; i++) out[i] = d * static_cast<float>(codes[i] - 16);
}

RIDGE_HOST_DEVICE inline void decode_block(const BlockQ5_1& block, float* __restrict out) {
    const float d = scale_value(block.d), m = scale_value(block.m);
    uint8_t codes[kSmallBlock];
    five_bit_codes(block, codes);
    for (int i = 0; i < kSmallBlock; i++) out[i] = d * static_cast<float>(codes[i]) + m;
}

RIDGE_HOST_DEVICE inline void decode_block(const BlockQ8_0& block, float* __restrict out) {
    const float d = scale_value(block.d);
    for (int i = 0; i < kSmallBlock; i++) out[i] = d * static_cast<float>(block.qs[i]);
}

// The sixteen levels times a scale: a lookup is then the whole decoding. levels [16].
RIDGE_HOST_DEVICE inline void iq4_levels(float scale, float* __restrict levels) {
    // A constant of its own, since device code has no namespace's.
    constexpr int8_t kLevels[16] = {kIq4Values[0],  kIq4Values[1],  kIq4Values[2],  kIq4Values[3],
                                    kIq4Values[4],  kIq4Values[5],  kIq4Values[6],  kIq4Values[7],
                                    kIq4Values[8],  kIq4Values[9],  kIq4Values[10], kIq4Values[11],
                                    kIq4Values[12], kIq4Values[13], kIq4Values[14], kIq4Values[15]};
    for (int i = 0; i < 16; i++) levels[i] = scale * static_cast<float>(kLevels[i]);
}

RIDGE_HOST_DEVICE inline void decode_block(const BlockIQ4_NL& block, float* __restrict out) {
    float levels[16];
    iq4_levels(scale_value(block.d), levels);
    for (int i = 0; i < 16; i++) out[i] = levels[block.qs[i] & 15];
    for (int i = 0; i < 16; i++) out[i + 16] = levels[block.qs[i] >> 4];
}

RIDGE_HOST_DEVICE inline void decode_block(const BlockQ2_K& block, float* __restrict out) {
    const float d = scale_value(block.d), dmin = scale_value(block.dmin);
    for (int s = 0; s < 16; s++) {  // sub-block s: elements 16 s ... 16 s + 15
        const float scale = d * static_cast<float>(block.scales[s] & 15);
        const float min = dmin * static_cast<float>(block.scales[s] >> 4);
        const uint8_t* __restrict qs = block.qs + 32 * (s / 8) + 16 * (s % 2);
        const int shift = 2 * (s / 2 % 4);
        for (int i = 0; i < 16; i++) {
            out[16 * s + i] = scale * static_cast<float>((qs[i] >> shift) & 3) - min;
        }
    }
}

RIDGE_HOST_DEVICE inline void decode_block(const BlockQ3_K& block, float* __restrict out) {
    const float d = scale_value(block.d);
    int8_t scales[16];
    q3_k_scales(block, scales);
    for (int s = 0; s < 16; s++) {
        const float scale = d * static_cast<float>(scales[s]);
        const uint8_t* __restrict qs = block.qs + 32 * (s / 8) + 16 * (s % 2);
        const uint8_t* __restrict high = block.hmask + 16 * (s % 2);
        const int shift = 2 * (s / 2 % 4), high_shift = s / 2;
        for (int i = 0; i < 16; i++) {
            int code = ((qs[i] >> shift) & 3) | (((high[i] >> high_shift) & 1) << 2);
            out[16 * s + i] = scale * static_cast<float>(code - 4);
        }
    }
}

RIDGE_HOST_DEVICE inline void decode_block(const BlockQ4_K& block, float* __restrict out) {
    const float d = scale_value(block.d), dmin = scale_value(block.dmin);
    for (int k = 0; k < 8; k++) {
        const ScaleMin small = k_scale_min(block.scales, k);
        const float scale = d * static_cast<float>(small.scale);
        const float min = dmin * static_cast<float>(small.min);
        const uint8_t* __restrict qs = block.qs + 32 * (k / 2);
        const int shift = 4 * (k % 2);
        for (int i = 0; i < 32; i++) {
            out[32 * k + i] = scale * static_cast<float>((qs[i] >> shift) & 15) - min;
        }
    }
}

RIDGE_HOST_DEVICE inline void decode_block(const BlockQ5_K& block, float* __restrict out) {
    const float d = scale_value(block.d), dmin = scale_value(block.dmin);
    for (int k = 0; k < 8; k++) {
        const ScaleMin small = k_scale_min(block.scales, k);
        const float scale = d * static_cast<float>(small.scale);
        const float min = dmin * static_cast<float>(small.min);
        const uint8_t* __restrict qs = block.qs + 32 * (k / 2);
        const int shift = 4 * (k % 2);
        for (int i = 0; i < 32; i++) {
            int code = ((qs[i] >> shift) & 15) | (((block.qh[i] >> k) & 1) << 4);
            out[32 * k + i] = scale * static_cast<float>(code) - min;
        }
    }
}

RIDGE_HOST_DEVICE inline void decode_block(const BlockQ6_K& block, float* __restrict out) {
    const float d = scale_value(block.d);
    for (int s = 0; s < 16; s++) {
        const float scale = d * static_cast<float>(block.scales[s]);
        const int h = s / 8, j = s / 2 % 4, l = 16 * (s % 2);
        const uint8_t* __restrict ql = block.ql + 64 * h + 32 * (j % 2) + l;
        const uint8_t* __restrict qh = block.qh + 32 * h + l;
        const int shift = 4 * (j / 2), high_shift = 2 * j;
        for (int i = 0; i < 16; i++) {
            int code = ((ql[i] >> shift) & 15) | (((qh[i] >> high_shift) & 3) << 4);
            out[16 * s + i] = scale * static_cast<float>(code - 32);
        }
    }
}

RIDGE_HOST_DEVICE inline void decode_block(const BlockIQ4_XS& block, float* __restrict out) {
    const float d = scale_value(block.d);
    for (int k = 0; k < 8; k++) {
        float levels[16];
        iq4_levels(d * static_cast<float>(iq4_xs_scale(block, k)), levels);
        const uint8_t* __restrict qs = block.qs + 16 * k;
        for (int i = 0; i < 16; i++) out[32 * k + i] = levels[qs[i] & 15];
        for (int i = 0; i < 16; i++) out[32 * k + i + 16] = levels[qs[i] >> 4];
    }
}

}  // namespace ridge
