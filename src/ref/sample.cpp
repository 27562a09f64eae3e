#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/step.h"
#include "ref/ref.h"

namespace ridge::ref {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Candidate {
    float logit;
    Token token;
};

// The order of candidates: a strict one, so that every way of sorting gives the same result.
bool more_probable(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// Candidates of which only the front is sorted, as far as it was looked at: the draw mostly ends
// among the first few of 100,000.
class Ranking {
  public:
    explicit Ranking(std::vector<Candidate> candidates) : all_(std::move(candidates)) {}

    size_t size() const { return all_.size(); }
    const std::vector<Candidate>& unordered() const { return all_; }

    // The i-th most probable.
    const Candidate& at(size_t i) {
        if (i >= n_sorted_) sort_more(std::max(i + 1, std::max(kFirstSorted, 8 * n_sorted_)));
        return all_[i];
    }
    void keep_first(size_t n) {
        if (n >= all_.size()) return;
        if (n > n_sorted_) select(n);
        all_.resize(n);
        n_sorted_ = std::min(n_sorted_, n);
    }
    // Keeps logits of at least `lowest`, which are the first of the order.
    void keep_from(double lowest) {
        std::erase_if(all_, [&](const Candidate& c) { return double{c.logit} < lowest; });
        n_sorted_ = std::min(n_sorted_, all_.size());
    }

  private:
    static constexpr size_t kFirstSorted = 64;

    // Puts the n first of the order at the front. A heap of few candidates is hardly ever touched
    // in a pass over many; quickselect is for more.
    void select(size_t n) {
        const auto front = all_.begin() + static_cast<std::ptrdiff_t>(n_sorted_);
        const auto middle = all_.begin() + static_cast<std::ptrdiff_t>(n);
        if (n - n_sorted_ <= 128) {
            std::partial_sort(front, middle, all_.end(), more_probable);
            n_sorted_ = n;
        } else {
            std::nth_element(front, middle, all_.end(), more_probable);
        }
    }
    void sort_more(size_t n) {
        n = std::min(n, all_.size());
        if (n < all_.size()) select(n);
        if (n_sorted_ >= n) return;
        std::sort(all_.begin() + static_cast<std::ptrdiff_t>(n_sorted_),
                  all_.begin() + static_cast<std::ptrdiff_t>(n), more_probable);
        n_sorted_ = n;
    }

    std::vector<Candidate> all_;
    size_t n_sorted_ = 0;
};

void add_biases(const SampleParams& params, std::span<float> logits) {
    for (const auto& [token, bias] : params.logit_bias) {
        if (token < 0 || static_cast<size_t>(token) >= logits.size()) {
            throw Error("logit bias: token {}, expected 0 to {}", token, logits.size() - 1);
        }
        if (!(bias < kInfinity)) {
            throw Error("logit bias: {} for token {}, expected a number or -inf", bias, token);
        }
        logits[token] += bias;
    }
}

void apply_penalties(const SampleParams& params, std::span<const Token> history,
                     std::span<float> logits) {
    if (params.repeat_penalty == 1 && params.frequency_penalty == 0 &&
        params.presence_penalty == 0) {
        return;
    }
    if (params.penalty_last_n >= 0 && history.size() > static_cast<size_t>(params.penalty_last_n)) {
        history = history.last(static_cast<size_t>(params.penalty_last_n));
    }
    std::vector<int32_t> count(logits.size());
    for (Token token : history) {
        CHECK(token >= 0 && static_cast<size_t>(token) < logits.size());
        count[token]++;
    }
    for (Token token : history) {
        if (count[token] == 0) continue;  // done at its first occurrence
        float& logit = logits[token];
        logit = logit > 0 ? logit / params.repeat_penalty : logit * params.repeat_penalty;
        logit -=
            params.frequency_penalty * static_cast<float>(count[token]) + params.presence_penalty;
        count[token] = 0;
    }
}

// The lowest id among the highest logits.
Candidate find_highest(std::span<const float> logits, int64_t position) {
    bool has_nan = false;
    Candidate highest{-kInfinity, 0};
    for (size_t i = 0; i < logits.size(); i++) {
        has_nan |= std::isnan(logits[i]);
        if (logits[i] > highest.logit) highest = {logits[i], static_cast<Token>(i)};
    }
    if (has_nan) {
        throw Error("position {}: the logits hold NaN, expected finite numbers", position);
    }
    if (highest.logit == kInfinity) {
        throw Error("position {}: the logit of token {} is +inf, expected finite numbers", position,
                    highest.token);
    }
    if (highest.logit == -kInfinity) {
        throw Error("position {}: all logits are -inf, expected a finite one", position);
    }
    return highest;
}

Ranking rank(std::span<const float> logits) {
    std::vector<Candidate> candidates;
    candidates.reserve(logits.size());
    for (size_t i = 0; i < logits.size(); i++) {
        if (logits[i] > -kInfinity) candidates.push_back({logits[i], static_cast<Token>(i)});
    }
    return Ranking(std::move(candidates));
}

// Probability of a logit relative to the most probable one's.
double weight_of(float logit, float highest, float temperature) {
    return std::exp((double{logit} - double{highest}) / double{temperature});
}

double sum_weights(const Ranking& ranking, float highest, float temperature) {
    double sum = 0;
    for (const Candidate& c : ranking.unordered()) {
        sum += weight_of(c.logit, highest, temperature);
    }
    return sum;
}

// Steps 4 to 6. What top_p and min_p keep are both first parts of one order, so the cheaper cut
// comes first; top_p's shares are still those of all that top_k kept.
void keep_probable(const SampleParams& params, float highest, Ranking& ranking) {
    if (params.top_k > 0) ranking.keep_first(static_cast<size_t>(params.top_k));
    const double total = params.top_p < 1 ? sum_weights(ranking, highest, 1) : 0;
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
        while (n < ranking.size()) {
            sum += weight_of(ranking.at(n++).logit, highest, 1);
            if (sum >= wanted) break;
        }
        ranking.keep_first(n);
    }
}

// Step 7. uniform in [0, 1).
Token draw(Ranking& ranking, float highest, float temperature, double uniform) {
    const double wanted = uniform * sum_weights(ranking, highest, temperature);
    Token token = ranking.at(0).token;
    double sum = 0;
    for (size_t i = 0; i < ranking.size() && sum <= wanted; i++) {
        const double weight = weight_of(ranking.at(i).logit, highest, temperature);
        if (weight == 0) break;  // rounding left `wanted` unreached: the last possible token
        sum += weight;
        token = ranking.at(i).token;
    }
    return token;
}

Sampled sample_row(const SampleRow& row, std::span<float> logits) {
    const SampleParams& params = *row.params;
    add_biases(params, logits);
    apply_penalties(params, row.history, logits);
    const Candidate highest = find_highest(logits, row.position);
    Sampled drawn{highest.token, 0, {}};
    if (params.temperature == 0 && params.n_logprobs < 0) return drawn;

    Ranking ranking = rank(logits);
    double log_total = 0;
    if (params.n_logprobs >= 0) {
        log_total = double{highest.logit} + std::log(sum_weights(ranking, highest.logit, 1));
        const size_t n_top = std::min(ranking.size(), static_cast<size_t>(params.n_logprobs));
        for (size_t i = 0; i < n_top; i++) {
            const Candidate& c = ranking.at(i);
            drawn.top.push_back({c.token, static_cast<float>(double{c.logit} - log_total)});
        }
    }
    if (params.temperature > 0) {
        keep_probable(params, highest.logit, ranking);
        drawn.token = draw(ranking, highest.logit, params.temperature,
                           sample_uniform(params.seed, row.position));
    }
    if (params.n_logprobs >= 0) {
        drawn.logprob = static_cast<float>(double{logits[drawn.token]} - log_total);
    }
    return drawn;
}

}  // namespace

void sample(Step& step, Rows logits, std::span<Sampled> drawn) {
    if (step.planning) return;
    const std::span<const SampleRow> rows = step.batch.sample_rows;
    CHECK(rows.size() == drawn.size() && static_cast<int64_t>(rows.size()) == logits.n_rows);
    for (size_t i = 0; i < rows.size(); i++) {
        drawn[i] = sample_row(rows[i], {logits.row<float>(static_cast<int64_t>(i)),
                                        static_cast<size_t>(logits.n_cols)});
    }
}

}  // namespace ridge::ref
