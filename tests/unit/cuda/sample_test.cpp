#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "cases/random.h"
#include "cuda/sample_mirror.h"
#include "cuda/sample_order.h"
#include "model/batch.h"
#include "support/error_of.h"
#include "support/seed.h"

// What the device's sampler does on the host, and the numbers that its kernels count with.

namespace ridge::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(sample_order, candidates_stand_by_logit_then_by_the_lower_id) {
    Random random(test_seed());
    std::vector<float> logits = {0.0f, -0.0f, 1.0f, -1.0f, 1e-45f, -1e-45f, 3e38f, -3e38f};
    for (int i = 0; i < 200; i++) logits.push_back(random.normal());
    for (float a : logits) {
        for (float b : logits) {
            const int64_t token_a = random.below(kMaxVocab), token_b = random.below(kMaxVocab);
            const bool first = a != b ? a > b : token_a < token_b;
            EXPECT_EQ(candidate_of(a, token_a) > candidate_of(b, token_b), first)
                << a << " of " << token_a << ", " << b << " of " << token_b
                << ", RIDGE_SEED=" << test_seed();
        }
    }
}

TEST(sample_order, a_candidate_tells_its_token_and_logit) {
    for (float logit : {0.0f, 1.5f, -1.5f, 1e-45f, 3e38f, -3e38f, kInfinity, -kInfinity}) {
        for (int64_t token : {int64_t{0}, int64_t{1}, kMaxVocab - 1}) {
            const Candidate c = candidate_of(logit, token);
            EXPECT_EQ(logit_of(c), logit);
            EXPECT_EQ(token_of(c), token);
            EXPECT_LT(c, Candidate{1} << kCandidateBits);
        }
    }
    EXPECT_EQ(logit_of(candidate_of(-0.0f, 3)), 0.0f);
}

TEST(sample_order, minus_infinity_is_no_candidate_and_nan_stands_before_all) {
    const float lowest = std::numeric_limits<float>::lowest();
    for (int64_t token : {int64_t{0}, kMaxVocab - 1}) {
        EXPECT_LT(candidate_of(-kInfinity, token), kLeastCandidate);
        EXPECT_GE(candidate_of(lowest, token), kLeastCandidate);
        EXPECT_GT(candidate_of(kNan, token), candidate_of(kInfinity, 0));
        EXPECT_GT(candidate_of(-kNan, token), candidate_of(kInfinity, 0));
        EXPECT_GE(candidate_of(2.5f, token), last_candidate(2.5f));
        EXPECT_LT(candidate_of(std::nextafter(2.5f, 0.0f), token), last_candidate(2.5f));
    }
    EXPECT_EQ(candidate_of(lowest, kMaxVocab - 1), kLeastCandidate);
    EXPECT_LE(last_candidate(-kInfinity), kLeastCandidate);
}

TEST(sample_order, digits_cover_every_bit_of_a_candidate_once) {
    int end = kCandidateBits;
    for (int i = 0; i < kDigits; i++) {
        const Digit digit = digit_of_candidate(i);
        EXPECT_EQ(digit.shift + digit.bits, end);
        EXPECT_LE(digit.bits, kMaxDigitBits);
        end = digit.shift;
    }
    EXPECT_EQ(end, 0);
}

TEST(sample_order, pairs_of_a_sorting_network_meet_every_element_and_stay_near) {
    for (int n : {2, 64, 2048}) {
        for (int distance = n / 2; distance > 0; distance /= 2) {
            std::vector<int> met(static_cast<size_t>(n));
            for (int i = 0; i < n / 2; i++) {
                const int low = first_of_pair(i, distance), high = low + distance;
                ASSERT_LT(high, n);
                met[static_cast<size_t>(low)]++, met[static_cast<size_t>(high)]++;
                if (distance > 32) continue;
                EXPECT_EQ(low / 64, i / 32);
                EXPECT_EQ(high / 64, i / 32);
            }
            EXPECT_EQ(std::count(met.begin(), met.end(), 1), n);
        }
    }
}

struct Written {
    std::vector<RowDraw> draws;
    std::vector<int32_t> words;
};
Written write(const std::vector<SampleRow>& rows, int64_t n_vocab) {
    const SampleNeeds needs = sample_needs(rows);
    Written written{std::vector<RowDraw>(rows.size()),
                    std::vector<int32_t>(static_cast<size_t>(needs.n_words()) + 1, -7)};
    write_draws(rows, n_vocab, written.draws.data());
    write_biases(rows, written.words.data());
    write_histories(rows, written.words.data() + needs.n_biases);
    EXPECT_EQ(written.words.back(), -7);  // nothing behind what was asked for
    return written;
}
float bias_at(const Written& written, int32_t word) {
    return std::bit_cast<float>(written.words[static_cast<size_t>(word)]);
}

TEST(sample_rows, biases_are_sorted_and_those_of_one_token_keep_their_order) {
    const SampleParams params{
        .logit_bias = {{9, 1.0f}, {2, 2.0f}, {9, 3.0f}, {2, -kInfinity}, {9, 4.0f}}};
    const Written written = write({{&params, {}, 5}}, 10);
    const RowDraw& draw = written.draws[0];
    ASSERT_EQ(draw.n_biases, 5);
    const std::pair<Token, float> want[] = {
        {2, 2.0f}, {2, -kInfinity}, {9, 1.0f}, {9, 3.0f}, {9, 4.0f}};
    for (int32_t i = 0; i < 5; i++) {
        EXPECT_EQ(written.words[static_cast<size_t>(draw.biases + 2 * i)], want[i].first);
        EXPECT_EQ(bias_at(written, draw.biases + 2 * i + 1), want[i].second);
    }
}

TEST(sample_rows, history_is_the_last_tokens_where_there_are_penalties) {
    const std::vector<Token> history = {1, 2, 3, 4, 5};
    const std::pair<SampleParams, std::vector<Token>> table[] = {
        {{}, {}},
        {{.repeat_penalty = 1.1f}, {1, 2, 3, 4, 5}},
        {{.repeat_penalty = 1.1f, .penalty_last_n = 2}, {4, 5}},
        {{.presence_penalty = 0.1f, .penalty_last_n = 0}, {}},
        {{.frequency_penalty = 0.1f, .penalty_last_n = -1}, {1, 2, 3, 4, 5}},
    };
    std::vector<SampleRow> rows;
    for (const auto& [params, want] : table) rows.push_back({&params, history, 5});
    const Written written = write(rows, 6);
    for (size_t i = 0; i < rows.size(); i++) {
        const RowDraw& draw = written.draws[i];
        const auto begin = written.words.begin() + draw.history;
        EXPECT_EQ(std::vector<Token>(begin, begin + draw.n_history), table[i].second)
            << "row " << i;
    }
}

// Biases' bits may look like a token that is not known yet: they lie apart from histories.
TEST(sample_rows, each_row_finds_its_own_biases_and_history) {
    const SampleParams both{.repeat_penalty = 2, .logit_bias = {{3, -1.0f}, {1, -2.0f}}};
    const SampleParams bias{.logit_bias = {{2, -3.0f}}}, penalty{.presence_penalty = 1};
    const std::vector<Token> a = {5, 6, drawn_by(1)}, b = {drawn_by(0)};
    const std::vector<SampleRow> rows = {
        {&both, a, 3}, {&bias, a, 3}, {&penalty, b, 1}, {&both, b, 1}};
    const SampleNeeds needs = sample_needs(rows);
    EXPECT_EQ(needs.n_biases, 10);
    EXPECT_EQ(needs.n_history, 5);
    const Written written = write(rows, 10);
    for (size_t i : {size_t{0}, size_t{3}}) {
        EXPECT_EQ(written.words[static_cast<size_t>(written.draws[i].biases)], 1);
        EXPECT_EQ(bias_at(written, written.draws[i].biases + 1), -2.0f);
        EXPECT_EQ(bias_at(written, written.draws[i].biases + 3), -1.0f);
    }
    EXPECT_EQ(bias_at(written, written.draws[1].biases + 1), -3.0f);
    for (size_t i = 0; i < rows.size(); i++) {
        const RowDraw& draw = written.draws[i];
        const auto begin = written.words.begin() + draw.history;
        EXPECT_EQ(std::vector<Token>(begin, begin + draw.n_history), i == 1   ? std::vector<Token>()
                                                                     : i == 0 ? a
                                                                              : b);
        EXPECT_GE(draw.history, needs.n_biases);
        EXPECT_LE(draw.biases + 2 * draw.n_biases, needs.n_biases);
    }
}

TEST(sample_rows, numbers_are_those_of_the_parameters) {
    const SampleParams params{.top_k = 100, .min_p = 0.25f, .seed = 17, .n_logprobs = 3};
    const SampleParams open{.top_k = 7, .min_p = 0};
    const Written written = write({{&params, {}, 12}, {&open, {}, 3}}, 50);
    EXPECT_EQ(written.draws[0].uniform, sample_uniform(17, 12));
    EXPECT_EQ(written.draws[0].log_min_p, std::log(0.25));
    EXPECT_EQ(written.draws[0].top_k, 0);  // more than there are: all
    EXPECT_EQ(written.draws[0].n_logprobs, 3);
    EXPECT_EQ(written.draws[1].log_min_p, -static_cast<double>(kInfinity));
    EXPECT_EQ(written.draws[1].top_k, 7);
    EXPECT_EQ(written.draws[1].n_logprobs, -1);
    EXPECT_EQ(sample_needs(std::vector<SampleRow>{{&params, {}, 0}, {&open, {}, 0}}).n_top, 3);
}

TEST(sample_rows, says_which_rows_may_need_every_candidate) {
    EXPECT_TRUE(draws_from_all({.top_k = 0}));
    EXPECT_TRUE(draws_from_all({.top_k = kMaxListed + 1}));
    EXPECT_FALSE(draws_from_all({.top_k = kMaxListed}));
    EXPECT_FALSE(draws_from_all({.temperature = 0, .top_k = 0}));
}

TEST(sample_rows, refuses_biases_with_the_words_of_the_reference) {
    const std::pair<std::pair<Token, float>, std::string> table[] = {
        {{50, 1.0f}, "logit bias: token 50, expected 0 to 49"},
        {{-1, 1.0f}, "logit bias: token -1, expected 0 to 49"},
        {{0, kNan}, "logit bias: nan for token 0, expected a number or -inf"},
        {{0, kInfinity}, "logit bias: inf for token 0, expected a number or -inf"},
    };
    for (const auto& [bias, want] : table) {
        const SampleParams params{.logit_bias = {{3, 1.0f}, bias}};
        EXPECT_EQ(error_of([&] { write({{&params, {}, 5}}, 50); }), want);
    }
}

TEST(sample_rows, what_was_drawn_or_could_not_be_reaches_the_caller) {
    struct {
        DrawnRow row{};
        TokenLogprob top[2] = {{4, -0.5f}, {9, -1.5f}};
    } written;
    DrawnRow& row = written.row;
    row = {DrawnRow::kToken, 9, -1.5f, 2};
    const Sampled drawn = sampled_of(row, 7);
    EXPECT_EQ(drawn.token, 9);
    EXPECT_EQ(drawn.logprob, -1.5f);
    ASSERT_EQ(drawn.top.size(), 2u);
    EXPECT_EQ(drawn.top[0].token, 4);
    EXPECT_EQ(drawn.top[1].logprob, -1.5f);
    row.status = DrawnRow::kNan;
    EXPECT_EQ(error_of([&] { sampled_of(row, 7); }),
              "position 7: the logits hold NaN, expected finite numbers");
    row.status = DrawnRow::kInfinite;
    EXPECT_EQ(error_of([&] { sampled_of(row, 7); }),
              "position 7: the logit of token 9 is +inf, expected finite numbers");
    row.status = DrawnRow::kNothing;
    EXPECT_EQ(error_of([&] { sampled_of(row, 7); }),
              "position 7: all logits are -inf, expected a finite one");
}

}  // namespace
}  // namespace ridge::cuda
