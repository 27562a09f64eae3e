#pragma once

#include <cstdint>

namespace ridge {

// The blocks of GGUF's quantised formats, as the bytes lie in the file: little-endian, packed, of
// any alignment. Structs alone, over integers, so that the kernels of every backend can include
// this. Scales are IEEE binary16, held as their bits; `q` below is a code after the stated offset.
// The functions that decode them are in decode.h, those that make them in encode.h.

constexpr int kSmallBlock = 32;   // elements of a Q4_0 ... Q8_0 and an IQ4_NL block
constexpr int kSuperBlock = 256;  // elements of a *_K and an IQ4_XS block

#pragma pack(push, 1)

// x[i] = d * q[i], q in [-8, 7]. Byte i of qs holds element i (low nibble) and element i + 16, each
// plus 8.
struct BlockQ4_0 {
    uint16_t d;
    uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

// x[i] = d * q[i] + m, q in [0, 15]; nibbles as in Q4_0.
struct BlockQ4_1 {
    uint16_t d, m;
    uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

// x[i] = d * q[i], q in [-16, 15], stored plus 16: four low bits as in Q4_0, the fifth of element i
// is bit i of qh.
struct BlockQ5_0 {
    uint16_t d;
    uint8_t qh[4];
    uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

// x[i] = d * q[i] + m, q in [0, 31]; bits as in Q5_0.
struct BlockQ5_1 {
    uint16_t d, m;
    uint8_t qh[4];
    uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

// x[i] = d * q[i], q in [-128, 127].
struct BlockQ8_0 {
    uint16_t d;
    int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

// x[i] = d * kIq4Values[q[i]]; nibbles as in Q4_0, without an offset.
struct BlockIQ4_NL {
    uint16_t d;
    uint8_t qs[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18);

// Super-blocks of 256 elements are cut into sub-blocks of 16 or 32 with small scales of their own.
// Two-bit codes lie four to a byte: element 128 h + 32 j + l is bits 2 j, 2 j + 1 of byte 32 h + l
// (h 0..1, j 0..3, l 0..31). Four-bit codes lie two to a byte: element 64 h + 32 j + l is nibble j
// of byte 32 h + l (h 0..3, j 0..1).

// x = (d * scale) * q - (dmin * min), q in [0, 3]. Sub-blocks of 16: byte s of `scales` holds the
// scale (low nibble) and the min of sub-block s.
struct BlockQ2_K {
    uint8_t scales[16];
    uint8_t qs[64];
    uint16_t d, dmin;
};
static_assert(sizeof(BlockQ2_K) == 84);

// x = (d * scale) * q, q in [-4, 3]: two low bits in qs; the third of element 32 k + l is bit k of
// byte l of hmask, set where 4 is NOT to be subtracted. Sub-blocks of 16, scales of six bits, each
// plus 32: four low bits of sub-block s in nibble s / 8 of byte s % 8, two high bits in bits
// 2 (s / 4) of byte 8 + s % 4.
struct BlockQ3_K {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    uint16_t d;
};
static_assert(sizeof(BlockQ3_K) == 110);

// x = (d * scale) * q - (dmin * min), q in [0, 15]. Sub-blocks of 32, scales and mins of six bits.
// Those of sub-blocks 0..3 are the low six bits of bytes 0..3 (scales) and 4..7 (mins); those of
// 4..7 have their low nibbles in bytes 8..11 (scale low, min high) and their two high bits above
// the six of bytes 0..3 and 4..7.
struct BlockQ4_K {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qs[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

// As Q4_K with q in [0, 31]: the fifth bit of element 32 k + l is bit k of byte l of qh.
struct BlockQ5_K {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

// x = (d * scale) * q, q in [-32, 31], stored plus 32. Sub-blocks of 16. Element 128 h + 32 j + l
// has its four low bits in nibble j / 2 of ql[64 h + 32 (j % 2) + l] and its two high bits in bits
// 2 j, 2 j + 1 of qh[32 h + l].
struct BlockQ6_K {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

// x = (d * scale) * kIq4Values[q]. Sub-blocks of 32: element 32 k + l is nibble l / 16 of
// qs[16 k + l % 16]. Scales of six bits, each plus 32: four low bits of sub-block k in nibble k % 2
// of scales_l[k / 2], two high bits in bits 2 k, 2 k + 1 of scales_h.
struct BlockIQ4_XS {
    uint16_t d;
    uint16_t scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128];
};
static_assert(sizeof(BlockIQ4_XS) == 136);

#pragma pack(pop)

// The sixteen levels of IQ4_NL and IQ4_XS: denser near zero, where weights are.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace ridge
