#include "cpu/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "cpu/kernels_of_isa.h"
#include "cpu/ranking.h"
#include "model/step.h"

namespace ridge::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kGrainLogits = 16 * kLogitPiece;  // that a thread takes at a time

// Biases and penalties change logits in place: float32, in the order of the reference.
void add_biases(const SampleParams& params, std::span<float> logits) {
    for (const auto& [token, bias] : params.logit_bias) {
        if (token < 0 || static_cast<size_t>(token) >= logits.size()) {
            throw Error("logit bias: token {}, expected 0 to {}", token, logits.size() - 1);
        }
        if (!(bias < kInfinity)) {
            throw Error("logit bias: {} for token {}, expected a number or -inf", bias, token);
        }
        logits[static_cast<size_t>(token)] += bias;
    }
}

// count: room for a number for each token, of which those of the history are used.
void apply_penalties(const SampleParams& params, std::span<const Token> history,
                     std::span<float> logits, int32_t* count) {
    if (params.repeat_penalty == 1 && params.frequency_penalty == 0 &&
        params.presence_penalty == 0) {
        return;
    }
    if (params.penalty_last_n >= 0 && history.size() > static_cast<size_t>(params.penalty_last_n)) {
        history = history.last(static_cast<size_t>(params.penalty_last_n));
    }
    for (Token token : history) {
        CHECK(token >= 0 && static_cast<size_t>(token) < logits.size());
        count[token] = 0;
    }
    for (Token token : history) count[token]++;
    for (Token token : history) {
        if (count[token] == 0) continue;  // done at its first occurrence
        float& logit = logits[static_cast<size_t>(token)];
        logit = logit > 0 ? logit / params.repeat_penalty : logit * params.repeat_penalty;
        logit -=
            params.frequency_penalty * static_cast<float>(count[token]) + params.presence_penalty;
        count[token] = 0;
    }
}

// Probability of a logit relative to the most probable one's.
double weight_of(float logit, float highest, float temperature) {
    return std::exp((double{logit} - double{highest}) / double{temperature});
}

// Draws one row after another, in the same scratch.
class RowSampler {
  public:
    RowSampler(Step& s, int64_t n_vocab)
        : s_(s),
          n_vocab_(n_vocab),
          n_grains_((n_vocab + kGrainLogits - 1) / kGrainLogits),
          n_maxima_((n_vocab + kLogitPiece - 1) / kLogitPiece * kLogitLanes),
          maxima_(s.scratch(2, n_maxima_)),
          grains_(s.scratch(2, 2 * n_grains_)),
          candidates_(s.scratch(1, 2 * n_vocab)) {}

    Sampled draw(const SampleRow& row, std::span<float> logits);

  private:
    Candidate find_highest(std::span<const float> logits, int64_t position);
    double sum_weights(const Ranking& ranking, std::span<const float> logits, float highest,
                       float temperature);
    void keep_probable(const SampleParams& params, std::span<const float> logits, float highest,
                       Ranking& ranking);
    Token draw_kept(Ranking& ranking, std::span<const float> logits, float highest,
                    float temperature, double uniform);
    template <class Body>
    void for_grains(const Body& body) {
        s_.pool.parallel_for(n_grains_, 1, [&](int64_t begin, int64_t end, int) {
            for (int64_t g = begin; g < end; g++) {
                body(g, g * kGrainLogits, std::min(kGrainLogits, n_vocab_ - g * kGrainLogits));
            }
        });
    }

    Step& s_;
    int64_t n_vocab_, n_grains_, n_maxima_;
    Rows maxima_;      // as logit_maxima makes them, and room for a copy
    Rows grains_;      // of each grain: whether there is a NaN; its sum, a double
    Rows candidates_;  // room for Ranking's, and before that for counts of tokens
};

// The lowest id among the highest logits.
Candidate RowSampler::find_highest(std::span<const float> logits, int64_t position) {
    float* maxima = maxima_.row<float>(0);
    float* has_nan = grains_.row<float>(0);
    for_grains([&](int64_t g, int64_t first, int64_t n) {
        const bool nan = kernels_of(s_).rows.logit_maxima(
            logits.data() + first, n, maxima + first / kLogitPiece * kLogitLanes);
        has_nan[g] = nan ? 1.0f : 0.0f;
    });
    if (std::find(has_nan, has_nan + n_grains_, 1.0f) != has_nan + n_grains_) {
        throw Error("position {}: the logits hold NaN, expected finite numbers", position);
    }
    const float highest = *std::max_element(maxima, maxima + n_maxima_);
    if (highest == -kInfinity) {
        throw Error("position {}: all logits are -inf, expected a finite one", position);
    }
    auto token = static_cast<size_t>(n_vocab_);
    for (int64_t block = 0; block < n_maxima_; block++) {
        if (maxima[block] != highest) continue;
        auto at = static_cast<size_t>(block / kLogitLanes * kLogitPiece + block % kLogitLanes);
        while (logits[at] != highest) at += kLogitLanes;
        token = std::min(token, at);
    }
    if (highest == kInfinity) {
        throw Error("position {}: the logit of token {} is +inf, expected finite numbers", position,
                    token);
    }
    return {highest, static_cast<Token>(token)};
}

double RowSampler::sum_weights(const Ranking& ranking, std::span<const float> logits, float highest,
                               float temperature) {
    double sum = 0;
    if (ranking.is_complete()) {
        for (const Candidate& c : ranking.collected()) {
            sum += weight_of(c.logit, highest, temperature);
        }
        return sum;
    }
    auto* sums = reinterpret_cast<double*>(grains_.row<float>(1));
    for_grains([&](int64_t g, int64_t first, int64_t n) {
        sums[g] = kernels_of(s_).rows.sum_exp(logits.data() + first, n, double{ranking.lowest()},
                                              double{highest}, 1 / double{temperature});
    });
    for (int64_t g = 0; g < n_grains_; g++) sum += sums[g];
    return sum;
}

// Steps 4 to 6 of sample_params.h. What top_p and min_p keep are both first parts of one order, so
// the cheaper cut comes first; top_p's shares are still those of all that top_k kept.
void RowSampler::keep_probable(const SampleParams& params, std::span<const float> logits,
                               float highest, Ranking& ranking) {
    if (params.top_k > 0) ranking.keep_first(static_cast<size_t>(params.top_k));
    const double total = params.top_p < 1 ? sum_weights(ranking, logits, highest, 1) : 0;
    if (params.min_p > 0) {
        // The margin lets a probability that equals min_p's bound survive the rounding of its
        // logit.
        const double lowest = double{highest} + std::log(double{params.min_p}) - 1e-6;
        ranking.keep_from(std::min(lowest, double{highest}));
    }
    if (params.top_p < 1) {
        const double wanted = (double{params.top_p} - 1e-6) * total;
        double sum = 0;
        size_t n = 0;
        while (const Candidate* c = ranking.at(n)) {
            n++;
            sum += weight_of(c->logit, highest, 1);
            if (sum >= wanted) break;
        }
        ranking.keep_first(n);
    }
}

// Step 7. uniform in [0, 1).
Token RowSampler::draw_kept(Ranking& ranking, std::span<const float> logits, float highest,
                            float temperature, double uniform) {
    const double wanted = uniform * sum_weights(ranking, logits, highest, temperature);
    Token token = ranking.at(0)->token;
    double sum = 0;
    for (size_t i = 0; sum <= wanted; i++) {
        const Candidate* c = ranking.at(i);
        const double weight = c == nullptr ? 0 : weight_of(c->logit, highest, temperature);
        if (weight == 0) break;  // rounding left `wanted` unreached: the last possible token
        sum += weight;
        token = c->token;
    }
    return token;
}

Sampled RowSampler::draw(const SampleRow& row, std::span<float> logits) {
    const SampleParams& params = *row.params;
    float* room = candidates_.row<float>(0);
    add_biases(params, logits);
    apply_penalties(params, row.history, logits, reinterpret_cast<int32_t*>(room));
    const Candidate highest = find_highest(logits, row.position);
    Sampled drawn{highest.token, 0, {}};
    if (params.temperature == 0 && params.n_logprobs < 0) return drawn;

    Ranking ranking(logits, {maxima_.row<float>(0), static_cast<size_t>(n_maxima_)},
                    maxima_.row<float>(1), reinterpret_cast<Candidate*>(room));
    double log_total = 0;
    if (params.n_logprobs >= 0) {
        log_total =
            double{highest.logit} + std::log(sum_weights(ranking, logits, highest.logit, 1));
        for (size_t i = 0; i < static_cast<size_t>(params.n_logprobs); i++) {
            const Candidate* c = ranking.at(i);
            if (c == nullptr) break;
            drawn.top.push_back({c->token, static_cast<float>(double{c->logit} - log_total)});
        }
    }
    if (params.temperature > 0) {
        keep_probable(params, logits, highest.logit, ranking);
        drawn.token = draw_kept(ranking, logits, highest.logit, params.temperature,
                                sample_uniform(params.seed, row.position));
    }
    if (params.n_logprobs >= 0) {
        const float logit = logits[static_cast<size_t>(drawn.token)];
        drawn.logprob = static_cast<float>(double{logit} - log_total);
    }
    return drawn;
}

}  // namespace

// sample: steps 1 to 7 of model/sample_params.h
//   logits [n_rows, n_vocab] f32, changed by biases and penalties. One pass over a row's logits on
//   all threads takes the maxima of its blocks; the highest logit, and the few candidates that
//   top_k, min_p or the draw asks for, are found through them. Only a distribution that nothing
//   cuts is summed over all logits, in vectors of float64.
//   128,256 logits 3 * normal: greedy 8 us (ref 77), top_k 40 with top_p and min_p 12 (ref 203),
//   min_p alone 13 (ref 204), temperature alone 67 (ref 606). What must be walked far into a flat
//   distribution costs what sorting it costs: top_p alone 3.7 ms (ref 3.8). Best of 15; AVX-512,
//   two threads; 2-core AMD EPYC of family 26, e496304.
void sample(Step& s, Rows logits, std::span<Sampled> drawn) {
    RowSampler sampler(s, logits.n_cols);
    if (s.planning) return;
    const std::span<const SampleRow> rows = s.batch.sample_rows;
    CHECK(rows.size() == drawn.size() && static_cast<int64_t>(rows.size()) == logits.n_rows);
    for (size_t i = 0; i < rows.size(); i++) {
        drawn[i] = sampler.draw(rows[i], {logits.row<float>(static_cast<int64_t>(i)),
                                          static_cast<size_t>(logits.n_cols)});
    }
}

}  // namespace ridge::cpu
