#pragma once

#include <cuda_fp16.h>

#include <bit>
#include <cstdint>

#include "cuda/device/numbers.cuh"
#include "cuda/device/tile_codes.cuh"

// How a chunk of codes becomes operands of f16: elements divided by their row's power.
//
// A code less `middle` is exact in f16, and so is its product with a small scale of a super-block
// (where it reaches 2,048, in Q6_K and IQ4_XS, it is rounded). What is left is
//   scale * (code - middle) + add
// rounded once: relatively 2^-11 at most. scale is the format's number of 11 bits, but in f32 of
// affine formats, which is rounded to as many; add is what code `middle` stands for, rounded. Where
// codes have mins, middle is the middle of the codes, so that add is small where a block's elements
// lie about zero: rounding it takes part of what they are, not of the min. Numbers that lie 2^-26
// below the greatest of a row lose bits, which are less than 2^-36 of that one.

namespace ridge::cuda {

// All formats' kinds of which there are codes.
constexpr int middle_code(TileKind kind) {
    switch (kind.scales) {
        case Scales::kSuper16Min:
            return 2;
        case Scales::kSuper:
        case Scales::kGroup:
            return kind.codes == Codes::kFour ? 8 : kind.codes == Codes::kFive ? 16 : 128;
        default:
            return kind.offset;  // 0 of kSmallMin, whose numbers are all exact
    }
}

using Halves = __half2;
__device__ inline Halves halves_of(uint32_t bits) {
    Halves x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
__device__ inline uint32_t bits_of(Halves x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
__device__ inline Halves twice(float x) {
    return halves_of(two_f16(x, x));
}
// The same of a constant that is a normal number of f16.
constexpr uint32_t twice_exactly(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    return 0x00010001u * (bits >> 16 & 0x8000u | (bits >> 13 & 0x3ffffu) - (112u << 10));
}
// The greatest finite number of f16 in place of what lies beyond; NaN stays.
__device__ inline float within_f16(float x) {
    asm("min.NaN.f32 %0, %0, 0f477FE000;" : "+f"(x));
    asm("max.NaN.f32 %0, %0, 0fC77FE000;" : "+f"(x));
    return x;
}
// Byte i of w, exactly.
__device__ inline float float_of_byte(uint32_t w, int i) {
    const uint32_t shifted = __byte_perm(w, 0x4b000000u, 0x7440u | static_cast<uint32_t>(i));
    return __uint_as_float(shifted) - 0x1p23f;
}

// Where a chunk lies: its planes, and how many bytes behind the first block's scales of groups the
// second's are.
struct ChunkAt {
    const uint8_t *codes, *high, *scales, *supers;
    int group_block;
};
template <TileKind kind>
__device__ inline ChunkAt chunk_of_part(const TileGeometry& g, const uint8_t* part, int chunk) {
    ChunkAt at{part + chunk * code_bytes(kind.codes),
               part + g.high + chunk * high_bytes(kind.codes),
               part + g.scales + chunk * scale_bytes(kind.scales),
               part + g.supers + chunk / 4 * super_bytes(kind.scales), 0};
    if constexpr (kind.scales == Scales::kGroup) {
        const int first = chunk * kTileChunk / g.group_size,
                  second = (chunk * kTileChunk + 32) / g.group_size,
                  n_bytes = 2 * kTileRows * g.group_scale_bytes;
        at.scales = part + g.scales + first * n_bytes, at.group_block = (second - first) * n_bytes;
    }
    return at;
}

// Scales of a chunk for rows g (h = 0) and g + 8 (h = 1) of a lane. inverse: 1 / the row's power.
// Codes of rows g + 8 are kUpper times as large, so that what multiplies them is as much smaller.
template <TileKind kind, Scales scales = kind.scales>
struct GemmScales;

// A scale for each block of 32 elements.
template <TileKind kind>
struct BlockScales {
    static constexpr float kUpperTimes = 1.0f / ChunkCodes<kind.codes>::kUpper;
    Halves scale[2][2];

    __device__ void set_scale(int h, int block, float value, const float (&inverse)[2]) {
        scale[h][block] = twice(value * (h == 0 ? inverse[0] : inverse[1] * kUpperTimes));
    }
    __device__ Halves element(Halves code, int h, int mma) const {
        return __hmul2(code, scale[h][mma / 2]);
    }
};
// And what the middle code stands for.
template <TileKind kind>
struct BlockScalesMins : BlockScales<kind> {
    Halves add[2][2];

    __device__ void set(int h, int block, float scale, float min, const float (&inverse)[2]) {
        this->set_scale(h, block, scale, inverse);
        constexpr auto kMiddle = static_cast<float>(middle_code(kind));
        add[h][block] = twice((kMiddle == 0 ? min : fmaf(kMiddle, scale, min)) * inverse[h]);
    }
    __device__ Halves element(Halves code, int h, int mma) const {
        return __hfma2(code, this->scale[h][mma / 2], add[h][mma / 2]);
    }
};

template <TileKind kind>
struct GemmScales<kind, Scales::kSmall> : BlockScales<kind> {
    __device__ void load(const TileGeometry&, const ChunkAt& at, int g, const float (&inverse)[2]) {
        const uint2 small = reinterpret_cast<const uint2*>(at.scales)[g];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float2 of_row = floats_of_f16(h == 0 ? small.x : small.y);
            this->set_scale(h, 0, of_row.x, inverse);
            this->set_scale(h, 1, of_row.y, inverse);
        }
    }
};

template <TileKind kind>
struct GemmScales<kind, Scales::kSmallMin> : BlockScalesMins<kind> {
    __device__ void load(const TileGeometry&, const ChunkAt& at, int g, const float (&inverse)[2]) {
        const uint4 small = reinterpret_cast<const uint4*>(at.scales)[g];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 of_block = floats_of_f16(word_of(small, i));
            this->set(i / 2, i % 2, of_block.x, of_block.y, inverse);
        }
    }
};

template <TileKind kind>
struct GemmScales<kind, Scales::kGroup> : BlockScalesMins<kind> {
    __device__ void load(const TileGeometry& geometry, const ChunkAt& at, int g,
                         const float (&inverse)[2]) {
#pragma unroll
        for (int block = 0; block < 2; block++) {
            const uint8_t* of_block = at.scales + block * at.group_block;
            if (geometry.group_scale_bytes == 4) {
                const float4 both = reinterpret_cast<const float4*>(of_block)[g];
                this->set(0, block, both.x, both.y, inverse);
                this->set(1, block, both.z, both.w, inverse);
                continue;
            }
            const uint2 both = reinterpret_cast<const uint2*>(of_block)[g];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint32_t pair = h == 0 ? both.x : both.y;
                const float2 x =
                    geometry.group_scale_f16 ? floats_of_f16(pair) : floats_of_bf16(pair);
                this->set(h, block, x.x, x.y, inverse);
            }
        }
    }
};

// A small scale of n blocks of a chunk, times what the super-block has.
template <TileKind kind, int n>
struct SuperScales {
    static constexpr int kUpper = ChunkCodes<kind.codes>::kUpper;
    static constexpr int kOfMma = 4 / n;
    Halves small[2][n];  // divided by kUpper in rows g + 8
    Halves super[2];

    // Of byte i of w, of which `bias` more is stored. An exact result, too.
    template <int bias>
    __device__ float set_small(int h, int block, uint32_t w, int i) {
        constexpr float kUpperTimes = 1.0f / kUpper, kTaken = -1024 - bias;
        constexpr uint32_t kAdd = twice_exactly(kTaken), kTimes = twice_exactly(kUpperTimes),
                           kAddUpper = twice_exactly(kTaken * kUpperTimes);
        const Halves shifted =
            halves_of(__byte_perm(w, 0x64646464u, 0x4040u + 0x0101u * static_cast<uint32_t>(i)));
        small[h][block] = h == 0 || kUpper == 1
                              ? __hadd2(shifted, halves_of(kAdd))
                              : __hfma2(shifted, halves_of(kTimes), halves_of(kAddUpper));
        return __low2float(small[h][block]);
    }
    __device__ void set_super(int h, float value) { super[h] = twice(within_f16(value)); }
    // A code times its small scale.
    __device__ Halves step(Halves code, int h, int mma) const {
        return __hmul2(code, small[h][mma / kOfMma]);
    }
};
template <TileKind kind, int n>
struct SuperScalesMins : SuperScales<kind, n> {
    Halves add[2][n];

    // small_of(h, block): the word that has the block's scale and min, and which byte the scale is.
    template <class Small>
    __device__ void load(const uint8_t* supers, int g, const float (&inverse)[2], Small small_of) {
        const uint2 both = reinterpret_cast<const uint2*>(supers)[g];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float2 super = floats_of_f16(h == 0 ? both.x : both.y);
            const float d = super.x * inverse[h], min = super.y * inverse[h];
            this->set_super(h, d);
            const float upper = h == 0 ? 1.0f : static_cast<float>(this->kUpper);
            const float middle = d * (upper * static_cast<float>(middle_code(kind)));
#pragma unroll
            for (int block = 0; block < n; block++) {
                const auto [w, i] = small_of(h, block);
                const float scale = this->template set_small<0>(h, block, w, i);
                add[h][block] = twice(fmaf(-min, float_of_byte(w, i + 1), middle * scale));
            }
        }
    }
    __device__ Halves element(Halves code, int h, int mma) const {
        return __hfma2(this->step(code, h, mma), this->super[h], add[h][mma / this->kOfMma]);
    }
};
struct ByteOf {
    uint32_t word;
    int i;
};

template <TileKind kind>
struct GemmScales<kind, Scales::kSuper> : SuperScalesMins<kind, 2> {
    __device__ void load(const TileGeometry&, const ChunkAt& at, int g, const float (&inverse)[2]) {
        const uint2 small = reinterpret_cast<const uint2*>(at.scales)[g];
        SuperScalesMins<kind, 2>::load(at.supers, g, inverse, [&](int h, int block) {
            return ByteOf{h == 0 ? small.x : small.y, 2 * block};
        });
    }
};

template <TileKind kind>
struct GemmScales<kind, Scales::kSuper16Min> : SuperScalesMins<kind, 4> {
    __device__ void load(const TileGeometry&, const ChunkAt& at, int g, const float (&inverse)[2]) {
        const uint4 small = reinterpret_cast<const uint4*>(at.scales)[g];
        SuperScalesMins<kind, 4>::load(at.supers, g, inverse, [&](int h, int block) {
            return ByteOf{word_of(small, 2 * h + block / 2), block % 2 * 2};
        });
    }
};

template <TileKind kind>
struct GemmScales<kind, Scales::kSuper16> : SuperScales<kind, 4> {
    __device__ void load(const TileGeometry&, const ChunkAt& at, int g, const float (&inverse)[2]) {
        const uint2 small = reinterpret_cast<const uint2*>(at.scales)[g];
        const float2 super = floats_of_f16(reinterpret_cast<const uint32_t*>(at.supers)[g]);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            this->set_super(h, (h == 0 ? super.x : super.y) * inverse[h]);
            const uint32_t biased = (h == 0 ? small.x : small.y) ^ 0x80808080u;
#pragma unroll
            for (int block = 0; block < 4; block++)
                this->template set_small<128>(h, block, biased, block);
        }
    }
    __device__ Halves element(Halves code, int h, int mma) const {
        return __hmul2(this->step(code, h, mma), this->super[h]);
    }
};

// A warp's part of one chunk, an mma's operand at a time.
template <TileKind kind>
class Unpacker {
  public:
    __device__ void load(const TileGeometry& geometry, const ChunkAt& at,
                         const float (&inverse)[2]) {
        codes_ = ChunkCodes<kind.codes>(at.codes, at.high, static_cast<int>(threadIdx.x % 32));
        scales_.load(geometry, at, static_cast<int>(threadIdx.x % 32 / 4), inverse);
    }
    __device__ uint4 operand(int mma) const {
        uint32_t a[4];
        codes_.operand(mma, a);
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const int h = r % 2;
            constexpr uint32_t kLower = twice_exactly(-excess_of<kind.codes>(false, kMiddle)),
                               kUpper = twice_exactly(-excess_of<kind.codes>(true, kMiddle));
            const Halves code = __hadd2(halves_of(a[r]), halves_of(h == 0 ? kLower : kUpper));
            a[r] = bits_of(scales_.element(code, h, mma));
        }
        return make_uint4(a[0], a[1], a[2], a[3]);
    }

  private:
    static constexpr int kMiddle = middle_code(kind);

    ChunkCodes<kind.codes> codes_;
    GemmScales<kind> scales_;
};

// 1 / power, of powers of two.
__device__ inline float inverse_of_power(float power) {
    return __uint_as_float((254u << 23) - __float_as_uint(power));
}

}  // namespace ridge::cuda
