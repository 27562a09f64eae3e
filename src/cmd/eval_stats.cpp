#include "cmd/eval_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace ridge {
namespace {

struct Normaliser {
    double log_sum = 0;  // log of the sum of exp(logit)
    Token top = 0;       // the lowest of the highest
};

// Empty where the logits are no distribution: +inf and NaN alike make the sum NaN.
std::optional<Normaliser> normalise(std::span<const float> logits) {
    auto top = std::max_element(logits.begin(), logits.end());
    const double max = *top;
    double sum = 0;
    for (float logit : logits) sum += std::exp(logit - max);
    if (!std::isfinite(max) || !std::isfinite(sum)) return std::nullopt;
    return Normaliser{max + std::log(sum), static_cast<Token>(top - logits.begin())};
}

Estimate mean_of(std::span<const PositionScore> scores, double PositionScore::*value) {
    const auto n = static_cast<double>(scores.size());
    double sum = 0, squares = 0;
    for (const PositionScore& score : scores) sum += score.*value;
    const double mean = sum / n;
    for (const PositionScore& score : scores) squares += std::pow(score.*value - mean, 2);
    return {mean, n > 1 ? std::sqrt(squares / (n - 1) / n) : 0};
}

Estimate perplexity_of(std::span<const PositionScore> scores, double PositionScore::*nll) {
    const Estimate mean = mean_of(scores, nll);
    const double perplexity = std::exp(mean.value);
    return {perplexity, perplexity * mean.error};
}

}  // namespace

std::optional<PositionScore> score_position(std::span<const float> logits,
                                            std::span<const float> reference, Token next) {
    CHECK(next >= 0 && static_cast<size_t>(next) < logits.size());
    std::optional<Normaliser> mine = normalise(logits);
    if (!mine) return std::nullopt;
    PositionScore score;
    const auto at = static_cast<size_t>(next);
    score.nll = mine->log_sum - logits[at];
    if (reference.empty()) return score;

    CHECK(reference.size() == logits.size());
    std::optional<Normaliser> theirs = normalise(reference);
    if (!theirs) return std::nullopt;
    score.reference_nll = theirs->log_sum - reference[at];
    score.same_top = mine->top == theirs->top;
    double sum = 0;
    for (size_t i = 0; i < logits.size(); i++) {
        const double log_r = reference[i] - theirs->log_sum, r = std::exp(log_r);
        if (r > 0) sum += r * (log_r - (logits[i] - mine->log_sum));
    }
    score.kl = std::max(sum, 0.0);  // below zero it is rounding alone
    return score;
}

double percentile(std::span<const double> sorted, double fraction) {
    CHECK(!sorted.empty() && fraction >= 0 && fraction <= 1);
    const double place = fraction * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, sorted.size() - 1);
    const double share = place - static_cast<double>(below);
    // Not a + share * (b - a): that is NaN between two infinities.
    return share == 0 ? sorted[below] : (1 - share) * sorted[below] + share * sorted[above];
}

EvalSummary summarise(std::span<const PositionScore> scores, bool has_reference) {
    EvalSummary summary;
    summary.n_positions = static_cast<int64_t>(scores.size());
    if (scores.empty()) return summary;
    summary.perplexity = perplexity_of(scores, &PositionScore::nll);
    if (!has_reference) return summary;

    summary.reference_perplexity = perplexity_of(scores, &PositionScore::reference_nll);
    summary.kl = mean_of(scores, &PositionScore::kl);
    std::vector<double> sorted;
    double squares = 0;
    int64_t n_same = 0;
    for (const PositionScore& score : scores) {
        sorted.push_back(score.kl);
        squares += std::pow(std::exp(-score.nll) - std::exp(-score.reference_nll), 2);
        n_same += score.same_top ? 1 : 0;
    }
    std::sort(sorted.begin(), sorted.end());
    summary.kl_median = percentile(sorted, 0.5);
    summary.kl_p99 = percentile(sorted, 0.99);
    summary.kl_max = sorted.back();
    const auto n = static_cast<double>(scores.size());
    summary.top1_agreement = static_cast<double>(n_same) / n;
    summary.p_rms_difference = std::sqrt(squares / n);
    return summary;
}

}  // namespace ridge
