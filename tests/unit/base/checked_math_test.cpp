#include "base/checked_math.h"

#include <gtest/gtest.h>

#include <random>

namespace ridge {
namespace {

constexpr uint64_t kMax = UINT64_MAX;

TEST(CheckedMathTest, sums_that_fit_are_exact_and_others_are_empty) {
    EXPECT_EQ(checked_add(2, 3), 5u);
    EXPECT_EQ(checked_add(kMax, 0), kMax);
    EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
    EXPECT_FALSE(checked_add(kMax, 1));
    EXPECT_FALSE(checked_add(kMax, kMax));
}

TEST(CheckedMathTest, products_that_fit_are_exact_and_others_are_empty) {
    EXPECT_EQ(checked_mul(0, kMax), 0u);
    EXPECT_EQ(checked_mul(kMax, 1), kMax);
    EXPECT_EQ(checked_mul(0xffffffffu, 0x100000001u), kMax);
    EXPECT_FALSE(checked_mul(uint64_t{1} << 32, uint64_t{1} << 32));
    EXPECT_FALSE(checked_mul(kMax, 2));
}

TEST(CheckedMathTest, random_products_agree_with_128_bit_arithmetic) {
    uint32_t seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    for (int i = 0; i < 100'000; i++) {
        // Shifts spread the sizes, so that about half of the products fit.
        uint64_t a = random() >> random() % 64, b = random() >> random() % 64;
        __extension__ using Wide = unsigned __int128;
        Wide product = static_cast<Wide>(a) * b, sum = static_cast<Wide>(a) + b;
        ASSERT_EQ(checked_mul(a, b).has_value(), product <= kMax) << a << " " << b;
        ASSERT_EQ(checked_add(a, b).has_value(), sum <= kMax) << a << " " << b;
        if (product <= kMax) {
            ASSERT_EQ(*checked_mul(a, b), static_cast<uint64_t>(product));
        }
        if (sum <= kMax) {
            ASSERT_EQ(*checked_add(a, b), static_cast<uint64_t>(sum));
        }
    }
}

TEST(CheckedMathTest, rounding_up_gives_the_smallest_multiple_that_is_enough) {
    for (uint64_t step : {1, 2, 3, 32, 65536}) {
        for (uint64_t value = 0; value < 200; value++) {
            uint64_t got = checked_round_up(value, step).value();
            EXPECT_EQ(got % step, 0u);
            EXPECT_GE(got, value);
            EXPECT_LT(got - value, step);
        }
    }
    EXPECT_EQ(checked_round_up(kMax, 1), kMax);
    EXPECT_EQ(checked_round_up(kMax - 31, 32), kMax - 31);
    EXPECT_FALSE(checked_round_up(kMax - 30, 32));
}

}  // namespace
}  // namespace ridge
