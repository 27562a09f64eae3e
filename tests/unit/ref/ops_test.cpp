#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>

#include "cases/random.h"
#include "ref/ref.h"
#include "support/host_step.h"
#include "support/seed.h"

// Each operator against its equation written another way, in float64 or wider.

namespace ridge {
namespace {

std::vector<float> normals(size_t n, uint64_t stream, float scale = 1) {
    Random random(test_seed(), stream);
    std::vector<float> values(n);
    for (float& value : values) value = scale * random.normal();
    return values;
}

void expect_near(double want, float got, double relative, const char* what, int64_t i, int64_t j) {
    EXPECT_LE(std::abs(double{got} - want), relative * std::abs(want) + 1e-37)
        << what << " row " << i << ", column " << j << ": " << got << ", expected " << want;
}

TEST(embed_rows, copies_the_rows_of_the_tokens) {
    const std::vector<float> values = normals(5 * 3, 1);
    HostStep host;
    Step step = host.step();
    Matrix out(4, 3);
    const Token tokens[] = {4, 0, 0, 2};
    ref::embed_rows(step, f32_tensor(values, 5, 3), tokens, out.rows());
    for (int64_t i = 0; i < 4; i++) {
        for (int64_t j = 0; j < 3; j++) {
            EXPECT_EQ(out.at(i, j), values[static_cast<size_t>(tokens[i] * 3 + j)]);
        }
    }
}

// Scaled first by the largest element, so that no square is out of range, in long double.
TEST(rms_norm, divides_by_the_root_mean_square) {
    for (float scale : {1.0f, 1e-20f, 1e4f, 1e-3f, 3e18f}) {
        for (float eps : {1e-5f, 1e-6f}) {
            const int64_t n_heads = 3, d = 64;
            Matrix x(2, n_heads * d, normals(2 * n_heads * d, 2, scale)), out(2, n_heads * d);
            const std::vector<float> weight = normals(d, 3);
            HostStep host;
            Step step = host.step();
            ref::rms_norm(step, {x.rows(), n_heads, d}, f32_tensor(weight, 1, d), eps,
                          {out.rows(), n_heads, d});
            for (int64_t i = 0; i < 2 * n_heads; i++) {
                const float* in = x.values.data() + i * d;
                long double largest = 0, sum = 0;
                for (int64_t k = 0; k < d; k++) largest = std::max(largest, fabsl(in[k]));
                for (int64_t k = 0; k < d; k++) sum += powl(in[k] / largest, 2);
                const long double root = hypotl(largest * sqrtl(sum / d), sqrtl(eps));
                for (int64_t k = 0; k < d; k++) {
                    expect_near(static_cast<double>(in[k] / root * weight[k]),
                                out.values[i * d + k], 1.2e-7, "rms_norm", i, k);
                }
            }
        }
    }
}

TEST(rms_norm, leaves_zeros_zero_and_works_in_place) {
    Matrix zeros(1, 8), out(1, 8, NAN), x(1, 8, normals(8, 4));
    const std::vector<float> weight(8, 2.0f);
    HostStep host;
    Step step = host.step();
    ref::rms_norm(step, zeros.rows(), f32_tensor(weight, 1, 8), 1e-6f, out.rows());
    for (float value : out.values) EXPECT_EQ(value, 0);
    ref::rms_norm(step, x.rows(), f32_tensor(weight, 1, 8), 1e-6f, out.rows());
    ref::rms_norm(step, x.rows(), f32_tensor(weight, 1, 8), 1e-6f, x.rows());
    EXPECT_EQ(x.values, out.values);
}

TEST(matmul, puts_the_outputs_of_a_group_side_by_side) {
    const int64_t d_in = 70, n_rows = 3;
    Matrix x(n_rows, d_in, normals(n_rows * d_in, 5)), out(n_rows, 4 + 1 + 2, NAN);
    const std::vector<float> a = normals(4 * d_in, 6), b = normals(d_in, 7),
                             c = normals(2 * d_in, 8), bias = {5, -7};
    Linear first{f32_tensor(a, 4, d_in), {}}, second{f32_tensor(b, 1, d_in), {}},
        third{f32_tensor(c, 2, d_in), f32_tensor(bias, 1, 2)};
    HostStep host;
    Step step = host.step();
    ref::matmul(step, x.rows(), {first, second, third}, out.rows());
    auto dot = [&](int64_t i, const std::vector<float>& w, int64_t row) {
        long double sum = 0;  // backwards, so that the order of sums is another
        for (int64_t k = d_in - 1; k >= 0; k--) {
            sum += static_cast<long double>(x.at(i, k)) * w[static_cast<size_t>(row * d_in + k)];
        }
        return static_cast<double>(sum);
    };
    for (int64_t i = 0; i < n_rows; i++) {
        for (int64_t j = 0; j < 4; j++) {
            expect_near(dot(i, a, j), out.at(i, j), 1.2e-7, "matmul", i, j);
        }
        expect_near(dot(i, b, 0), out.at(i, 4), 1.2e-7, "matmul", i, 4);
        for (int64_t j = 0; j < 2; j++) {
            expect_near(dot(i, c, j) + bias[static_cast<size_t>(j)], out.at(i, 5 + j), 1.2e-7,
                        "matmul", i, 5 + j);
        }
    }
}

TEST(matmul, keeps_activations_that_f16_cannot_hold) {
    Matrix x(1, 100, 70000.0f), out(1, 1);
    const std::vector<float> weight(100, 1e-3f);
    Linear linear{f32_tensor(weight, 1, 100), {}};
    HostStep host;
    Step step = host.step();
    ref::matmul(step, x.rows(), linear, out.rows());
    EXPECT_FLOAT_EQ(out.values[0], 7000.0f);
}

// A pair is a complex number that is multiplied by exp(i * position * theta^(-2 pair / d_rope)).
void check_rope(RopeStyle style, int d_head, int d_rope, int32_t position,
                const std::vector<float>& factors) {
    const int64_t n_heads = 3;
    HostStep host;
    host.config.d_rope = d_rope, host.config.rope_theta = 500000, host.config.rope_style = style;
    host.config.rope_factors = factors;
    const RopeTable table = make_rope_table(host.config);
    Matrix x(2, n_heads * d_head, normals(static_cast<size_t>(2 * n_heads * d_head), 9));
    const std::vector<float> before = x.values;
    Step step = host.step();
    const int32_t positions[] = {position, 7};
    ref::rope(step, {x.rows(), n_heads, d_head}, positions, table);
    for (int64_t i = 0; i < 2 * n_heads; i++) {
        const float *was = before.data() + i * d_head, *is = x.values.data() + i * d_head;
        for (int pair = 0; pair < d_rope / 2; pair++) {
            const int a = style == RopeStyle::kHalfSplit ? pair : 2 * pair;
            const int b = style == RopeStyle::kHalfSplit ? pair + d_rope / 2 : 2 * pair + 1;
            const long double angle = positions[i / n_heads] *
                                      expl(-2.0L * pair / d_rope * logl(500000.0L)) /
                                      (factors.empty() ? 1.0L : factors[pair]);
            const auto turned =
                std::complex<long double>(was[a], was[b]) * std::polar<long double>(1, angle);
            const double size = std::hypot(was[a], was[b]);
            EXPECT_NEAR(is[a], static_cast<double>(turned.real()), 2e-7 * size) << pair;
            EXPECT_NEAR(is[b], static_cast<double>(turned.imag()), 2e-7 * size) << pair;
        }
        for (int k = d_rope; k < d_head; k++) EXPECT_EQ(is[k], was[k]) << "tail " << k;
    }
}

TEST(rope, turns_pairs_by_their_angle) {
    const std::vector<float> factors = llama3_rope_factors(64, 500000, 32, 1, 4, 8192);
    for (RopeStyle style : {RopeStyle::kHalfSplit, RopeStyle::kInterleaved}) {
        for (int32_t position : {0, 7, 131071}) {
            check_rope(style, 64, 64, position, {});
            check_rope(style, 80, 80, position, {});
            check_rope(style, 64, 16, position, {});
            check_rope(style, 64, 64, position, factors);
        }
    }
}

// The factors as published for Llama 3.2 1B and Llama 3.1 8B.
TEST(rope, has_the_factors_of_llama_3) {
    auto expect_factors = [](int d_rope, double factor, int first, std::vector<float> middle) {
        const std::vector<float> got = llama3_rope_factors(d_rope, 500000, factor, 1, 4, 8192);
        ASSERT_EQ(got.size(), static_cast<size_t>(d_rope / 2));
        for (int i = 0; i < d_rope / 2; i++) {
            const int m = i - first;
            const double want = m < 0                                  ? 1
                                : m >= static_cast<int>(middle.size()) ? factor
                                                                       : double{middle[m]};
            EXPECT_NEAR(got[i], want, 1e-4 * want) << "pair " << i << " of " << d_rope;
        }
    };
    expect_factors(64, 32, 15, {1.6513f, 3.2923f, 9.6667f});
    expect_factors(128, 8, 29, {1.2075f, 1.5534f, 2.0263f, 2.6945f, 3.6843f, 5.2573f});
}

TEST(swiglu, multiplies_by_silu_without_overflow) {
    const std::vector<float> gates = {1e4f,  -1e4f,  0.0f, -0.0f, 1,  -1,
                                      88.9f, -88.9f, -103, 20,    -20};
    const auto n = static_cast<int64_t>(gates.size());
    Matrix in(1, 2 * n, 3.0f), out(1, n, NAN);
    std::copy(gates.begin(), gates.end(), in.values.begin());
    HostStep host;
    Step step = host.step();
    ref::swiglu(step, in.rows(), out.rows());
    for (int64_t j = 0; j < n; j++) {
        // silu(g) = g * (1 + tanh(g / 2)) / 2
        const long double g = gates[static_cast<size_t>(j)];
        const long double want = g < -20 ? 3 * g * expl(g) : 3 * g * (1 + tanhl(g / 2)) / 2;
        expect_near(static_cast<double>(want), out.at(0, j), 2e-7, "swiglu", 0, j);
    }
    EXPECT_EQ(out.at(0, 0), 3e4f);
    EXPECT_TRUE(std::signbit(out.at(0, 1)) && out.at(0, 1) == 0);
    EXPECT_TRUE(!std::signbit(out.at(0, 2)) && out.at(0, 2) == 0);
    EXPECT_TRUE(std::signbit(out.at(0, 3)) && out.at(0, 3) == 0);
}

TEST(add, adds_to_the_second) {
    Matrix y(2, 2, {1, 2, 3, 4}), x(2, 2, {10, 20, 30, 40});
    HostStep host;
    Step step = host.step();
    ref::add(step, y.rows(), x.rows());
    EXPECT_EQ(x.values, (std::vector<float>{11, 22, 33, 44}));
    EXPECT_EQ(y.values, (std::vector<float>{1, 2, 3, 4}));
}

TEST(ref, computes_nothing_in_a_dry_run) {
    Matrix y(1, 4, 1.0f), x(1, 2, 3.0f);
    HostStep host;
    Step step = host.step(true);
    ref::add(step, y.rows().cols(0, 2), x.rows());
    ref::swiglu(step, y.rows(), x.rows());
    ref::rms_norm(step, x.rows(), {}, 0, x.rows());
    ref::sample(step, x.rows(), {});
    EXPECT_EQ(x.values, (std::vector<float>{3, 3}));
    EXPECT_EQ(host.memory.planned_bytes(), 0u);
}

}  // namespace
}  // namespace ridge
