#pragma once

#include <cstdint>

namespace ridge::cpu {

// Functions of this header are inlined even where nothing is optimised: each instruction set's
// files have a copy of their own, and none that the linker might give to all of the program.

template <class T>
[[gnu::always_inline]] constexpr T round_up_to(T n, int multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

// The interleaved layout: 16 weight rows (a group) side by side, so that one vector of 64 bytes
// holds the same four elements along k of all sixteen: an int32 lane is a row, activations are
// broadcast, and nothing is ever summed across lanes. It is the operand of VNNI, of BF16 dot
// products and of AMX tiles at once. A group is one stream of super-blocks; a super-block is
//
//     [scale_bytes of scales and mins][n_blocks x code_bytes of codes]
//
// Codes of a block of 32 elements, element 4 j + i of row r (j 0..7) at byte 4 r + i of
//     8 bits: vector j
//     4 bits: vector j / 2, low nibble where j is even
//     2 bits: vector j / 4, bits 2 (j % 4) and up
//     1 bit:  bit j of the one vector
// Codes of 6 bits are 4 low bits (four vectors) and then 2 high ones (two vectors), those of 5 bits
// 4 and 1, those of 3 bits 2 and 1. They are unsigned: element = scale * (code - offset) + min.
// Q8_0's are stored plus 128. IQ4 codes are what kIq4Values is indexed by; the levels are used plus
// 128.
//
// Scales, [..][16] with the row last:
//     Q4_0 Q5_0 Q8_0 IQ4_NL   f16 d[2]
//     Q4_1 Q5_1               f16 {d, m}[2]
//     Q4_K Q5_K               f16 d, f16 dmin, 6-bit numbers scale[8], min[8] (below)
//     Q2_K                    f16 d, f16 dmin, u8 {scale | min << 4}[16]
//     Q3_K Q6_K               f16 d, 32 bytes of zeros, i8 scale[16]
//     IQ4_XS                  f16 d, 32 bytes of zeros, i8 scale[8]
//     affine                  scales[128 / group_size], biases likewise, in the file's type
// Numbers 4 v .. 4 v + 3 of 6 bits, of 16 rows, are a vector of 64 bytes: its low four bits lie in
// vector v / 2, in low nibbles where v is even, its high two in the third vector, bits 2 v and up.
// Floats have no scales: BF16 lies in pairs along k, 32 elements as [16 pairs][16 rows][2]; F16 and
// F32 as [32][16 rows].
struct Geometry {
    int super_elements;  // of one row in a super-block
    int scale_bytes;
    int code_bytes;  // of a block of 32 elements of 16 rows
    int offset;      // what is taken from a code
    [[gnu::always_inline]] constexpr int n_blocks() const { return super_elements / 32; }
    [[gnu::always_inline]] constexpr int64_t super_bytes() const {
        return scale_bytes + int64_t{n_blocks()} * code_bytes;
    }
};

constexpr int kBits1 = 64, kBits2 = 128, kBits4 = 256, kBits8 = 512;

constexpr Geometry kGeometryF32{32, 0, 2048, 0};
constexpr Geometry kGeometryF16{32, 0, 1024, 0};
constexpr Geometry kGeometryBF16{32, 0, 1024, 0};
constexpr Geometry kGeometryQ4_0{64, 64, kBits4, 8};
constexpr Geometry kGeometryQ4_1{64, 128, kBits4, 0};
constexpr Geometry kGeometryQ5_0{64, 64, kBits4 + kBits1, 16};
constexpr Geometry kGeometryQ5_1{64, 128, kBits4 + kBits1, 0};
constexpr Geometry kGeometryQ8_0{64, 64, kBits8, 128};
constexpr Geometry kGeometryQ2_K{256, 320, kBits2, 0};
constexpr Geometry kGeometryQ3_K{256, 320, kBits2 + kBits1, 4};
constexpr Geometry kGeometryQ4_K{256, 256, kBits4, 0};
constexpr Geometry kGeometryQ5_K{256, 256, kBits4 + kBits1, 0};
constexpr Geometry kGeometryQ6_K{256, 320, kBits4 + kBits2, 32};
constexpr Geometry kGeometryIQ4_NL{64, 64, kBits4, 128};
constexpr Geometry kGeometryIQ4_XS{256, 192, kBits4, 128};

constexpr int kAffineSuper = 128;
// Of scales and biases of 16 rows: group_size 32, 64 or 128, type_bytes 2 or 4.
[[gnu::always_inline]] constexpr Geometry geometry_affine(int bits, int group_size,
                                                          int type_bytes) {
    return {kAffineSuper, 2 * (kAffineSuper / group_size) * 16 * type_bytes, 64 * bits, 0};
}

// Compact BF16 (compact.h): a weight's low byte as it is, its high byte as a nibble, an index in a
// table of the group's own. Twelve bits a weight, and the same bits come back. A group is
//
//     table    u8 [16]: the high bytes that nibbles stand for
//     header   u32 offset of the super-blocks, a multiple of 64; u32 whether the group is compact
//     ends     u16 [n_supers]: how many exceptions there are up to the end of each super-block
//     exceptions, u32 each: weights whose high byte is not in the table. Bits 0..7 are that byte,
//              bits 8..13 the place of its low byte in its vector, bits 14..31 which vector of low
//              bytes that is, in order; the last entry is of kCompactNoVector
//     super-blocks of 32 elements. Where the group is not compact, as it is for few of a weight,
//              they are as those of BF16
//
// A super-block is four units of eight elements along k: 64 bytes of nibbles and two vectors of low
// bytes. In each 16 bytes of such a vector there are, of four rows, pair 0 of the unit and then
// pair 1; in the other vector pairs 2 and 3. Nibbles lie likewise, those of the first vector low:
// one look-up and one interleaving of bytes within 16 give the pairs as the plain layout has them.
constexpr int kCompactOffset = 16, kCompactFlag = 20, kCompactEnds = 24;  // in a group
[[gnu::always_inline]] constexpr int64_t compact_ends_bytes(int64_t n_supers) {
    return round_up_to(2 * n_supers, 4);
}
constexpr int kCompactUnitBytes = 192, kCompactUnits = 4;
constexpr uint32_t kCompactNoVector = 0x3ffff;
constexpr int kCompactSuperBytes = kCompactUnits * kCompactUnitBytes;

}  // namespace ridge::cpu
