#include "cmd/eval_stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "support/seed.h"

namespace ridge {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> logs_of(const std::vector<double>& probabilities, float offset = 0) {
    std::vector<float> logits;
    for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p)) + offset);
    return logits;
}

std::vector<float> random_logits(std::mt19937_64& random, size_t n, float scale) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> logits(n);
    for (float& logit : logits) logit = normal(random);
    return logits;
}

// Probabilities in long double, by the definition.
std::vector<long double> softmax(const std::vector<float>& logits) {
    std::vector<long double> p;
    long double sum = 0;
    for (float logit : logits) sum += p.emplace_back(std::exp(static_cast<long double>(logit)));
    for (long double& value : p) value /= sum;
    return p;
}

TEST(ScorePosition, gives_what_can_be_computed_by_hand) {
    // 1/2 log(1/2 / 1/4) + 1/4 log(1/4 / 1/2) + 1/4 log 1 = 1/4 log 2
    auto score = score_position(logs_of({0.25, 0.5, 0.25}, 40), logs_of({0.5, 0.25, 0.25}, -7), 1);
    ASSERT_TRUE(score);
    EXPECT_NEAR(score->kl, 0.25 * std::log(2.0), 1e-5);
    EXPECT_NEAR(score->nll, std::log(2.0), 1e-5);
    EXPECT_NEAR(score->reference_nll, std::log(4.0), 1e-5);
    EXPECT_FALSE(score->same_top);
}

TEST(ScorePosition, agrees_with_the_definition_on_random_logits) {
    std::mt19937_64 random(test_seed());
    for (size_t n : {size_t{2}, size_t{31}, size_t{5000}}) {
        for (float scale : {0.1f, 3.0f, 20.0f}) {
            std::vector<float> p = random_logits(random, n, scale), r = p;
            for (float& logit : r) logit += random_logits(random, 1, 0.1f)[0];
            auto next = static_cast<Token>(random() % n);
            auto score = score_position(p, r, next);
            ASSERT_TRUE(score);
            std::vector<long double> sp = softmax(p), sr = softmax(r);
            long double kl = 0;
            for (size_t i = 0; i < n; i++) kl += sr[i] * (std::log(sr[i]) - std::log(sp[i]));
            EXPECT_NEAR(score->kl, static_cast<double>(kl), 1e-12);
            auto at = static_cast<size_t>(next);
            EXPECT_NEAR(score->nll, -static_cast<double>(std::log(sp[at])), 1e-10);
            EXPECT_NEAR(score->reference_nll, -static_cast<double>(std::log(sr[at])), 1e-10);
            bool same = std::max_element(p.begin(), p.end()) - p.begin() ==
                        std::max_element(r.begin(), r.end()) - r.begin();
            EXPECT_EQ(score->same_top, same);
        }
    }
}

TEST(ScorePosition, is_zero_between_equals_whatever_their_offset) {
    std::mt19937_64 random(test_seed() + 1);
    std::vector<float> p = random_logits(random, 1000, 4), shifted = p;
    EXPECT_EQ(score_position(p, p, 0)->kl, 0);
    for (float& logit : shifted)
        logit = (logit + 1024) - 1024;  // so few bits that a shift is exact
    p = shifted;
    for (float& logit : shifted) logit += 64;
    auto score = score_position(p, shifted, 0);
    EXPECT_LT(score->kl, 1e-14);
    EXPECT_GE(score->kl, 0);
    EXPECT_TRUE(score->same_top);
}

TEST(ScorePosition, bears_forbidden_tokens_and_logits_that_would_overflow) {
    auto none =
        score_position(std::vector{-kInfinity, 1.0f, 1.0f}, std::vector{-kInfinity, 5.0f, 5.0f}, 1);
    EXPECT_NEAR(none->kl, 0, 1e-15);
    EXPECT_NEAR(none->nll, std::log(2.0), 1e-15);
    auto impossible = score_position(std::vector{-kInfinity, 0.0f}, std::vector{0.0f, 0.0f}, 0);
    EXPECT_EQ(impossible->kl, kInfinity);
    EXPECT_EQ(impossible->nll, kInfinity);
    auto large = score_position(std::vector{3e38f, 3e38f}, std::vector{-3e38f, -3e38f}, 0);
    EXPECT_NEAR(large->kl, 0, 1e-15);
}

TEST(ScorePosition, refuses_what_is_no_distribution) {
    const std::vector<float> good = {0, 1, 2};
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const std::vector<float>& bad :
         {std::vector{nan, 1.0f, 2.0f}, std::vector{1.0f, 2.0f, nan},
          std::vector{1.0f, kInfinity, 2.0f}, std::vector(3, -kInfinity)}) {
        EXPECT_FALSE(score_position(bad, {}, 0));
        EXPECT_FALSE(score_position(bad, good, 0));
        EXPECT_FALSE(score_position(good, bad, 0));
    }
}

TEST(Percentile, lies_on_the_line_between_neighbours) {
    const std::vector<double> values = {1, 2, 4, 8, 16};
    EXPECT_EQ(percentile(values, 0), 1);
    EXPECT_EQ(percentile(values, 0.5), 4);
    EXPECT_DOUBLE_EQ(percentile(values, 0.875), 12);
    EXPECT_EQ(percentile(values, 1), 16);
    EXPECT_EQ(percentile(std::vector{3.0}, 0.99), 3);
}

TEST(Summarise, gives_what_can_be_computed_by_hand) {
    std::vector<PositionScore> scores(4);
    for (size_t i = 0; i < 4; i++) {
        scores[i].nll = std::log(i % 2 == 0 ? 2.0 : 8.0);
        scores[i].reference_nll = std::log(4.0);
        scores[i].kl = static_cast<double>(i);
        scores[i].same_top = i != 2;
    }
    EvalSummary summary = summarise(scores, true);
    EXPECT_EQ(summary.n_positions, 4);
    EXPECT_NEAR(summary.perplexity.value, 4, 1e-12);
    // Each nll is log 2 away from the mean: s = sqrt(4/3) log 2.
    EXPECT_NEAR(summary.perplexity.error, 4 * std::sqrt(4.0 / 3) * std::log(2.0) / 2, 1e-12);
    EXPECT_NEAR(summary.reference_perplexity.value, 4, 1e-12);
    EXPECT_NEAR(summary.reference_perplexity.error, 0, 1e-12);
    EXPECT_NEAR(summary.kl.value, 1.5, 1e-15);
    EXPECT_NEAR(summary.kl.error, std::sqrt(5.0 / 3) / 2, 1e-12);
    EXPECT_NEAR(summary.kl_median, 1.5, 1e-15);
    EXPECT_NEAR(summary.kl_p99, 2.97, 1e-12);
    EXPECT_EQ(summary.kl_max, 3);
    EXPECT_EQ(summary.top1_agreement, 0.75);
    // Differences of 1/4 and -1/8.
    EXPECT_NEAR(summary.p_rms_difference, std::sqrt((1.0 / 16 + 1.0 / 64) / 2), 1e-12);
}

TEST(Summarise, of_one_position_has_no_error_to_tell) {
    std::vector<PositionScore> scores(1);
    scores[0].nll = 1;
    EvalSummary summary = summarise(scores, false);
    EXPECT_NEAR(summary.perplexity.value, std::exp(1.0), 1e-12);
    EXPECT_EQ(summary.perplexity.error, 0);
}

}  // namespace
}  // namespace ridge
