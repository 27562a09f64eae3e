#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace ridge {
namespace {

// The value of a binary16 number by its definition.
double value_of(uint16_t bits) {
    int exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
    double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == 0x1f) return mantissa == 0 ? sign * INFINITY : NAN;
    if (exponent == 0) return sign * std::ldexp(mantissa, -24);
    return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

// Rounds |x| to a format of `n_mantissa` stored bits whose smallest normal is 2^min_exponent, by
// counting in units of the last place: nearbyint ties to even.
double rounded(double x, int n_mantissa, int min_exponent) {
    if (x == 0 || std::isinf(x)) return x;
    int exponent = std::max(std::ilogb(x), min_exponent);
    double unit = std::ldexp(1.0, exponent - n_mantissa);
    return std::nearbyint(x / unit) * unit;
}

double rounded_to_f16(double x) {
    double value = rounded(x, 10, -14);
    return std::abs(value) > 65504 ? std::copysign(INFINITY, x) : value;
}

double rounded_to_bf16(double x) {
    double value = rounded(x, 7, -126);
    return std::abs(value) > std::ldexp(255.0, 120) ? std::copysign(INFINITY, x) : value;
}

// Values around every point where rounding changes its mind: each half, the middle between it and
// the next, and the floats on both sides of each.
template <class Half>
std::vector<float> rounding_points() {
    std::vector<float> points;
    for (uint32_t bits = 0; bits < 0x8000; bits++) {
        float low = to_float(Half{static_cast<uint16_t>(bits)});
        float high = to_float(Half{static_cast<uint16_t>(bits + 1)});
        if (!std::isfinite(low)) break;
        float middle = static_cast<float>((double{low} + double{high}) / 2);
        for (float x : {low, middle}) {
            for (float near : {x, std::nextafter(x, -INFINITY), std::nextafter(x, INFINITY)}) {
                points.push_back(near);
                points.push_back(-near);
            }
        }
    }
    return points;
}

std::vector<float> random_floats(int n) {
    uint32_t seed = std::random_device{}();
    ::testing::Test::RecordProperty("seed", std::to_string(seed));
    std::printf("seed %u\n", seed);
    std::mt19937 random(seed);
    std::vector<float> values;
    while (static_cast<int>(values.size()) < n) {
        float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
        if (!std::isnan(value)) values.push_back(value);
    }
    return values;
}

void expect_bits(float got, double want, float x) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(static_cast<float>(want)))
        << x << " became " << got << ", expected " << want;
}

TEST(HalfTest, every_f16_becomes_the_float_of_its_value) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        double want = value_of(static_cast<uint16_t>(bits));
        float got = to_float(f16{static_cast<uint16_t>(bits)});
        if (std::isnan(want)) {
            ASSERT_TRUE(std::isnan(got)) << bits;
            ASSERT_EQ(std::signbit(got), (bits & 0x8000) != 0) << bits;
            ASSERT_EQ(std::bit_cast<uint32_t>(got) >> 13 & 0x3ff, bits & 0x3ff) << bits;
        } else {
            expect_bits(got, want, got);
        }
    }
}

TEST(HalfTest, every_f16_survives_the_way_through_float) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        f16 half{static_cast<uint16_t>(bits)};
        uint16_t want = std::isnan(to_float(half)) ? half.bits | 0x200 : half.bits;
        ASSERT_EQ(to_f16(to_float(half)).bits, want);
    }
}

TEST(HalfTest, every_bf16_survives_the_way_through_float) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        bf16 half{static_cast<uint16_t>(bits)};
        ASSERT_EQ(std::bit_cast<uint32_t>(to_float(half)), bits << 16);
        uint16_t want = std::isnan(to_float(half)) ? half.bits | 0x40 : half.bits;
        ASSERT_EQ(to_bf16(to_float(half)).bits, want);
    }
}

TEST(HalfTest, f16_rounds_to_nearest_even_at_every_rounding_point) {
    for (float x : rounding_points<f16>()) expect_bits(to_float(to_f16(x)), rounded_to_f16(x), x);
}

TEST(HalfTest, bf16_rounds_to_nearest_even_at_every_rounding_point) {
    for (float x : rounding_points<bf16>())
        expect_bits(to_float(to_bf16(x)), rounded_to_bf16(x), x);
}

TEST(HalfTest, random_floats_round_to_nearest_even) {
    for (float x : random_floats(200'000)) {
        expect_bits(to_float(to_f16(x)), rounded_to_f16(x), x);
        expect_bits(to_float(to_bf16(x)), rounded_to_bf16(x), x);
    }
}

TEST(HalfTest, overflow_gives_infinity_and_nan_stays_nan) {
    EXPECT_EQ(to_f16(65504.0f).bits, 0x7bff);
    EXPECT_EQ(to_f16(std::nextafter(65520.0f, 0.0f)).bits, 0x7bff);
    EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);
    EXPECT_EQ(to_f16(-1e30f).bits, 0xfc00);
    EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
    // A NaN whose payload lies in the bits that are dropped must not become an infinity.
    float nan = std::bit_cast<float>(0x7f800001u);
    EXPECT_TRUE(std::isnan(to_float(to_f16(nan))));
    EXPECT_TRUE(std::isnan(to_float(to_bf16(nan))));
}

}  // namespace
}  // namespace ridge
