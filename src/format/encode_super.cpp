// Quantisers of the super-blocks of 256. Each sub-block is fitted on its own; the small scales are
// then rounded to what the super-block can store, and the codes chosen against the stored ones.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "format/decode.h"
#include "format/encode.h"

namespace ridge {
namespace {

// The values over a power of two, |x| < 1, so that no sum over- or underflows whatever came in.
struct Scaled {
    float x[kSuperBlock];
    int exponent = 0;

    explicit Scaled(const float* values) {
        float largest = 0;
        for (int i = 0; i < kSuperBlock; i++) {
            x[i] = finite(values[i]);
            largest = std::max(largest, std::fabs(x[i]));
        }
        std::frexp(largest, &exponent);
        for (float& value : x) value = std::ldexp(value, -exponent);
    }

    // The bits of `scale`, one of scaled values, as a scale of the true ones, and back.
    uint16_t store(float scale) const { return finite_f16(std::ldexp(scale, exponent)); }
    float load(uint16_t bits) const { return std::ldexp(scale_value(bits), -exponent); }
};

float quotient(float x, float scale) {
    return scale == 0 ? 0 : x / scale;
}

// Sub-blocks of N elements, x = (d * scale) * q, q in [low, -low - 1], scale in [low_scale,
// -low_scale - 1].
template <int N>
struct SymmetricBlocks {
    static constexpr int kCount = kSuperBlock / N;
    uint16_t d = 0;
    int scales[kCount];
    float steps[kCount];  // d * scale, of scaled values

    // fit(x, N) gives the best scale of one sub-block.
    template <class Fit>
    void choose(const Scaled& in, int low_scale, Fit fit) {
        float extreme = 0;
        for (int s = 0; s < kCount; s++) {
            steps[s] = fit(in.x + N * s, N);
            if (std::fabs(steps[s]) > std::fabs(extreme)) extreme = steps[s];
        }
        d = in.store(extreme / static_cast<float>(low_scale));
        const float unit = in.load(d);
        for (int s = 0; s < kCount; s++) {
            scales[s] = nearest(quotient(steps[s], unit), low_scale, -low_scale - 1);
            steps[s] = unit * static_cast<float>(scales[s]);
        }
    }
};

// Sub-blocks of N elements, x = (d * scale) * q - (dmin * min), q in [0, top], scale and min in
// [0, top_scale].
template <int N>
struct ScaleMinBlocks {
    static constexpr int kCount = kSuperBlock / N;
    uint16_t d = 0, dmin = 0;
    int scales[kCount], mins[kCount];
    uint8_t codes[kSuperBlock];

    ScaleMinBlocks(const Scaled& in, int top, int top_scale) {
        FittedScaleMin fits[kCount];
        float max_scale = 0, max_min = 0;
        for (int s = 0; s < kCount; s++) {
            fits[s] = fit_scale_min(in.x + N * s, N, top);
            max_scale = std::max(max_scale, fits[s].scale);
            max_min = std::max(max_min, fits[s].min);
        }
        d = in.store(max_scale / static_cast<float>(top_scale));
        dmin = in.store(max_min / static_cast<float>(top_scale));
        const float unit = in.load(d), unit_min = in.load(dmin);
        for (int s = 0; s < kCount; s++) {
            scales[s] = nearest(quotient(fits[s].scale, unit), 0, top_scale);
            mins[s] = nearest(quotient(fits[s].min, unit_min), 0, top_scale);
            const float scale = unit * static_cast<float>(scales[s]);
            const float min = unit_min * static_cast<float>(mins[s]);
            for (int i = N * s; i < N * (s + 1); i++) {
                codes[i] = static_cast<uint8_t>(nearest(quotient(in.x[i] + min, scale), 0, top));
            }
        }
    }
};

// codes [kSuperBlock] in [0, 3], see blocks.h; higher bits are ignored.
void pack_pairs(const uint8_t* codes, uint8_t* qs) {
    memset(qs, 0, 64);
    for (int i = 0; i < kSuperBlock; i++) {
        uint8_t& byte = qs[32 * (i / 128) + i % 32];
        byte = static_cast<uint8_t>(byte | ((codes[i] & 3) << (2 * (i / 32 % 4))));
    }
}

// codes [kSuperBlock], the low nibbles.
void pack_nibbles(const uint8_t* codes, uint8_t* qs) {
    for (int i = 0; i < 128; i++) {
        const uint8_t* pair = codes + 64 * (i / 32) + i % 32;
        qs[i] = static_cast<uint8_t>((pair[0] & 15) | ((pair[32] & 15) << 4));
    }
}

// Bit `bit` of each code: element 32 k + l in bit k of byte l.
void pack_bits(const uint8_t* codes, int bit, uint8_t* bytes) {
    memset(bytes, 0, 32);
    for (int i = 0; i < kSuperBlock; i++) {
        uint8_t& byte = bytes[i % 32];
        byte = static_cast<uint8_t>(byte | (((codes[i] >> bit) & 1) << (i / 32)));
    }
}

// scales, mins [8] in [0, 63].
void pack_scale_mins(const int* scales, const int* mins, uint8_t* packed) {
    for (int k = 0; k < 4; k++) {
        packed[k] = static_cast<uint8_t>(scales[k] | ((scales[k + 4] >> 4) << 6));
        packed[k + 4] = static_cast<uint8_t>(mins[k] | ((mins[k + 4] >> 4) << 6));
        packed[k + 8] = static_cast<uint8_t>((scales[k + 4] & 15) | ((mins[k + 4] & 15) << 4));
    }
}

}  // namespace

void encode_block(const float* x, BlockQ2_K& block) {
    const ScaleMinBlocks<16> fit(Scaled(x), 3, 15);
    block.d = fit.d, block.dmin = fit.dmin;
    for (int s = 0; s < 16; s++) {
        block.scales[s] = static_cast<uint8_t>(fit.scales[s] | (fit.mins[s] << 4));
    }
    pack_pairs(fit.codes, block.qs);
}

void encode_block(const float* x, BlockQ3_K& block) {
    const Scaled in(x);
    SymmetricBlocks<16> fit;
    fit.choose(in, -32, [](const float* sub, int n) { return fit_scale(sub, n, -4); });
    block.d = fit.d;
    memset(block.scales, 0, sizeof(block.scales));
    for (int s = 0; s < 16; s++) {
        const int stored = fit.scales[s] + 32;
        uint8_t &low = block.scales[s % 8], &high = block.scales[8 + s % 4];
        low = static_cast<uint8_t>(low | ((stored & 15) << (4 * (s / 8))));
        high = static_cast<uint8_t>(high | ((stored >> 4) << (2 * (s / 4))));
    }
    uint8_t codes[kSuperBlock];
    for (int i = 0; i < kSuperBlock; i++) {
        codes[i] = static_cast<uint8_t>(nearest(quotient(in.x[i], fit.steps[i / 16]), -4, 3) + 4);
    }
    pack_pairs(codes, block.qs);
    pack_bits(codes, 2, block.hmask);
}

void encode_block(const float* x, BlockQ4_K& block) {
    const ScaleMinBlocks<32> fit(Scaled(x), 15, 63);
    block.d = fit.d, block.dmin = fit.dmin;
    pack_scale_mins(fit.scales, fit.mins, block.scales);
    pack_nibbles(fit.codes, block.qs);
}

void encode_block(const float* x, BlockQ5_K& block) {
    const ScaleMinBlocks<32> fit(Scaled(x), 31, 63);
    block.d = fit.d, block.dmin = fit.dmin;
    pack_scale_mins(fit.scales, fit.mins, block.scales);
    pack_nibbles(fit.codes, block.qs);
    pack_bits(fit.codes, 4, block.qh);
}

void encode_block(const float* x, BlockQ6_K& block) {
    const Scaled in(x);
    SymmetricBlocks<16> fit;
    fit.choose(in, -128, [](const float* sub, int n) { return fit_scale(sub, n, -32); });
    block.d = fit.d;
    for (int s = 0; s < 16; s++) block.scales[s] = static_cast<int8_t>(fit.scales[s]);
    memset(block.ql, 0, sizeof(block.ql));
    memset(block.qh, 0, sizeof(block.qh));
    for (int i = 0; i < kSuperBlock; i++) {
        const int code = nearest(quotient(in.x[i], fit.steps[i / 16]), -32, 31) + 32;
        const int h = i / 128, j = i / 32 % 4, l = i % 32;
        uint8_t &low = block.ql[64 * h + 32 * (j % 2) + l], &high = block.qh[32 * h + l];
        low = static_cast<uint8_t>(low | ((code & 15) << (4 * (j / 2))));
        high = static_cast<uint8_t>(high | ((code >> 4) << (2 * j)));
    }
}

void encode_block(const float* x, BlockIQ4_XS& block) {
    const Scaled in(x);
    SymmetricBlocks<32> fit;
    fit.choose(in, -32, fit_iq4_scale);
    block.d = fit.d;
    block.scales_h = 0;
    memset(block.scales_l, 0, sizeof(block.scales_l));
    for (int k = 0; k < 8; k++) {
        const int stored = fit.scales[k] + 32;
        uint8_t& low = block.scales_l[k / 2];
        low = static_cast<uint8_t>(low | ((stored & 15) << (4 * (k % 2))));
        block.scales_h = static_cast<uint16_t>(block.scales_h | ((stored >> 4) << (2 * k)));
    }
    for (int i = 0; i < 128; i++) {
        const int at = 32 * (i / 16) + i % 16, k = i / 16;
        const int low = nearest_iq4_level(quotient(in.x[at], fit.steps[k]));
        const int high = nearest_iq4_level(quotient(in.x[at + 16], fit.steps[k]));
        block.qs[i] = static_cast<uint8_t>(low | (high << 4));
    }
}

}  // namespace ridge
