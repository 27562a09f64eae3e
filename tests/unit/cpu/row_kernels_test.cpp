#include "cpu/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "cases/random.h"
#include "cpu/isa.h"
#include "cpu/kernels_of_isa.h"
#include "support/seed.h"

// What the kernel cases, whose inputs are finite, do not show; on every instruction set that the
// machine has.

namespace ridge {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<cpu::RowKernels> all_kernels() {
    std::vector<cpu::RowKernels> all;
    for (Isa isa : available_isas()) all.push_back(cpu::kernels_of_isa(isa).rows);
    return all;
}

std::vector<float> normal_row(Random& random, int64_t n, float scale = 1) {
    std::vector<float> row(static_cast<size_t>(n));
    for (float& x : row) x = scale * random.normal();
    return row;
}

TEST(RowKernels, a_norm_of_any_width_is_the_same_in_place_and_on_every_instruction_set) {
    Random random(test_seed());
    const std::vector<cpu::RowKernels> all = all_kernels();
    for (int64_t n = 1; n < 140; n++) {
        const std::vector<float> x = normal_row(random, n), weight = normal_row(random, n);
        std::vector<float> want(x.size());
        all[0].rms_norm(x.data(), n, weight.data(), 1e-5f, want.data());
        for (const cpu::RowKernels& kernels : all) {
            std::vector<float> got = x;
            kernels.rms_norm(got.data(), n, weight.data(), 1e-5f, got.data());
            ASSERT_EQ(want, got) << n;
        }
    }
}

TEST(RowKernels, a_norm_of_nan_is_nan_and_of_infinity_zeros_but_for_itself) {
    const std::vector<float> weight(77, 1.0f);
    for (const cpu::RowKernels& kernels : all_kernels()) {
        for (size_t at : {0, 40, 76}) {
            std::vector<float> x(77, 2.0f), out(77);
            x[at] = kNan;
            kernels.rms_norm(x.data(), 77, weight.data(), 1e-5f, out.data());
            for (float y : out) EXPECT_TRUE(std::isnan(y));
            x[at] = -kInfinity;
            kernels.rms_norm(x.data(), 77, weight.data(), 1e-5f, out.data());
            for (size_t i = 0; i < 77; i++) EXPECT_TRUE(i == at ? std::isnan(out[i]) : out[i] == 0);
        }
    }
}

TEST(RowKernels, angles_are_those_of_float64_up_to_a_million_positions) {
    std::vector<double> frequency;
    for (int i = 0; i < 37; i++) frequency.push_back(std::pow(10000.0, -i / 37.0));
    for (const cpu::RowKernels& kernels : all_kernels()) {
        for (int32_t position : {0, 1, 2, 3, 4, 5, 6, 7, 1000, 131071, 1000000}) {
            std::vector<float> cosine(37), sine(37);
            kernels.rope_angles(position, frequency.data(), 37, cosine.data(), sine.data());
            for (size_t i = 0; i < 37; i++) {
                const double angle = position * frequency[i];
                EXPECT_NEAR(cosine[i], std::cos(angle), 6e-8) << position << " " << i;
                EXPECT_NEAR(sine[i], std::sin(angle), 6e-8) << position << " " << i;
            }
        }
    }
}

TEST(RowKernels, swiglu_of_extreme_gates) {
    const std::vector<float> gate = {1e4f,  -1e4f, 0.0f,   -0.0f,  kInfinity, kNan,
                                     88.0f, 89.0f, -87.0f, -50.0f, 1e-30f,    3e38f};
    const std::vector<float> want = {1e4f,
                                     -0.0f,
                                     0.0f,
                                     -0.0f,
                                     kInfinity,
                                     kNan,
                                     88.0f,
                                     89.0f,
                                     static_cast<float>(-87 * std::exp(-87.0)),
                                     static_cast<float>(-50 * std::exp(-50.0)),
                                     5e-31f,
                                     3e38f};
    for (const cpu::RowKernels& kernels : all_kernels()) {
        std::vector<float> gates, out(96), up(96, 1.0f);  // in vectors, and each alone
        while (gates.size() < 96) gates.insert(gates.end(), gate.begin(), gate.end());
        kernels.swiglu(gates.data(), up.data(), 96, out.data());
        for (size_t i = 0; i < 96; i++) {
            float alone;
            kernels.swiglu(&gates[i], &up[i], 1, &alone);
            const float expected = want[i % want.size()];
            if (std::isnan(expected)) {
                EXPECT_TRUE(std::isnan(out[i]) && std::isnan(alone));
                continue;
            }
            EXPECT_FLOAT_EQ(out[i], expected) << gates[i];
            EXPECT_EQ(std::signbit(out[i]), std::signbit(expected)) << gates[i];
            EXPECT_EQ(out[i], alone) << gates[i];
        }
    }
}

TEST(RowKernels, maxima_and_sums_of_logits_of_any_number) {
    Random random(test_seed());
    for (const cpu::RowKernels& kernels : all_kernels()) {
        for (int64_t n : {1, 15, 16, 63, 64, 65, 1023, 1024, 1025, 5000}) {
            std::vector<float> x = normal_row(random, n, 4);
            x[static_cast<size_t>(random.below(n))] = -kInfinity;
            x[0] = 20;
            double want = 0;
            std::vector<float> maxima(static_cast<size_t>((n + 1023) / 1024 * 16), -kInfinity);
            std::vector<float> got(maxima.size(), kNan);
            for (int64_t i = 0; i < n; i++) {
                const float logit = x[static_cast<size_t>(i)];
                float& maximum = maxima[static_cast<size_t>(i / 1024 * 16 + i % 16)];
                maximum = std::max(maximum, logit);
                if (logit >= 1) want += std::exp((logit - 20.0) * 0.7);
            }
            EXPECT_FALSE(kernels.logit_maxima(x.data(), n, got.data()));
            EXPECT_EQ(got, maxima) << n;
            EXPECT_NEAR(kernels.sum_exp(x.data(), n, 1, 20, 0.7), want, 1e-13 * want) << n;
            x[static_cast<size_t>(random.below(n))] = kNan;
            EXPECT_TRUE(kernels.logit_maxima(x.data(), n, got.data())) << n;
        }
    }
}

}  // namespace
}  // namespace ridge
