#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "cases/random.h"
#include "ref/ref.h"
#include "support/host_step.h"
#include "support/seed.h"

namespace ridge {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Everything off but the temperature.
const SampleParams kPlain{.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0};
const SampleParams kGreedy{.temperature = 0, .top_k = 0, .top_p = 1, .min_p = 0};

// What sample() gives for one row; `logits` end up as it leaves them.
Sampled draw(std::vector<float>& logits, const SampleParams& params,
             const std::vector<Token>& history = {}, int64_t position = 0) {
    HostStep host;
    const SampleRow row{&params, history, position};
    host.batch.sample_rows = {&row, 1};
    Buffer buffer = borrow(logits.data(), logits.size() * sizeof(float));
    const auto n = static_cast<int64_t>(logits.size());
    Step step = host.step();
    Sampled drawn;
    ref::sample(step, {&buffer, 0, DType::kF32, 1, n, n}, {&drawn, 1});
    return drawn;
}

Token draw_token(std::vector<float> logits, const SampleParams& params, int64_t position = 0) {
    return draw(logits, params, {}, position).token;
}

std::vector<float> logs(std::vector<float> probabilities) {
    for (float& p : probabilities) p = std::log(p);
    return probabilities;
}

// Number of tokens that are ever drawn, the least probable of which should be at least 0.01.
size_t n_kept(const std::vector<float>& probabilities, const SampleParams& params) {
    std::set<Token> seen;
    for (int64_t position = 0; position < 1500; position++) {
        seen.insert(draw_token(logs(probabilities), params, position));
    }
    return seen.size();
}

std::string error_of(std::vector<float> logits, const SampleParams& params, int64_t position) {
    try {
        draw(logits, params, {}, position);
        return "no error";
    } catch (const Error& error) {
        return error.what();
    }
}

TEST(sample, is_greedy_at_temperature_zero) {
    EXPECT_EQ(draw_token({1, 2}, kGreedy), 1);
    SampleParams filtered;
    filtered.temperature = 0;
    EXPECT_EQ(draw_token({1, 2}, filtered), 1);
}

TEST(sample, breaks_ties_by_the_lowest_id) {
    EXPECT_EQ(draw_token({3, 3, 1}, kGreedy), 0);
    EXPECT_EQ(draw_token({1, 3, 3}, kGreedy), 1);
    SampleParams one = kPlain;
    one.top_k = 1;
    for (int64_t position = 0; position < 100; position++) {
        EXPECT_EQ(draw_token({1, 3, 3, 3}, one, position), 1);
    }
    std::vector<float> equal(1000, 1.0f);
    one.n_logprobs = 3;
    const Sampled drawn = draw(equal, one);
    EXPECT_EQ(drawn.token, 0);
    ASSERT_EQ(drawn.top.size(), 3u);
    for (Token i = 0; i < 3; i++) EXPECT_EQ(drawn.top[static_cast<size_t>(i)].token, i);
}

TEST(sample, top_p_keeps_the_crossing_token) {
    SampleParams params = kPlain;
    const std::pair<float, size_t> table[] = {{0.0f, 1}, {1e-8f, 1}, {0.5f, 2},
                                              {0.8f, 2}, {0.81f, 3}, {1.0f, 4}};
    for (auto [top_p, want] : table) {
        params.top_p = top_p;
        EXPECT_EQ(n_kept({0.45f, 0.35f, 0.15f, 0.05f}, params), want) << "top_p " << top_p;
        EXPECT_EQ(n_kept({0.05f, 0.45f, 0.15f, 0.35f}, params), want) << "top_p " << top_p;
    }
}

TEST(sample, top_k_zero_or_above_the_vocabulary_is_off) {
    SampleParams params = kPlain;
    const std::pair<int, size_t> table[] = {{0, 4}, {1, 1}, {2, 2}, {4, 4}, {5, 4}, {1 << 30, 4}};
    for (auto [top_k, want] : table) {
        params.top_k = top_k;
        EXPECT_EQ(n_kept({0.15f, 0.35f, 0.45f, 0.05f}, params), want) << "top_k " << top_k;
    }
}

TEST(sample, min_p_keeps_what_reaches_its_share_of_the_best) {
    SampleParams params = kPlain;
    params.min_p = 0.05f;
    EXPECT_EQ(n_kept({0.5f, 0.45f, 0.025f, 0.025f}, params), 4u);
    EXPECT_EQ(n_kept({0.5f, 0.45f, 0.026f, 0.024f}, params), 3u);
    params.min_p = 1;
    EXPECT_EQ(n_kept({0.5f, 0.49f, 0.01f}, params), 1u);
    EXPECT_EQ(n_kept({0.4f, 0.4f, 0.2f}, params), 2u);
}

TEST(sample, top_p_is_of_what_top_k_kept) {
    SampleParams params = kPlain;
    params.top_k = 2, params.top_p = 0.55f;  // .4 / .7 = .571 reaches it, .4 does not
    EXPECT_EQ(n_kept({0.4f, 0.3f, 0.3f}, params), 1u);
}

TEST(sample, temperature_comes_after_the_filters) {
    SampleParams params = kPlain;
    params.top_p = 0.5f, params.temperature = 100;
    EXPECT_EQ(n_kept({0.6f, 0.2f, 0.2f}, params), 1u);
    params = kPlain;
    params.temperature = 1e-30f;
    EXPECT_EQ(n_kept({0.3f, 0.4f, 0.3f}, params), 1u);
    EXPECT_EQ(n_kept({0.4f, 0.2f, 0.4f}, params), 2u);
}

TEST(sample, repeat_penalty_counts_a_token_once) {
    SampleParams params = kGreedy;
    params.repeat_penalty = 2;
    std::vector<float> logits = {2, -2, 0.5f};
    draw(logits, params, {0, 1, 0, 1});
    EXPECT_EQ(logits, (std::vector<float>{1, -4, 0.5f}));
}

TEST(sample, presence_and_frequency_penalties_subtract) {
    SampleParams params = kGreedy;
    params.presence_penalty = 0.5f, params.frequency_penalty = 0.1f;
    std::vector<float> logits = {1, 1};
    draw(logits, params, {0, 0, 0});
    EXPECT_NEAR(logits[0], 0.2f, 1e-6);
    EXPECT_EQ(logits[1], 1.0f);
    params.repeat_penalty = 2;  // first divided, then subtracted from
    logits = {1, 1};
    draw(logits, params, {0, 0, 0});
    EXPECT_NEAR(logits[0], 0.5f - 0.5f - 0.3f, 1e-6);
}

TEST(sample, penalties_look_at_the_last_tokens) {
    SampleParams params = kGreedy;
    params.presence_penalty = 1;
    auto after = [&](int last_n) {
        params.penalty_last_n = last_n;
        std::vector<float> logits = {0, 0, 0};
        draw(logits, params, {0, 1, 2, 2});
        return logits;
    };
    EXPECT_EQ(after(0), (std::vector<float>{0, 0, 0}));
    EXPECT_EQ(after(1), (std::vector<float>{0, 0, -1}));
    EXPECT_EQ(after(3), (std::vector<float>{0, -1, -1}));
    EXPECT_EQ(after(64), (std::vector<float>{-1, -1, -1}));
    EXPECT_EQ(after(-1), (std::vector<float>{-1, -1, -1}));
}

TEST(sample, biases_come_before_penalties) {
    SampleParams params = kGreedy;
    params.repeat_penalty = 2, params.logit_bias = {{0, 3.0f}, {1, -kInfinity}};
    std::vector<float> logits = {1, 5, 1.5f};
    EXPECT_EQ(draw(logits, params, {0}).token, 0);
    EXPECT_EQ(logits, (std::vector<float>{2, -kInfinity, 1.5f}));
    EXPECT_EQ(n_kept({0.5f, 0.5f}, params = {.temperature = 1, .logit_bias = {{1, -kInfinity}}}),
              1u);
}

TEST(sample, refuses_logits_that_are_no_distribution) {
    for (const SampleParams& params : {kGreedy, kPlain, SampleParams{}}) {
        EXPECT_EQ(error_of({1, NAN, 2}, params, 17),
                  "position 17: the logits hold NaN, expected finite numbers");
        EXPECT_EQ(error_of({-kInfinity, -kInfinity}, params, 3),
                  "position 3: all logits are -inf, expected a finite one");
        EXPECT_EQ(error_of({1, kInfinity}, params, 4),
                  "position 4: the logit of token 1 is +inf, expected finite numbers");
    }
}

TEST(sample, refuses_biases_that_make_no_sense) {
    SampleParams params = kPlain;
    params.logit_bias = {{2, 1.0f}};
    EXPECT_EQ(error_of({1, 1}, params, 0), "logit bias: token 2, expected 0 to 1");
    params.logit_bias = {{-1, 1.0f}};
    EXPECT_EQ(error_of({1, 1}, params, 0), "logit bias: token -1, expected 0 to 1");
    params.logit_bias = {{1, kInfinity}};
    EXPECT_EQ(error_of({1, 1}, params, 0),
              "logit bias: inf for token 1, expected a number or -inf");
    params.logit_bias = {{0, -kInfinity}, {1, -kInfinity}};
    EXPECT_EQ(error_of({1, 1}, params, 9),
              "position 9: all logits are -inf, expected a finite one");
}

TEST(sample, gives_log_probabilities) {
    SampleParams params = kGreedy;
    params.n_logprobs = 4;
    std::vector<float> logits = {0, 0, 0, 0};
    Sampled drawn = draw(logits, params);
    EXPECT_FLOAT_EQ(drawn.logprob, std::log(0.25f));
    ASSERT_EQ(drawn.top.size(), 4u);
    for (const TokenLogprob& top : drawn.top) EXPECT_FLOAT_EQ(top.logprob, std::log(0.25f));

    params = {.temperature = 2, .top_k = 2, .n_logprobs = 2};  // neither changes them
    logits = logs({0.1f, 0.6f, 0.3f});
    drawn = draw(logits, params);
    ASSERT_EQ(drawn.top.size(), 2u);
    EXPECT_EQ(drawn.top[0].token, 1);
    EXPECT_NEAR(drawn.top[0].logprob, std::log(0.6f), 1e-6);
    EXPECT_EQ(drawn.top[1].token, 2);
    EXPECT_NEAR(drawn.top[1].logprob, std::log(0.3f), 1e-6);
    EXPECT_NEAR(drawn.logprob, std::log(drawn.token == 1 ? 0.6f : 0.3f), 1e-6);

    params = {.temperature = 0, .logit_bias = {{0, -kInfinity}}, .n_logprobs = 50};
    logits = {5, 1, 1};
    drawn = draw(logits, params);
    ASSERT_EQ(drawn.top.size(), 2u) << "what is forbidden has no log probability";
    EXPECT_FLOAT_EQ(drawn.top[1].logprob, std::log(0.5f));
    EXPECT_EQ(drawn.token, 1);
}

// The first outputs of SplitMix64 from seed 1234567, as its author's C code prints them.
TEST(sample_uniform, is_the_top_of_splitmix64) {
    const uint64_t outputs[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                4593380528125082431u, 16408922859458223821u};
    for (int64_t i = 0; i < 5; i++) {
        EXPECT_EQ(sample_uniform(1234567, i),
                  std::ldexp(static_cast<double>(outputs[i] >> 11), -53));
    }
    for (uint64_t seed : {uint64_t{0}, ~uint64_t{0}}) {
        for (int64_t position : {int64_t{0}, int64_t{1} << 40}) {
            EXPECT_GE(sample_uniform(seed, position), 0.0);
            EXPECT_LT(sample_uniform(seed, position), 1.0);
        }
    }
}

// The documented order done the long way round: everything sorted, every share worked out.
Token draw_by_the_book(const std::vector<float>& logits, const SampleParams& params,
                       int64_t position) {
    std::vector<Token> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](Token a, Token b) { return logits[a] > logits[b]; });
    if (params.top_k > 0 && static_cast<size_t>(params.top_k) < order.size()) {
        order.resize(static_cast<size_t>(params.top_k));
    }
    auto shares = [&](double temperature) {
        std::vector<double> share;
        for (Token t : order) {
            share.push_back(std::exp((logits[t] - double{logits[order[0]]}) / temperature));
        }
        const double total = std::accumulate(share.begin(), share.end(), 0.0);
        for (double& s : share) s /= total;
        return share;
    };
    const std::vector<double> share = shares(1);
    size_t n_top_p = order.size(), n_min_p = 0;
    double sum = 0;
    for (size_t i = 0; i < share.size() && params.top_p < 1; i++) {
        sum += share[i];
        if (sum >= double{params.top_p} - 1e-6) {
            n_top_p = i + 1;
            break;
        }
    }
    while (n_min_p < share.size() && share[n_min_p] >= share[0] * params.min_p * (1 - 1e-6)) {
        n_min_p++;
    }
    order.resize(std::min(n_top_p, n_min_p));
    sum = 0;
    const std::vector<double> final_share = shares(params.temperature);
    for (size_t i = 0; i < order.size(); i++) {
        sum += final_share[i];
        if (sample_uniform(params.seed, position) < sum) return order[i];
    }
    return order.back();
}

TEST(sample, draws_as_documented) {
    Random random(test_seed(), 60);
    for (int trial = 0; trial < 600; trial++) {
        std::vector<float> logits(static_cast<size_t>(1 + random.below(700)));
        const bool coarse = random.below(3) == 0;  // many equal logits
        for (float& logit : logits) {
            logit = 3 * random.normal();
            if (coarse) logit = std::round(logit);
        }
        SampleParams params = kPlain;
        params.seed = random.bits();
        params.temperature = static_cast<float>(0.1 + 2 * random.uniform());
        if (random.below(2) == 0) params.top_k = static_cast<int>(random.below(400));
        if (random.below(2) == 0) params.top_p = static_cast<float>(random.uniform());
        if (random.below(2) == 0) params.min_p = static_cast<float>(0.2 * random.uniform());
        const int64_t position = random.below(100000);
        EXPECT_EQ(draw_token(logits, params, position), draw_by_the_book(logits, params, position))
            << "trial " << trial << ": " << logits.size() << " logits, top_k " << params.top_k
            << ", top_p " << params.top_p << ", min_p " << params.min_p;
    }
}

// Pearson's statistic over the positions of one seed. Beyond six standard deviations of its own
// distribution in about one of 500,000 runs.
TEST(sample, draws_tokens_as_often_as_they_are_probable) {
    const int64_t n_draws = 30000;
    const size_t n_vocab = 40;
    Random random(test_seed(), 61);
    std::vector<float> logits(n_vocab);
    for (float& logit : logits) logit = static_cast<float>(2 * random.uniform());
    SampleParams params = kPlain;
    params.temperature = 0.7f, params.seed = test_seed();
    std::vector<double> wanted(n_vocab);
    double total = 0;
    for (size_t i = 0; i < n_vocab; i++) total += wanted[i] = std::exp(double{logits[i]} / 0.7);
    std::vector<int64_t> count(n_vocab);
    for (int64_t position = 0; position < n_draws; position++) {
        count[static_cast<size_t>(draw_token(logits, params, position))]++;
    }
    double statistic = 0;
    for (size_t i = 0; i < n_vocab; i++) {
        const double expected = static_cast<double>(n_draws) * wanted[i] / total;
        statistic += std::pow(static_cast<double>(count[i]) - expected, 2) / expected;
    }
    const double freedom = static_cast<double>(n_vocab) - 1;
    EXPECT_LT(statistic, freedom + 6 * std::sqrt(2 * freedom));
}

TEST(sample, replays_a_seed_and_differs_between_seeds) {
    Random random(test_seed(), 62);
    std::vector<float> logits(5000);
    for (float& logit : logits) logit = 3 * random.normal();
    auto text = [&](uint64_t seed) {
        SampleParams params;
        params.seed = seed;
        std::vector<Token> tokens;
        for (int64_t position = 0; position < 50; position++) {
            tokens.push_back(draw_token(logits, params, position));
        }
        return tokens;
    };
    EXPECT_EQ(text(test_seed()), text(test_seed()));
    EXPECT_NE(text(test_seed()), text(test_seed() + 1));
}

}  // namespace
}  // namespace ridge
