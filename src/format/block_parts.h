#pragma once

#include <cstdint>
#include <cstring>

#include "base/host_device.h"
#include "format/blocks.h"

namespace ridge {

// What is packed within blocks in more than one piece: fifth bits, and scales of six bits. Always
// inlined, so that files compiled for one instruction set can include this.

// Eight bits, each made a byte of 0 or 16: bit i in byte i.
[[gnu::always_inline]] RIDGE_HOST_DEVICE inline uint64_t fifth_bits(uint8_t bits) {
    uint64_t each = (bits * 0x0101010101010101u) & 0x8040201008040201u;  // bit i alone in byte i
    return ((each + 0x7f7f7f7f7f7f7f7fu) >> 3) & 0x1010101010101010u;    // not zero: top bit
}

// Codes of a Q5_0 or Q5_1 block, 0..31. codes [kSmallBlock].
template <class Block>
[[gnu::always_inline]] RIDGE_HOST_DEVICE inline void five_bit_codes(const Block& block,
                                                                    uint8_t* __restrict codes) {
    uint8_t high[kSmallBlock];
    for (int i = 0; i < 4; i++) {
        uint64_t eight = fifth_bits(block.qh[i]);
        memcpy(high + 8 * i, &eight, sizeof(eight));
    }
    for (int i = 0; i < 16; i++) codes[i] = (block.qs[i] & 15) | high[i];
    for (int i = 0; i < 16; i++) codes[i + 16] = (block.qs[i] >> 4) | high[i + 16];
}

// The sixteen scales of a Q3_K block, -32..31. scales [16].
[[gnu::always_inline]] RIDGE_HOST_DEVICE inline void q3_k_scales(const BlockQ3_K& block,
                                                                 int8_t* __restrict scales) {
    for (int s = 0; s < 16; s++) {
        int low = (block.scales[s % 8] >> (4 * (s / 8))) & 15;
        int high = (block.scales[8 + s % 4] >> (2 * (s / 4))) & 3;
        scales[s] = static_cast<int8_t>((low | (high << 4)) - 32);
    }
}

struct ScaleMin {
    uint8_t scale, min;  // 0..63
};

// Scale and min of sub-block k (0..7) of a Q4_K or Q5_K block. packed [12].
[[gnu::always_inline]] RIDGE_HOST_DEVICE inline ScaleMin k_scale_min(const uint8_t* packed, int k) {
    if (k < 4) {
        return {static_cast<uint8_t>(packed[k] & 63), static_cast<uint8_t>(packed[k + 4] & 63)};
    }
    const uint8_t low = packed[k + 4];
    return {static_cast<uint8_t>((low & 15) | ((packed[k - 4] >> 6) << 4)),
            static_cast<uint8_t>((low >> 4) | ((packed[k] >> 6) << 4))};
}

// Scale of sub-block k (0..7), -32..31.
[[gnu::always_inline]] RIDGE_HOST_DEVICE inline int iq4_xs_scale(const BlockIQ4_XS& block, int k) {
    int low = (block.scales_l[k / 2] >> (4 * (k % 2))) & 15;
    int high = (block.scales_h >> (2 * k)) & 3;
    return (low | (high << 4)) - 32;
}

}  // namespace ridge
