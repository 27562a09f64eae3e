#pragma once

#include <cstdint>

#include "cpu/interleaved_geometry.h"
#include "cpu/kernels.h"

// What a block of each quantised format is made of, over a vector type V that each instruction set
// supplies (isa/vector_*.h):
//   Int: kRows lanes of int32, or of four bytes each; Float: kRows lanes of f32.

namespace ridge::cpu {
namespace {

// --- codes of a block: c[j] holds elements 4 j .. 4 j + 3 ---
//
// Where loading them is always inlined, compilers would call it, and send the codes through memory.

// Whether V shifts bytes, and not wider numbers whose bits move on into the next byte.
template <class V>
constexpr bool kShiftsBytes = requires {
    requires V::kByteShifts;
};

// Bits `from` and up of a byte to bits `to` and up; `mask` names the bits that are kept, at `to`.
template <class V, int from, int to, int mask>
inline typename V::Int place_bits(typename V::Int v) {
    constexpr int kLeft = to > from ? (255 << (to - from)) & 255 : 255 >> (from - to);
    if constexpr (to > from) {
        v = V::template shift_left<to - from>(v);
    } else if constexpr (from > to) {
        v = V::template shift_right<from - to>(v);
    }
    if constexpr (kShiftsBytes<V> && mask == kLeft) return v;
    return V::and_bytes(v, mask);
}

template <class V>
inline void load_nibbles(const uint8_t* p, typename V::Int* c) {
#pragma GCC unroll 8
    for (int i = 0; i < 4; i++) {
        typename V::Int v = V::load(p + 64 * i);
        c[2 * i] = V::and_bytes(v, 15);
        c[2 * i + 1] = place_bits<V, 4, 0, 15>(v);
    }
}

struct Codes4 {
    static constexpr bool kWide = false;
    template <class V>
    static void load(const uint8_t* p, typename V::Int* c) {
        load_nibbles<V>(p, c);
    }
};

struct CodesIq4 {
    static constexpr bool kWide = true;
    template <class V>
    static void load(const uint8_t* p, typename V::Int* c) {
        load_nibbles<V>(p, c);
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) c[j] = V::iq4_levels(c[j]);
    }
};

struct Codes5 {
    static constexpr bool kWide = false;
    template <class V>
    [[gnu::always_inline]] static void load(const uint8_t* p, typename V::Int* c) {
        load_nibbles<V>(p, c);
        typename V::Int high = V::load(p + kBits4);
        c[0] = V::or_bits(c[0], place_bits<V, 0, 4, 16>(high));
        c[1] = V::or_bits(c[1], place_bits<V, 1, 4, 16>(high));
        c[2] = V::or_bits(c[2], place_bits<V, 2, 4, 16>(high));
        c[3] = V::or_bits(c[3], place_bits<V, 3, 4, 16>(high));
        c[4] = V::or_bits(c[4], place_bits<V, 4, 4, 16>(high));
        c[5] = V::or_bits(c[5], place_bits<V, 5, 4, 16>(high));
        c[6] = V::or_bits(c[6], place_bits<V, 6, 4, 16>(high));
        c[7] = V::or_bits(c[7], place_bits<V, 7, 4, 16>(high));
    }
};

struct Codes6 {
    static constexpr bool kWide = false;
    template <class V>
    static void load(const uint8_t* p, typename V::Int* c) {
        load_nibbles<V>(p, c);
        for (int half = 0; half < 2; half++) {
            typename V::Int high = V::load(p + kBits4 + 64 * half);
            typename V::Int* four = c + 4 * half;
            four[0] = V::or_bits(four[0], place_bits<V, 0, 4, 48>(high));
            four[1] = V::or_bits(four[1], place_bits<V, 2, 4, 48>(high));
            four[2] = V::or_bits(four[2], place_bits<V, 4, 4, 48>(high));
            four[3] = V::or_bits(four[3], place_bits<V, 6, 4, 48>(high));
        }
    }
};

struct Codes2 {
    static constexpr bool kWide = false;
    template <class V>
    static void load(const uint8_t* p, typename V::Int* c) {
        for (int half = 0; half < 2; half++) {
            typename V::Int v = V::load(p + 64 * half);
            typename V::Int* four = c + 4 * half;
            four[0] = V::and_bytes(v, 3);
            four[1] = place_bits<V, 2, 0, 3>(v);
            four[2] = place_bits<V, 4, 0, 3>(v);
            four[3] = place_bits<V, 6, 0, 3>(v);
        }
    }
};

struct Codes3 {
    static constexpr bool kWide = false;
    template <class V>
    static void load(const uint8_t* p, typename V::Int* c) {
        Codes2::load<V>(p, c);
        typename V::Int high = V::load(p + kBits2);
        c[0] = V::or_bits(c[0], place_bits<V, 0, 2, 4>(high));
        c[1] = V::or_bits(c[1], place_bits<V, 1, 2, 4>(high));
        c[2] = V::or_bits(c[2], place_bits<V, 2, 2, 4>(high));
        c[3] = V::or_bits(c[3], place_bits<V, 3, 2, 4>(high));
        c[4] = V::or_bits(c[4], place_bits<V, 4, 2, 4>(high));
        c[5] = V::or_bits(c[5], place_bits<V, 5, 2, 4>(high));
        c[6] = V::or_bits(c[6], place_bits<V, 6, 2, 4>(high));
        c[7] = V::or_bits(c[7], place_bits<V, 7, 2, 4>(high));
    }
};

struct Codes8 {
    static constexpr bool kWide = true;
    template <class V>
    [[gnu::always_inline]] static void load(const uint8_t* p, typename V::Int* c) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) c[j] = V::wide_codes(V::load(p + 64 * j));
    }
};

// --- scales of a super-block: of block b, or of its two halves ---

// f16 d[2]
template <class V>
struct SmallScales {
    static constexpr bool kHalves = false, kMins = false;
    const uint8_t* p;
    SmallScales(const uint8_t* scales, const PackedShape&, int first_row)
        : p(scales + 2 * first_row) {}
    typename V::Float scale(int b) const { return V::load_f16(p + 32 * b); }
};

// f16 {d, m}[2]
template <class V>
struct SmallMinScales {
    static constexpr bool kHalves = false, kMins = true;
    const uint8_t* p;
    SmallMinScales(const uint8_t* scales, const PackedShape&, int first_row)
        : p(scales + 2 * first_row) {}
    typename V::Float scale(int b) const { return V::load_f16(p + 64 * b); }
    typename V::Float min(int b) const { return V::load_f16(p + 64 * b + 32); }
};

// f16 d, dmin; numbers of 6 bits, scale[8], min[8], widened to bytes here. The min is taken away.
template <class V>
struct KScales {
    static constexpr bool kHalves = false, kMins = true;
    typename V::Float d, negated_dmin;
    int first_row;
    alignas(64) uint8_t small[256];
    KScales(const uint8_t* scales, const PackedShape&, int first_row)
        : d(V::load_f16(scales + 2 * first_row)),
          negated_dmin(V::negate(V::load_f16(scales + 32 + 2 * first_row))),
          first_row(first_row) {
#pragma GCC unroll 4
        for (int i = 64; i < 128; i += 4 * V::kRows) {
            const typename V::Int low = V::load(scales + i), lower = V::load(scales + 64 + i);
            const typename V::Int high = V::load(scales + 128 + i);
            uint8_t* to = small + i - 64;
            V::store_bytes(to, V::or_bits(V::and_bytes(low, 15), place_bits<V, 0, 4, 48>(high)));
            V::store_bytes(to + 64,
                           V::or_bits(place_bits<V, 4, 0, 15>(low), place_bits<V, 2, 4, 48>(high)));
            V::store_bytes(to + 128, V::or_bits(V::and_bytes(lower, 15), V::and_bytes(high, 48)));
            V::store_bytes(to + 192, V::or_bits(place_bits<V, 4, 0, 15>(lower),
                                                place_bits<V, 6, 4, 48>(high)));
        }
    }
    typename V::Float scale(int b) const {
        return V::mul(d, V::load_u8(small + 16 * b + first_row));
    }
    typename V::Float min(int b) const {
        return V::mul(negated_dmin, V::load_u8(small + 128 + 16 * b + first_row));
    }
};

// f16 d; i8 scale[8]
template <class V>
struct SignedScales {
    static constexpr bool kHalves = false, kMins = false;
    typename V::Float d;
    const uint8_t* small;
    SignedScales(const uint8_t* scales, const PackedShape&, int first_row)
        : d(V::load_f16(scales + 2 * first_row)), small(scales + 64 + first_row) {}
    typename V::Float scale(int b) const { return V::mul(d, V::load_i8(small + 16 * b)); }
};

// f16 d; i8 scale[16], one for each half of a block
template <class V>
struct SignedHalfScales {
    static constexpr bool kHalves = true, kMins = false;
    typename V::Float d;
    const uint8_t* small;
    SignedHalfScales(const uint8_t* scales, const PackedShape&, int first_row)
        : d(V::load_f16(scales + 2 * first_row)), small(scales + 64 + first_row) {}
    typename V::Float scale(int b, int half) const {
        return V::mul(d, V::load_i8(small + 16 * (2 * b + half)));
    }
};

// f16 d, dmin; u8 {scale | min << 4}[16]
template <class V>
struct NibbleHalfScales {
    static constexpr bool kHalves = true, kMins = true;
    typename V::Float d, negated_dmin;
    const uint8_t* small;
    NibbleHalfScales(const uint8_t* scales, const PackedShape&, int first_row)
        : d(V::load_f16(scales + 2 * first_row)),
          negated_dmin(V::negate(V::load_f16(scales + 32 + 2 * first_row))),
          small(scales + 64 + first_row) {}
    typename V::Float scale(int b, int half) const {
        return V::mul(d, V::load_low_nibbles(small + 16 * (2 * b + half)));
    }
    typename V::Float min(int b, int half) const {
        return V::mul(negated_dmin, V::load_high_nibbles(small + 16 * (2 * b + half)));
    }
};

// scales[128 / group_size], biases likewise, of the file's type
template <class V>
struct AffineScales {
    static constexpr bool kHalves = false, kMins = true;
    const uint8_t *p, *q;
    int group_size, type_bytes, dtype;
    AffineScales(const uint8_t* scales, const PackedShape& shape, int first_row)
        : group_size(shape.group_size),
          type_bytes(shape.scale_dtype == 0 ? 4 : 2),
          dtype(shape.scale_dtype) {
        p = scales + first_row * type_bytes;
        q = p + kAffineSuper / group_size * 16 * type_bytes;
    }
    typename V::Float at(const uint8_t* from) const {
        return dtype == 0 ? V::load_f32(from) : dtype == 1 ? V::load_f16(from) : V::load_bf16(from);
    }
    typename V::Float scale(int b) const { return at(p + 32 * b / group_size * 16 * type_bytes); }
    typename V::Float min(int b) const { return at(q + 32 * b / group_size * 16 * type_bytes); }
};

// --- formats: geometry, codes, scales ---

template <const Geometry& kGeometry, class CodesOf, template <class> class ScalesOf>
struct BlockFormat {
    using Codes = CodesOf;
    template <class V>
    using Scales = ScalesOf<V>;
    static constexpr int kOffset = kGeometry.offset;
    static constexpr int kBlocks = kGeometry.n_blocks();
    static constexpr int kCodeBytes = kGeometry.code_bytes;
    static int64_t scale_bytes(const PackedShape&) { return kGeometry.scale_bytes; }
};

template <int bits, class CodesOf>
struct AffineFormat {
    using Codes = CodesOf;
    template <class V>
    using Scales = AffineScales<V>;
    static constexpr int kOffset = 0, kBlocks = kAffineSuper / 32, kCodeBytes = 64 * bits;
    static int64_t scale_bytes(const PackedShape& shape) {
        return 2 * (kAffineSuper / shape.group_size) * 16 * (shape.scale_dtype == 0 ? 4 : 2);
    }
};

using FormatQ4_0 = BlockFormat<kGeometryQ4_0, Codes4, SmallScales>;
using FormatQ4_1 = BlockFormat<kGeometryQ4_1, Codes4, SmallMinScales>;
using FormatQ5_0 = BlockFormat<kGeometryQ5_0, Codes5, SmallScales>;
using FormatQ5_1 = BlockFormat<kGeometryQ5_1, Codes5, SmallMinScales>;
using FormatQ8_0 = BlockFormat<kGeometryQ8_0, Codes8, SmallScales>;
using FormatQ2_K = BlockFormat<kGeometryQ2_K, Codes2, NibbleHalfScales>;
using FormatQ3_K = BlockFormat<kGeometryQ3_K, Codes3, SignedHalfScales>;
using FormatQ4_K = BlockFormat<kGeometryQ4_K, Codes4, KScales>;
using FormatQ5_K = BlockFormat<kGeometryQ5_K, Codes5, KScales>;
using FormatQ6_K = BlockFormat<kGeometryQ6_K, Codes6, SignedHalfScales>;
using FormatIQ4_NL = BlockFormat<kGeometryIQ4_NL, CodesIq4, SmallScales>;
using FormatIQ4_XS = BlockFormat<kGeometryIQ4_XS, CodesIq4, SignedScales>;
using FormatAffine4 = AffineFormat<4, Codes4>;
using FormatAffine8 = AffineFormat<8, Codes8>;

// --- floats: elements 2 pair and 2 pair + 1 of the rows from first_row on ---

struct FloatBF16 {
    static constexpr Geometry kGeometry = kGeometryBF16;
    template <class V>
    static void load(const uint8_t* p, int pair, int first_row, typename V::Float* w) {
        V::load_bf16_pairs(p + 64 * pair + 4 * first_row, w);
    }
};
struct FloatF16 {
    static constexpr Geometry kGeometry = kGeometryF16;
    template <class V>
    static void load(const uint8_t* p, int pair, int first_row, typename V::Float* w) {
        w[0] = V::load_f16(p + 64 * pair + 2 * first_row);
        w[1] = V::load_f16(p + 64 * pair + 32 + 2 * first_row);
    }
};
struct FloatF32 {
    static constexpr Geometry kGeometry = kGeometryF32;
    template <class V>
    static void load(const uint8_t* p, int pair, int first_row, typename V::Float* w) {
        w[0] = V::load_f32(p + 128 * pair + 4 * first_row);
        w[1] = V::load_f32(p + 128 * pair + 64 + 4 * first_row);
    }
};

}  // namespace
}  // namespace ridge::cpu
