#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/device/mma.cuh"
#include "cuda/device/numbers.cuh"
#include "cuda/tiles.h"

namespace ridge::cuda {

// How the codes of a chunk (cuda/tiles.h) become the operands of the four mma that multiply the
// chunk.

// Codes of four to eight bits become kBias + code in bf16, which is exact and takes an instruction
// or two; kBias is taken away from the sums, with the format's own offset. Codes that bf16 cannot
// hold are operands of kParts mma, whose sums add up.
template <Codes codes>
struct ChunkCodes;

// a[r] = what `bits` is in bf16, plus its last places times nibble r of w, of both halves.
template <uint32_t bits>
__device__ inline void place_nibbles(uint32_t w, uint32_t (&a)[4]) {
    a[0] = and_or<0x000f000f, bits>(w);
    a[1] = and_or<0x000f000f, bits>(w >> 4);
    a[2] = and_or<0x000f000f, bits>(w >> 8);
    a[3] = and_or<0x000f000f, bits>(w >> 12);
}
constexpr uint32_t k128 = 0x43004300;   // whose last place is 1
constexpr uint32_t k2048 = 0x45004500;  // and 16

__device__ inline uint32_t shifted(uint32_t w, int left) {
    return left >= 0 ? w << left : w >> -left;
}
__device__ inline uint32_t word_of(const uint4& w, int i) {
    return i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w;
}
__device__ inline uint4 load_words(const uint8_t* at, int lane) {
    return reinterpret_cast<const uint4*>(at)[lane];
}

template <>
struct ChunkCodes<Codes::kFour> {
    static constexpr int kBias = 128, kParts = 1;
    uint4 w;

    ChunkCodes() = default;
    __device__ ChunkCodes(const uint8_t* codes, const uint8_t*, int lane)
        : w(load_words(codes, lane)) {}
    __device__ void operand(int mma, int, uint32_t (&a)[4]) const {
        place_nibbles<k128>(word_of(w, mma), a);
    }
};

template <>
struct ChunkCodes<Codes::kFive> {
    static constexpr int kBias = 128, kParts = 1;
    uint4 w;
    uint32_t h;

    ChunkCodes() = default;
    __device__ ChunkCodes(const uint8_t* codes, const uint8_t* high, int lane)
        : w(load_words(codes, lane)), h(reinterpret_cast<const uint32_t*>(high)[lane]) {}
    __device__ void operand(int mma, int, uint32_t (&a)[4]) const {
        place_nibbles<k128>(word_of(w, mma), a);
#pragma unroll
        for (int r = 0; r < 4; r++) a[r] = and_or<0x00100010>(shifted(h, 4 - 4 * mma - r), a[r]);
    }
};

template <>
struct ChunkCodes<Codes::kSix> {
    static constexpr int kBias = 128, kParts = 1;
    uint4 w;
    uint2 h;

    ChunkCodes() = default;
    __device__ ChunkCodes(const uint8_t* codes, const uint8_t* high, int lane)
        : w(load_words(codes, lane)), h(reinterpret_cast<const uint2*>(high)[lane]) {}
    __device__ void operand(int mma, int, uint32_t (&a)[4]) const {
        place_nibbles<k128>(word_of(w, mma), a);
        const uint32_t bits = mma < 2 ? h.x : h.y;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            a[r] = and_or<0x00300030>(shifted(bits, 4 - mma % 2 * 8 - 2 * r), a[r]);
        }
    }
};

// 128 + low nibble, and 2048 + 16 high nibble.
template <>
struct ChunkCodes<Codes::kEight> {
    static constexpr int kBias = 128 + 2048, kParts = 2;
    uint4 w[2];

    ChunkCodes() = default;
    __device__ ChunkCodes(const uint8_t* codes, const uint8_t*, int lane)
        : w{load_words(codes, lane), load_words(codes + 512, lane)} {}
    __device__ void operand(int mma, int part, uint32_t (&a)[4]) const {
        const uint32_t nibbles = word_of(w[mma / 2], mma % 2 * 2 + part);
        if (part == 0) {
            place_nibbles<k128>(nibbles, a);
        } else {
            place_nibbles<k2048>(nibbles, a);
        }
    }
};

template <>
struct ChunkCodes<Codes::kBF16> {
    static constexpr int kBias = 0, kParts = 1;
    uint4 w[4];

    ChunkCodes() = default;
    __device__ ChunkCodes(const uint8_t* codes, const uint8_t*, int lane) {
#pragma unroll
        for (int m = 0; m < 4; m++) w[m] = load_words(codes + 512 * m, lane);
    }
    __device__ void operand(int mma, int, uint32_t (&a)[4]) const {
        a[0] = w[mma].x, a[1] = w[mma].y, a[2] = w[mma].z, a[3] = w[mma].w;
    }
};

// f16 has three bits more than bf16: it is the sum of two bf16.
template <>
struct ChunkCodes<Codes::kF16> {
    static constexpr int kBias = 0, kParts = 2;
    uint4 w[4];

    ChunkCodes() = default;
    __device__ ChunkCodes(const uint8_t* codes, const uint8_t*, int lane) {
#pragma unroll
        for (int m = 0; m < 4; m++) w[m] = load_words(codes + 512 * m, lane);
    }
    __device__ void operand(int mma, int part, uint32_t (&a)[4]) const {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const uint32_t bits = word_of(w[mma], r);
            const float2 exact = __half22float2(reinterpret_cast<const __half2&>(bits));
            __nv_bfloat162 rounded = __floats2bfloat162_rn(exact.x, exact.y);
            if (part == 1) {
                const float2 near = __bfloat1622float2(rounded);
                rounded = __floats2bfloat162_rn(exact.x - near.x, exact.y - near.y);
            }
            a[r] = reinterpret_cast<const uint32_t&>(rounded);
        }
    }
};

__device__ inline float byte_of(uint32_t w, int i) {
    return static_cast<float>(w >> (8 * i) & 255);
}
__device__ inline float signed_byte_of(uint32_t w, int i) {
    return static_cast<float>(static_cast<int32_t>(w << (24 - 8 * i)) >> 24);
}

__device__ inline float group_number(__half value) {
    return __half2float(value);
}
__device__ inline float group_number(__nv_bfloat16 value) {
    return __bfloat162float(value);
}
__device__ inline float group_number(float value) {
    return value;
}

}  // namespace ridge::cuda
