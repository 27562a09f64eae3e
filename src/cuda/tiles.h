#pragma once

#include <cstdint>

#include "base/half.h"
#include "base/host_device.h"
#include "format/tensor.h"

namespace ridge::cuda {

// How the CUDA kernels' weights lie: parts of 16 rows, cut along k into chunks of 64 elements,
// zeros behind the last. A warp multiplies a chunk by four mma of 16 elements along k, or as
// integers by two of 32 (device/mma.cuh). Lane 4 g + t holds of rows g and g + 8 elements 4 t ...
// 4 t + 3 of each sixteen (which is which along k does not matter to a sum as long as both operands
// agree). The codes of a chunk lie so that a 16-byte load of each lane, 512 bytes of the
// warp, brings what it multiplies, in an order that takes few instructions to unpack:
//
//   register r = 2 (i / 2) + row / 8, half i % 2      of element i = 0 .. 3 of the lane
//
//   four bits   a word for each mma: code at bits 4 r + 16 (i % 2)
//   five        the same, and a plane of a word a lane: the fifth bit at mma + 4 r + 16 (i % 2)
//   six         the same, and a plane of two words a lane, one for two mmas: bits 5 and 6 at
//               2 (mma % 2) + 4 r + 16 (i % 2)
//   eight       two words for each mma: word r / 2, byte 2 (r % 2) + i % 2
//   f16         four words for each mma: word r, half i % 2
//
// A part is one plane behind the other: codes, high bits, scales, what super-blocks of 256 share,
// and a power of two for each row. In a plane one chunk lies behind the other, in a chunk scales
// lie by g, then row / 8; so do the powers:
//
//   kSmall       per 32 elements   f16 d                x = d (code - offset)
//   kSmallMin    per 32            f16 d, m             x = d code + m
//   kSuper       per 32            u8 scale, min        x = (d scale) code - (dmin min)
//   kSuper16     per 16            i8 scale             x = (d scale) (code - offset)
//   kSuper16Min  per 16            u8 scale, min        x = (d scale) code - (dmin min)
//                with per 256      f16 d, and dmin where there are mins
//   kGroup       per 32, 64, 128   scale, bias          x = scale code + bias
//   kNone        of f16                                 x = power f16
//
// Divided by its row's power, no element reaches 2^15, and so every one fits f16; the greatest of a
// row of BF16 reaches 2^14, so that no element is rounded that is more than 2^-31 of it. Of F16 the
// power is 1.

constexpr int kTileRows = 16;
constexpr int kTileChunk = 64;

enum class Codes : uint8_t { kFour, kFive, kSix, kEight, kF16 };
enum class Scales : uint8_t {
    kNone,
    kSmall,
    kSmallMin,
    kSuper,
    kSuper16,
    kSuper16Min,
    kGroup,
};

struct TileKind {
    Codes codes;
    Scales scales;
    int offset;  // taken away from codes
};

// Of formats that have tiles: all but F32.
constexpr bool has_tiles(FormatId format) {
    return format != FormatId::kF32;
}
constexpr TileKind tile_kind(FormatId format) {
    switch (format) {
        case FormatId::kF32:
        case FormatId::kF16:
        case FormatId::kBF16:
            return {Codes::kF16, Scales::kNone, 0};
        case FormatId::kQ4_0:
            return {Codes::kFour, Scales::kSmall, 8};
        case FormatId::kQ4_1:
            return {Codes::kFour, Scales::kSmallMin, 0};
        case FormatId::kQ5_0:
            return {Codes::kFive, Scales::kSmall, 16};
        case FormatId::kQ5_1:
            return {Codes::kFive, Scales::kSmallMin, 0};
        case FormatId::kQ8_0:
            return {Codes::kEight, Scales::kSmall, 128};
        case FormatId::kQ2_K:
            return {Codes::kFour, Scales::kSuper16Min, 0};
        case FormatId::kQ3_K:
            return {Codes::kFour, Scales::kSuper16, 4};
        case FormatId::kQ4_K:
            return {Codes::kFour, Scales::kSuper, 0};
        case FormatId::kQ5_K:
            return {Codes::kFive, Scales::kSuper, 0};
        case FormatId::kQ6_K:
            return {Codes::kSix, Scales::kSuper16, 32};
        case FormatId::kIQ4_NL:  // the levels themselves
            return {Codes::kEight, Scales::kSmall, 128};
        case FormatId::kIQ4_XS:
            return {Codes::kEight, Scales::kSuper16, 128};
        case FormatId::kAffine4:
            return {Codes::kFour, Scales::kGroup, 0};
        case FormatId::kAffine8:
            return {Codes::kEight, Scales::kGroup, 0};
    }
    return {Codes::kF16, Scales::kNone, 0};
}

constexpr int code_bytes(Codes codes) {  // of a chunk
    switch (codes) {
        case Codes::kFour:
        case Codes::kFive:
        case Codes::kSix:
            return 512;
        case Codes::kEight:
            return 1024;
        case Codes::kF16:
            return 2048;
    }
    return 0;
}
constexpr int high_bytes(Codes codes) {  // of a chunk
    return codes == Codes::kFive ? 128 : codes == Codes::kSix ? 256 : 0;
}
constexpr int scale_bytes(Scales scales) {  // of a chunk; groups have their own count
    switch (scales) {
        case Scales::kSmall:
        case Scales::kSuper:
        case Scales::kSuper16:
            return 64;
        case Scales::kSmallMin:
        case Scales::kSuper16Min:
            return 128;
        case Scales::kNone:
        case Scales::kGroup:
            return 0;
    }
    return 0;
}
constexpr int super_bytes(Scales scales) {  // of 256 elements
    if (scales == Scales::kSuper16) return 32;
    return scales == Scales::kSuper || scales == Scales::kSuper16Min ? 64 : 0;
}

// Where the planes of a part of n_cols columns lie.
struct TileGeometry {
    TileKind kind{};
    int group_size = 0;           // kGroup
    int group_scale_bytes = 2;    // kGroup: of one scale
    bool group_scale_f16 = true;  // kGroup, two bytes: f16, else bf16
    // Of a part: chunks, and where its planes lie. 16 rows of the longest that a model has are no
    // more bytes than an int counts.
    int n_chunks = 0;
    int high = 0, scales = 0, supers = 0, powers = 0;
    int part_bytes = 0;
};
TileGeometry tile_geometry(const Tensor& weight);

// Code k of row `row` of a part; f16 as its bits.
RIDGE_HOST_DEVICE inline int tile_code(const TileGeometry& g, const uint8_t* part, int row,
                                       int64_t k) {
    const int64_t chunk = k / kTileChunk;
    const int mma = static_cast<int>(k % kTileChunk) / 16, i = static_cast<int>(k % 4);
    const int lane = row % 8 * 4 + static_cast<int>(k % 16) / 4, r = i / 2 * 2 + row / 8;
    const uint8_t* codes = part + chunk * code_bytes(g.kind.codes);
    const uint8_t* high = part + g.high + chunk * high_bytes(g.kind.codes);
    auto word = [](const uint8_t* at, int index) {
        return reinterpret_cast<const uint32_t*>(at)[index];
    };
    const int half = 16 * (i % 2), nibble = 4 * r + half;
    switch (g.kind.codes) {
        case Codes::kFour:
            return word(codes, 4 * lane + mma) >> nibble & 15;
        case Codes::kFive:
            return (word(codes, 4 * lane + mma) >> nibble & 15) |
                   (word(high, lane) >> (mma + 4 * r + half) & 1) << 4;
        case Codes::kSix:
            return (word(codes, 4 * lane + mma) >> nibble & 15) |
                   (word(high, 2 * lane + mma / 2) >> (mma % 2 * 2 + 4 * r + half) & 3) << 4;
        case Codes::kEight:
            return word(codes + mma / 2 * 512, 4 * lane + mma % 2 * 2 + r / 2) >>
                       (r % 2 * 16 + i % 2 * 8) &
                   255;
        case Codes::kF16:
            return word(codes + 512 * mma, 4 * lane + r) >> half & 0xffff;
    }
    return 0;
}

RIDGE_HOST_DEVICE inline float tile_f16(const uint8_t* at, int64_t index) {
    return to_float(f16{reinterpret_cast<const uint16_t*>(at)[index]});
}
RIDGE_HOST_DEVICE inline float tile_group_number(const TileGeometry& g, const uint8_t* at,
                                                 int64_t index) {
    if (g.group_scale_bytes == 4) return reinterpret_cast<const float*>(at)[index];
    const uint16_t bits = reinterpret_cast<const uint16_t*>(at)[index];
    return g.group_scale_f16 ? to_float(f16{bits}) : to_float(bf16{bits});
}

RIDGE_HOST_DEVICE inline float tile_power(const TileGeometry& g, const uint8_t* part, int row) {
    return reinterpret_cast<const float*>(part + g.powers)[row % 8 * 2 + row / 8];
}

// Element k of a row, by the equations above, each operation rounded: what the format's own
// decoding gives, bit for bit, but for the least of BF16.
RIDGE_HOST_DEVICE inline float tile_element(const TileGeometry& g, const uint8_t* part, int row,
                                            int64_t k) {
    const int code = tile_code(g, part, row, k);
    if (g.kind.codes == Codes::kF16) {
        return tile_power(g, part, row) * to_float(f16{static_cast<uint16_t>(code)});
    }
    const int64_t chunk = k / kTileChunk, super = k / 256;
    const int place = row % 8 * 2 + row / 8;  // of the row among a chunk's scales
    const int block = static_cast<int>(k % kTileChunk) / 32,
              sixteen = static_cast<int>(k % kTileChunk) / 16;
    const uint8_t* scales = part + g.scales + chunk * scale_bytes(g.kind.scales);
    const uint8_t* supers = part + g.supers + super * super_bytes(g.kind.scales);
    const auto value = static_cast<float>(code), taken = static_cast<float>(code - g.kind.offset);
    switch (g.kind.scales) {
        case Scales::kNone:
            return value;
        case Scales::kSmall:
            return tile_f16(scales, 2 * place + block) * taken;
        case Scales::kSmallMin:
            return tile_f16(scales, 4 * place + 2 * block) * value +
                   tile_f16(scales, 4 * place + 2 * block + 1);
        case Scales::kSuper: {
            const uint8_t* small = scales + 4 * place + 2 * block;
            return tile_f16(supers, 2 * place) * static_cast<float>(small[0]) * value -
                   tile_f16(supers, 2 * place + 1) * static_cast<float>(small[1]);
        }
        case Scales::kSuper16:
            return tile_f16(supers, place) *
                   static_cast<float>(static_cast<int8_t>(scales[4 * place + sixteen])) * taken;
        case Scales::kSuper16Min: {
            const uint8_t* small = scales + 8 * place + 2 * sixteen;
            return tile_f16(supers, 2 * place) * static_cast<float>(small[0]) * value -
                   tile_f16(supers, 2 * place + 1) * static_cast<float>(small[1]);
        }
        case Scales::kGroup: {
            const uint8_t* group =
                part + g.scales + k / g.group_size * (2 * kTileRows * g.group_scale_bytes);
            return tile_group_number(g, group, 2 * place) * value +
                   tile_group_number(g, group, 2 * place + 1);
        }
    }
    return 0;
}

const Layout& tiles_layout();

}  // namespace ridge::cuda
