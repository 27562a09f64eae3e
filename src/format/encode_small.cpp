// Quantisers of the blocks of 32. The codes are chosen against the scale as it was stored.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "format/decode.h"
#include "format/encode.h"

namespace ridge {
namespace {

float inverse_of(float scale) {
    return scale == 0 ? 0 : 1 / scale;
}

// x = d * q, q in [low, -low - 1]: the value of the largest magnitude goes to `low`, the one end
// that has a level more. codes [kSmallBlock], plus -low. Returns the bits of d.
uint16_t symmetric_codes(const float* x, int low, uint8_t* codes) {
    float extreme = 0;
    for (int i = 0; i < kSmallBlock; i++) {
        if (std::fabs(finite(x[i])) > std::fabs(extreme)) extreme = finite(x[i]);
    }
    const uint16_t d = finite_f16(extreme / static_cast<float>(low));
    const float inverse = inverse_of(scale_value(d));
    for (int i = 0; i < kSmallBlock; i++) {
        codes[i] = static_cast<uint8_t>(nearest(finite(x[i]) * inverse, low, -low - 1) - low);
    }
    return d;
}

// x = d * q + m, q in [0, top], from the minimum to the maximum. codes [kSmallBlock].
template <class Block>
void affine_codes(const float* x, int top, uint8_t* codes, Block& block) {
    float low = finite(x[0]), high = low;
    for (int i = 1; i < kSmallBlock; i++) {
        low = std::min(low, finite(x[i]));
        high = std::max(high, finite(x[i]));
    }
    block.m = finite_f16(low);
    const float m = scale_value(block.m);
    // Halves, so that the difference of two large floats does not overflow.
    block.d = finite_f16((high / 2 - m / 2) / (static_cast<float>(top) / 2));
    const float inverse = 2 * inverse_of(scale_value(block.d));
    for (int i = 0; i < kSmallBlock; i++) {
        codes[i] = static_cast<uint8_t>(nearest((finite(x[i]) / 2 - m / 2) * inverse, 0, top));
    }
}

void pack_nibbles(const uint8_t* codes, uint8_t* qs) {
    for (int i = 0; i < 16; i++) {
        qs[i] = static_cast<uint8_t>((codes[i] & 15) | ((codes[i + 16] & 15) << 4));
    }
}

void pack_fifth_bits(const uint8_t* codes, uint8_t* qh) {
    memset(qh, 0, 4);
    for (int i = 0; i < kSmallBlock; i++) {
        qh[i / 8] = static_cast<uint8_t>(qh[i / 8] | ((codes[i] >> 4) << (i % 8)));
    }
}

}  // namespace

void encode_block(const float* x, BlockQ4_0& block) {
    uint8_t codes[kSmallBlock];
    block.d = symmetric_codes(x, -8, codes);
    pack_nibbles(codes, block.qs);
}

void encode_block(const float* x, BlockQ4_1& block) {
    uint8_t codes[kSmallBlock];
    affine_codes(x, 15, codes, block);
    pack_nibbles(codes, block.qs);
}

void encode_block(const float* x, BlockQ5_0& block) {
    uint8_t codes[kSmallBlock];
    block.d = symmetric_codes(x, -16, codes);
    pack_nibbles(codes, block.qs);
    pack_fifth_bits(codes, block.qh);
}

void encode_block(const float* x, BlockQ5_1& block) {
    uint8_t codes[kSmallBlock];
    affine_codes(x, 31, codes, block);
    pack_nibbles(codes, block.qs);
    pack_fifth_bits(codes, block.qh);
}

void encode_block(const float* x, BlockQ8_0& block) {
    float largest = 0;
    for (int i = 0; i < kSmallBlock; i++) largest = std::max(largest, std::fabs(finite(x[i])));
    block.d = finite_f16(largest / 127);
    const float inverse = inverse_of(scale_value(block.d));
    for (int i = 0; i < kSmallBlock; i++) {
        block.qs[i] = static_cast<int8_t>(nearest(finite(x[i]) * inverse, -127, 127));
    }
}

void encode_block(const float* x, BlockIQ4_NL& block) {
    float largest = 0;
    for (int i = 0; i < kSmallBlock; i++) largest = std::max(largest, std::fabs(finite(x[i])));
    int exponent = 0;
    std::frexp(largest, &exponent);
    float scaled[kSmallBlock];  // |scaled| < 1: no sum over- or underflows
    for (int i = 0; i < kSmallBlock; i++) scaled[i] = std::ldexp(finite(x[i]), -exponent);
    block.d = finite_f16(std::ldexp(fit_iq4_scale(scaled, kSmallBlock), exponent));
    const float inverse = inverse_of(std::ldexp(scale_value(block.d), -exponent));
    uint8_t codes[kSmallBlock];
    for (int i = 0; i < kSmallBlock; i++) {
        codes[i] = static_cast<uint8_t>(nearest_iq4_level(scaled[i] * inverse));
    }
    pack_nibbles(codes, block.qs);
}

}  // namespace ridge
