#pragma once

#include <cstdint>
#include <cstring>

namespace ridge::cpu {
namespace {

// Four rows in plain C++, for machines that have nothing better and as what the others are read
// against.
struct Scalar {
    static constexpr int kRows = 4, kMaxRows = 2;
    static constexpr bool kUnsignedWide = true;
    static constexpr int kPrefetchBytes = 2048;
    static constexpr int kGemmRegs = 1, kGemmFloatRegs = 2, kGemmFloatTile = 2;
    // Attention: registers that hold sums of a decode step; rows and vectors of a prompt's tile.
    static constexpr int kSumRegisters = 4, kPromptRows = 2, kPromptVectors = 2;
    struct Int {
        uint32_t lane[kRows];
    };
    struct Float {
        float lane[kRows];
    };

    static void prefetch(const uint8_t* p) { __builtin_prefetch(p); }
    static Int load(const uint8_t* p) {
        Int v;
        memcpy(&v, p, sizeof v);
        return v;
    }
    static void store_bytes(uint8_t* p, Int v) { memcpy(p, &v, sizeof v); }
    static Int zero() { return {}; }
    static Int and_bytes(Int v, int mask) {
        return each(v, [=](uint32_t x) { return x & (static_cast<uint32_t>(mask) * 0x01010101u); });
    }
    static Int or_bits(Int a, Int b) {
        for (int i = 0; i < kRows; i++) a.lane[i] |= b.lane[i];
        return a;
    }
    // Bits that leave a byte are masked away by whoever shifts.
    template <int n>
    static Int shift_left(Int v) {
        return each(v, [](uint32_t x) { return x << n; });
    }
    template <int n>
    static Int shift_right(Int v) {
        return each(v, [](uint32_t x) { return x >> n; });
    }
    static Int wide_codes(Int v) { return v; }
    static Int iq4_levels(Int codes) {
        constexpr uint8_t kLevels[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                         129, 141, 153, 166, 181, 197, 217, 241};
        return each(codes, [&](uint32_t x) {
            return uint32_t{kLevels[x & 15]} | uint32_t{kLevels[(x >> 8) & 15]} << 8 |
                   uint32_t{kLevels[(x >> 16) & 15]} << 16 |
                   uint32_t{kLevels[(x >> 24) & 15]} << 24;
        });
    }
    static Int dot(Int acc, Int c, const int8_t* x) {
        for (int i = 0; i < kRows; i++) {
            int32_t sum = 0;
            for (int b = 0; b < 4; b++) {
                sum += static_cast<int32_t>((c.lane[i] >> (8 * b)) & 255) * x[b];
            }
            acc.lane[i] += static_cast<uint32_t>(sum);
        }
        return acc;
    }
    static Int dot_wide(Int acc, Int c, const int8_t* x) { return dot(acc, c, x); }
    template <int times>
    static Int broadcast_times(const int32_t* x) {
        Int v;
        for (uint32_t& lane : v.lane)
            lane = static_cast<uint32_t>(times) * static_cast<uint32_t>(*x);
        return v;
    }

    static Float load_floats(const float* p) {
        Float f;
        memcpy(&f, p, sizeof f);
        return f;
    }
    static Float zero_float() { return {}; }
    static Float to_float(Int v) {
        Float f;
        for (int i = 0; i < kRows; i++)
            f.lane[i] = static_cast<float>(static_cast<int32_t>(v.lane[i]));
        return f;
    }
    static Float broadcast(const float* x) {
        Float f;
        for (float& lane : f.lane) lane = *x;
        return f;
    }
    static Float add(Float a, Float b) {
        for (int i = 0; i < kRows; i++) a.lane[i] += b.lane[i];
        return a;
    }
    static Float mul(Float a, Float b) {
        for (int i = 0; i < kRows; i++) a.lane[i] *= b.lane[i];
        return a;
    }
    static Float fma(Float a, Float b, Float c) {  // rounded twice
        for (int i = 0; i < kRows; i++) c.lane[i] += a.lane[i] * b.lane[i];
        return c;
    }
    static Float negate(Float a) {
        for (float& lane : a.lane) lane = -lane;
        return a;
    }
    // Byte i of each lane of c, as floats.
    template <int i>
    static Float code_floats(Int c) {
        Float f;
        for (int r = 0; r < kRows; r++)
            f.lane[r] = static_cast<float>((c.lane[r] >> (8 * i)) & 255);
        return f;
    }
    // Rounded to nearest even, in pairs: out [kRows][2].
    static void store_bf16_pairs(uint8_t* out, Float even, Float odd) {
        for (int r = 0; r < kRows; r++) {
            const uint32_t pair = bf16_bits(even.lane[r]) | bf16_bits(odd.lane[r]) << 16;
            memcpy(out + 4 * r, &pair, sizeof pair);
        }
    }
    // Rounded likewise: a's numbers, then b's.
    static Int pack_bf16(Float a, Float b) {
        Int v;
        for (int r = 0; r < kRows; r++) {
            const Float& from = r < kRows / 2 ? a : b;
            const int at = 2 * r % kRows;
            v.lane[r] = bf16_bits(from.lane[at]) | bf16_bits(from.lane[at + 1]) << 16;
        }
        return v;
    }
    static Int splat_pair(uint32_t pair) {
        Int v;
        for (uint32_t& lane : v.lane) lane = pair;
        return v;
    }
    static Float dot_bf16(Float acc, Int a, Int b) {
        for (int r = 0; r < kRows; r++) {
            acc.lane[r] += float_of_bits(a.lane[r] << 16) * float_of_bits(b.lane[r] << 16);
            acc.lane[r] +=
                float_of_bits(a.lane[r] & 0xffff0000u) * float_of_bits(b.lane[r] & 0xffff0000u);
        }
        return acc;
    }
    static void store(float* p, Float v) { memcpy(p, &v, sizeof v); }

    static Float load_f32(const uint8_t* p) {
        Float f;
        memcpy(&f, p, sizeof f);
        return f;
    }
    static Float load_f16(const uint8_t* p) {
        Float f;
        for (int i = 0; i < kRows; i++) f.lane[i] = float_of_f16(half(p, i));
        return f;
    }
    static Float load_bf16(const uint8_t* p) {
        Float f;
        for (int i = 0; i < kRows; i++) f.lane[i] = float_of_bits(uint32_t{half(p, i)} << 16);
        return f;
    }
    static void load_bf16_pairs(const uint8_t* p, Float* w) { bf16_pairs(load(p), w); }
    static void bf16_pairs(Int v, Float* w) {
        for (int i = 0; i < kRows; i++) {
            w[0].lane[i] = float_of_bits(v.lane[i] << 16);
            w[1].lane[i] = float_of_bits(v.lane[i] & 0xffff0000u);
        }
    }
    // Compact BF16: what the table says of the low nibbles of v, or of the high ones.
    struct Table {
        uint8_t entry[16];
    };
    static Table load_table(const uint8_t* p) {
        Table table;
        memcpy(&table, p, sizeof table);
        return table;
    }
    template <bool high>
    static Int look_up_nibbles(const Table& table, Int v) {
        uint8_t bytes[4 * kRows];
        memcpy(bytes, &v, sizeof bytes);
        for (uint8_t& byte : bytes) byte = table.entry[(byte >> (high ? 4 : 0)) & 15];
        memcpy(&v, bytes, sizeof bytes);
        return v;
    }
    // Bytes of low and high in turn, the first eight of each to out[0], the others to out[1].
    static void zip_bytes(Int low, Int high, Int* out) {
        uint8_t from[2][4 * kRows], bytes[8 * kRows];
        memcpy(from[0], &low, sizeof from[0]);
        memcpy(from[1], &high, sizeof from[1]);
        for (int i = 0; i < 8 * kRows; i++) bytes[i] = from[i % 2][i / 2];
        memcpy(out, bytes, sizeof bytes);
    }
    static Float load_u8(const uint8_t* p) {
        return each_byte(p, [](uint8_t b) { return static_cast<float>(b); });
    }
    static Float load_i8(const uint8_t* p) {
        return each_byte(p, [](uint8_t b) { return static_cast<float>(static_cast<int8_t>(b)); });
    }
    static Float load_low_nibbles(const uint8_t* p) {
        return each_byte(p, [](uint8_t b) { return static_cast<float>(b & 15); });
    }
    static Float load_high_nibbles(const uint8_t* p) {
        return each_byte(p, [](uint8_t b) { return static_cast<float>(b >> 4); });
    }

    static Float splat(float x) { return broadcast(&x); }
    static Float splat_f16(const uint8_t* p) { return splat(float_of_f16(half(p, 0))); }
    static Float sub(Float a, Float b) {
        for (int i = 0; i < kRows; i++) a.lane[i] -= b.lane[i];
        return a;
    }
    static Float max(Float a, Float b) {  // of NaN: b
        for (int i = 0; i < kRows; i++) b.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
        return b;
    }
    static float reduce_max(Float v) {
        const float a = v.lane[0] > v.lane[2] ? v.lane[0] : v.lane[2];
        const float b = v.lane[1] > v.lane[3] ? v.lane[1] : v.lane[3];
        return a > b ? a : b;
    }
    static float reduce_add(Float v) { return (v.lane[0] + v.lane[2]) + (v.lane[1] + v.lane[3]); }
    // p * 2^n, where shifted is n + 1.5 * 2^23 and the result is a normal number.
    static Float add_exponent(Float p, Float shifted) {
        for (int i = 0; i < kRows; i++) {
            p.lane[i] =
                float_of_bits(bits_of_float(p.lane[i]) + (bits_of_float(shifted.lane[i]) << 23));
        }
        return p;
    }
    // x < limit ? 0 : v
    static Float zero_below(Float x, Float limit, Float v) {
        for (int i = 0; i < kRows; i++) v.lane[i] = x.lane[i] < limit.lane[i] ? 0.0f : v.lane[i];
        return v;
    }
    // v in the first n lanes, `other` in those behind.
    static Float keep_first(Float v, int n, Float other) {
        for (int i = 0; i < kRows; i++) other.lane[i] = i < n ? v.lane[i] : other.lane[i];
        return other;
    }
    static void store_f16(uint8_t* p, Float v) {
        for (int i = 0; i < kRows; i++) {
            const uint16_t bits = f16_of_float(v.lane[i]);
            memcpy(p + 2 * i, &bits, sizeof bits);
        }
    }
    static void store_bf16(uint8_t* p, Float v) {
        for (int i = 0; i < kRows; i++) {
            const auto bits = static_cast<uint16_t>(bf16_bits(v.lane[i]));
            memcpy(p + 2 * i, &bits, sizeof bits);
        }
    }

  private:
    template <class Fn>
    static Int each(Int v, Fn fn) {
        for (uint32_t& lane : v.lane) lane = fn(lane);
        return v;
    }
    template <class Fn>
    static Float each_byte(const uint8_t* p, Fn fn) {
        Float f;
        for (int i = 0; i < kRows; i++) f.lane[i] = fn(p[i]);
        return f;
    }
    static uint16_t half(const uint8_t* p, int i) {
        uint16_t bits;
        memcpy(&bits, p + 2 * i, sizeof bits);
        return bits;
    }
    static uint32_t bf16_bits(float x) {
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;  // stays a NaN
        return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    }
    static float float_of_bits(uint32_t bits) {
        float f;
        memcpy(&f, &bits, sizeof f);
        return f;
    }
    static uint32_t bits_of_float(float x) {
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        return bits;
    }
    // To nearest even; beyond the range infinite, a NaN quiet. Subnormals are rounded by adding
    // 0.5, 2^23 units of 2^-24.
    static uint16_t f16_of_float(float x) {
        const uint32_t sign = bits_of_float(x) >> 16 & 0x8000u;
        const uint32_t bits = bits_of_float(x) & 0x7fffffffu;
        uint32_t rest = 0x7c00u;
        if (bits > 0x7f800000u) {
            rest |= 0x200u | (bits >> 13 & 0x3ffu);
        } else if (bits < 0x38800000u) {
            rest = bits_of_float(float_of_bits(bits) + 0.5f) - bits_of_float(0.5f);
        } else if (bits < 0x477ff000u) {
            rest = (bits + 0xfffu + (bits >> 13 & 1u) - (112u << 23)) >> 13;
        }
        return static_cast<uint16_t>(sign | rest);
    }
    // Exact. Exponent and mantissa moved up, then 2^112 times: subnormals come out right.
    static float float_of_f16(uint16_t bits) {
        const uint32_t sign = uint32_t{bits & 0x8000u} << 16, rest = bits & 0x7fffu;
        if (rest >= 0x7c00u) return float_of_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
        const float magnitude = float_of_bits(rest << 13) * float_of_bits(0x77800000u);
        uint32_t result;
        memcpy(&result, &magnitude, sizeof result);
        return float_of_bits(sign | result);
    }
};

}  // namespace
}  // namespace ridge::cpu
