#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/device/mma.cuh"
#include "cuda/device/numbers.cuh"
#include "cuda/tiles.h"

namespace ridge::cuda {

// How the codes of a chunk (cuda/tiles.h) become the operands of the mma that multiply the chunk.

// A code becomes the last bits of the mantissa of 1024 in f16, which is exact and takes an
// instruction or two; those of the upper rows, 8 to 15, kUpper times the code. What is too much is
// taken away from the sums, with the format's own offset: kBias + offset times x of the lower rows,
// kBias + kUpper offset of the upper ones.
//
// For products of integers, rows(): bytes of the lane's four elements of an mma, 0, 2, 1 and 3, of
// row g, and kByteUpper times those of row g + 8.
template <Codes codes>
struct ChunkCodes;

constexpr uint32_t k1024 = 0x64006400;  // twice

// a[r] = 1024 plus nibble r of w, of both halves; of r 1 and 3, the upper rows', 16 times it.
__device__ inline void place_nibbles(uint32_t w, uint32_t (&a)[4]) {
    const uint32_t next = w >> 8;
    a[0] = and_or<0x000f000f, k1024>(w);
    a[1] = and_or<0x00f000f0, k1024>(w);
    a[2] = and_or<0x000f000f, k1024>(next);
    a[3] = and_or<0x00f000f0, k1024>(next);
}
// Adds the bits above the nibbles, `low` of r 0 and 16 `low` of r 1, which lie 4 places apart in
// `bits` as those of r 2 and 3 do, 8 places higher, r 0's from place `at` on.
template <uint32_t low>
__device__ inline void place_high_bits(uint32_t bits, int at, uint32_t (&a)[4]) {
    const uint32_t first = bits << (4 - at), next = bits >> (4 + at);
    a[0] = and_or<low>(first, a[0]);
    a[1] = and_or<16 * low>(first, a[1]);
    a[2] = and_or<low>(next, a[2]);
    a[3] = and_or<16 * low>(next, a[3]);
}

// Bytes of nibbles and the bits above them, `high` of a byte, which lie in `bits` as above.
template <uint32_t high>
__device__ inline void place_bytes(uint32_t w, uint32_t bits, int at, uint32_t& lower,
                                   uint32_t& upper) {
    lower = (w & 0x0f0f0f0fu) | (bits << (4 - at) & high);
    upper = (w >> 4 & 0x0f0f0f0fu) | (bits >> at & high);
}

__device__ inline uint32_t word_of(const uint4& w, int i) {
    return i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w;
}
__device__ inline uint4 load_words(const uint8_t* at, int lane) {
    return reinterpret_cast<const uint4*>(at)[lane];
}

template <>
struct ChunkCodes<Codes::kFour> {
    static constexpr int kBias = 1024, kUpper = 16;
    uint4 w;

    ChunkCodes() = default;
    __device__ ChunkCodes(const uint8_t* codes, const uint8_t*, int lane)
        : w(load_words(codes, lane)) {}
    __device__ void operand(int mma, uint32_t (&a)[4]) const { place_nibbles(word_of(w, mma), a); }
    static constexpr int kByteUpper = 16;
    __device__ void rows(int mma, uint32_t& lower, uint32_t& upper) const {
        lower = word_of(w, mma) & 0x0f0f0f0fu, upper = word_of(w, mma) & 0xf0f0f0f0u;
    }
};

template <>
struct ChunkCodes<Codes::kFive> {
    static constexpr int kBias = 1024, kUpper = 16;
    uint4 w;
    uint32_t h;

    ChunkCodes() = default;
    __device__ ChunkCodes(const uint8_t* codes, const uint8_t* high, int lane)
        : w(load_words(codes, lane)), h(reinterpret_cast<const uint32_t*>(high)[lane]) {}
    __device__ void operand(int mma, uint32_t (&a)[4]) const {
        place_nibbles(word_of(w, mma), a);
        place_high_bits<0x00100010>(h, mma, a);
    }
    static constexpr int kByteUpper = 1;
    __device__ void rows(int mma, uint32_t& lower, uint32_t& upper) const {
        place_bytes<0x10101010>(word_of(w, mma), h, mma, lower, upper);
    }
};

template <>
struct ChunkCodes<Codes::kSix> {
    static constexpr int kBias = 1024, kUpper = 16;
    uint4 w;
    uint2 h;

    ChunkCodes() = default;
    __device__ ChunkCodes(const uint8_t* codes, const uint8_t* high, int lane)
        : w(load_words(codes, lane)), h(reinterpret_cast<const uint2*>(high)[lane]) {}
    __device__ void operand(int mma, uint32_t (&a)[4]) const {
        place_nibbles(word_of(w, mma), a);
        place_high_bits<0x00300030>(mma < 2 ? h.x : h.y, mma % 2 * 2, a);
    }
    static constexpr int kByteUpper = 1;
    __device__ void rows(int mma, uint32_t& lower, uint32_t& upper) const {
        place_bytes<0x30303030>(word_of(w, mma), mma < 2 ? h.x : h.y, mma % 2 * 2, lower, upper);
    }
};

template <>
struct ChunkCodes<Codes::kEight> {
    static constexpr int kBias = 1024, kUpper = 1;
    uint4 w[2];

    ChunkCodes() = default;
    __device__ ChunkCodes(const uint8_t* codes, const uint8_t*, int lane)
        : w{load_words(codes, lane), load_words(codes + 512, lane)} {}
    __device__ void operand(int mma, uint32_t (&a)[4]) const {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            a[r] = __byte_perm(word_of(w[mma / 2], mma % 2 * 2 + r / 2), k1024,
                               r % 2 == 0 ? 0x5150 : 0x5352);
        }
    }
    static constexpr int kByteUpper = 1;
    __device__ void rows(int mma, uint32_t& lower, uint32_t& upper) const {
        const uint32_t first = word_of(w[mma / 2], mma % 2 * 2),
                       second = word_of(w[mma / 2], mma % 2 * 2 + 1);
        lower = __byte_perm(first, second, 0x5140), upper = __byte_perm(first, second, 0x7362);
    }
};

template <>
struct ChunkCodes<Codes::kF16> {
    static constexpr int kBias = 0, kUpper = 1;
    uint4 w[4];

    ChunkCodes() = default;
    __device__ ChunkCodes(const uint8_t* codes, const uint8_t*, int lane) {
#pragma unroll
        for (int m = 0; m < 4; m++) w[m] = load_words(codes + 512 * m, lane);
    }
    __device__ void operand(int mma, uint32_t (&a)[4]) const {
        a[0] = w[mma].x, a[1] = w[mma].y, a[2] = w[mma].z, a[3] = w[mma].w;
    }
};

// What sums of codes have too much, so many times x, in the lower and in the upper rows.
template <Codes codes>
__host__ __device__ constexpr float excess_of(bool upper, int offset) {
    using Chunk = ChunkCodes<codes>;
    return static_cast<float>(Chunk::kBias + (upper ? Chunk::kUpper : 1) * offset);
}

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
