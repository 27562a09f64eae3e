#pragma once

#include <cstdint>

#include "cpu/isa/exp.h"
#include "cpu/kernels.h"

// Kernels along one row in plain loops of fixed length, which compilers turn into vectors of
// whatever instruction set the including file is compiled for.

namespace ridge::cpu {
namespace {

// quantise_row: codes[i] = round(x[i] * 127 / max |x|), to nearest even; scale = max |x| / 127.
//   x [n] f32; a block of 32 at a time. NaN and infinity make the block's results NaN. The maximum
//   is taken of bit patterns, which order like the magnitudes; rounding is the addition of 1.5 *
//   2^23.
inline void quantise_block(const float* __restrict x, int64_t block, const QuantisedRow& out) {
    constexpr float kRound = 12582912.0f;
    int32_t max_bits = 0;
    for (int i = 0; i < kBlock; i++) {
        const auto bits = static_cast<int32_t>(bits_of_float(x[i]) & 0x7fffffffu);
        max_bits = bits > max_bits ? bits : max_bits;
    }
    const float max = float_of_bits(static_cast<uint32_t>(max_bits));
    const float scale = max / 127.0f;
    const float inverse = max > 1e-30f ? 127.0f / max : max == max ? 0.0f : max;
    int8_t* codes = out.codes + kBlock * block * out.step;
    for (int i = 0; i < kBlock; i++) {
        const float shifted = x[i] * inverse + kRound;
        codes[i] = static_cast<int8_t>(bits_of_float(shifted) - bits_of_float(kRound));
    }
    int32_t half_sum[2] = {0, 0};
    for (int h = 0; h < 2; h++) {
        for (int i = 0; i < 16; i++) half_sum[h] += codes[16 * h + i];
        out.negated_half_sums[(2 * block + h) * out.step] = -half_sum[h];
        out.scaled_half_sums[(2 * block + h) * out.step] = scale * static_cast<float>(half_sum[h]);
    }
    out.scales[block * out.step] = scale;
    out.negated_sums[block * out.step] = -(half_sum[0] + half_sum[1]);
    out.scaled_sums[block * out.step] = scale * static_cast<float>(half_sum[0] + half_sum[1]);
}

void quantise_row(const float* x, int64_t n, int64_t n_padded, const QuantisedRow& out) {
    int64_t block = 0;
    for (; (block + 1) * kBlock <= n; block++) quantise_block(x + kBlock * block, block, out);
    for (; block * kBlock < n_padded; block++) {
        float padded[kBlock] = {};
        for (int64_t i = block * kBlock; i < n; i++) padded[i - block * kBlock] = x[i];
        quantise_block(padded, block, out);
    }
}

// bf16_row: x [n] f32 to bf16, to nearest even; a NaN stays one. Zeros behind, up to n_padded.
//   Element k at out[k / 32 * step + k % 32].
inline void bf16_block(const float* __restrict x, uint16_t* __restrict out) {
    for (int i = 0; i < kBlock; i++) {
        const uint32_t bits = bits_of_float(x[i]);
        const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
        out[i] = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
    }
}

void bf16_row(const float* x, int64_t n, int64_t n_padded, int64_t step, uint16_t* out) {
    int64_t block = 0;
    for (; (block + 1) * kBlock <= n; block++) {
        bf16_block(x + kBlock * block, out + step * block);
    }
    for (; block * kBlock < n_padded; block++) {
        float padded[kBlock] = {};
        for (int64_t i = block * kBlock; i < n; i++) padded[i - block * kBlock] = x[i];
        bf16_block(padded, out + step * block);
    }
}

}  // namespace
}  // namespace ridge::cpu
