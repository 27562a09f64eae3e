#pragma once

#include <cstdint>

namespace ridge::cpu {
namespace {

// Two of V as one of twice as many rows.
template <class V>
struct Twice {
    static constexpr int kRows = 2 * V::kRows;
    static constexpr bool kUnsignedWide = V::kUnsignedWide;
    static constexpr int kPrefetchBytes = V::kPrefetchBytes;
    struct Int {
        typename V::Int low, high;
    };
    struct Float {
        typename V::Float low, high;
    };

    static void prefetch(const uint8_t* p) { V::prefetch(p); }
    static Int load(const uint8_t* p) { return {V::load(p), V::load(p + 4 * V::kRows)}; }
    static void store_bytes(uint8_t* p, Int v) {
        V::store_bytes(p, v.low);
        V::store_bytes(p + 4 * V::kRows, v.high);
    }
    static Int zero() { return {V::zero(), V::zero()}; }
    static Int and_bytes(Int v, int mask) {
        return {V::and_bytes(v.low, mask), V::and_bytes(v.high, mask)};
    }
    static Int or_bits(Int a, Int b) {
        return {V::or_bits(a.low, b.low), V::or_bits(a.high, b.high)};
    }
    template <int n>
    static Int shift_left(Int v) {
        return {V::template shift_left<n>(v.low), V::template shift_left<n>(v.high)};
    }
    template <int n>
    static Int shift_right(Int v) {
        return {V::template shift_right<n>(v.low), V::template shift_right<n>(v.high)};
    }
    static Int wide_codes(Int v) { return {V::wide_codes(v.low), V::wide_codes(v.high)}; }
    static Int iq4_levels(Int codes) {
        return {V::iq4_levels(codes.low), V::iq4_levels(codes.high)};
    }
    static auto load_codes(const int8_t* x) { return V::load_codes(x); }
    template <int lane, class Codes>
    static Int dot_lane(Int acc, Int c, Codes codes) {
        return {V::template dot_lane<lane>(acc.low, c.low, codes),
                V::template dot_lane<lane>(acc.high, c.high, codes)};
    }
    template <int times>
    static Int broadcast_times(const int32_t* x) {
        const auto both = V::template broadcast_times<times>(x);
        return {both, both};
    }

    static Float load_floats(const float* p) {
        return {V::load_floats(p), V::load_floats(p + V::kRows)};
    }
    static Float zero_float() { return {V::zero_float(), V::zero_float()}; }
    static Float to_float(Int v) { return {V::to_float(v.low), V::to_float(v.high)}; }
    static Float broadcast(const float* x) { return splat(*x); }
    static Float add(Float a, Float b) { return {V::add(a.low, b.low), V::add(a.high, b.high)}; }
    static Float mul(Float a, Float b) { return {V::mul(a.low, b.low), V::mul(a.high, b.high)}; }
    static Float fma(Float a, Float b, Float c) {
        return {V::fma(a.low, b.low, c.low), V::fma(a.high, b.high, c.high)};
    }
    static Float negate(Float a) { return {V::negate(a.low), V::negate(a.high)}; }
    static void store(float* p, Float v) {
        V::store(p, v.low);
        V::store(p + V::kRows, v.high);
    }

    static Float load_f32(const uint8_t* p) {
        return {V::load_f32(p), V::load_f32(p + 4 * V::kRows)};
    }
    static Float load_f16(const uint8_t* p) {
        return {V::load_f16(p), V::load_f16(p + 2 * V::kRows)};
    }
    static Float load_bf16(const uint8_t* p) {
        return {V::load_bf16(p), V::load_bf16(p + 2 * V::kRows)};
    }
    static void load_bf16_pairs(const uint8_t* p, Float* w) { bf16_pairs(load(p), w); }
    static void bf16_pairs(Int v, Float* w) {
        typename V::Float low[2], high[2];
        V::bf16_pairs(v.low, low);
        V::bf16_pairs(v.high, high);
        w[0] = {low[0], high[0]};
        w[1] = {low[1], high[1]};
    }
    using Table = typename V::Table;
    static Table load_table(const uint8_t* p) { return V::load_table(p); }
    template <bool high_ones>
    static Int look_up_nibbles(Table table, Int v) {
        return {V::template look_up_nibbles<high_ones>(table, v.low),
                V::template look_up_nibbles<high_ones>(table, v.high)};
    }
    static void zip_bytes(Int a, Int b, Int* out) {
        typename V::Int low[2], high[2];
        V::zip_bytes(a.low, b.low, low);
        V::zip_bytes(a.high, b.high, high);
        out[0] = {low[0], high[0]};
        out[1] = {low[1], high[1]};
    }
    static Float load_u8(const uint8_t* p) { return {V::load_u8(p), V::load_u8(p + V::kRows)}; }
    static Float load_i8(const uint8_t* p) { return {V::load_i8(p), V::load_i8(p + V::kRows)}; }
    static Float load_low_nibbles(const uint8_t* p) {
        return {V::load_low_nibbles(p), V::load_low_nibbles(p + V::kRows)};
    }
    static Float load_high_nibbles(const uint8_t* p) {
        return {V::load_high_nibbles(p), V::load_high_nibbles(p + V::kRows)};
    }

    static Float splat(float x) { return {V::splat(x), V::splat(x)}; }
    static Float splat_f16(const uint8_t* p) { return {V::splat_f16(p), V::splat_f16(p)}; }
    static Float sub(Float a, Float b) { return {V::sub(a.low, b.low), V::sub(a.high, b.high)}; }
    static Float max(Float a, Float b) { return {V::max(a.low, b.low), V::max(a.high, b.high)}; }
    static float reduce_max(Float v) { return V::reduce_max(V::max(v.low, v.high)); }
    static float reduce_add(Float v) { return V::reduce_add(V::add(v.low, v.high)); }
    static Float add_exponent(Float p, Float shifted) {
        return {V::add_exponent(p.low, shifted.low), V::add_exponent(p.high, shifted.high)};
    }
    static Float zero_below(Float x, Float limit, Float v) {
        return {V::zero_below(x.low, limit.low, v.low), V::zero_below(x.high, limit.high, v.high)};
    }
    static Float keep_first(Float v, int n, Float other) {
        return {V::keep_first(v.low, n, other.low),
                V::keep_first(v.high, n - V::kRows, other.high)};
    }
    static void store_f16(uint8_t* p, Float v) {
        V::store_f16(p, v.low);
        V::store_f16(p + 2 * V::kRows, v.high);
    }
    static void store_bf16(uint8_t* p, Float v) {
        V::store_bf16(p, v.low);
        V::store_bf16(p + 2 * V::kRows, v.high);
    }
};

}  // namespace
}  // namespace ridge::cpu
