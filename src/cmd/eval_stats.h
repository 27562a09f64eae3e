#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "text/token.h"

namespace ridge {

// What `ridge eval` measures. Logits are float32; all arithmetic on them is float64, with natural
// logarithms.

// One scored position: the distribution of the next token against the token that came, and against
// the distribution of a reference run.
struct PositionScore {
    double nll = 0;            // -log p(token that came)
    double reference_nll = 0;  // the same of the reference; this and what follows with one only
    double kl = 0;             // sum_i r_i log(r_i / p_i): the divergence of p from the reference r
    bool same_top = false;     // both give the same token the highest probability
};

// Of logits [n_vocab] and perhaps those of a reference (empty: none). Empty where they are no
// distribution: a NaN, an infinite logit, or nothing but -inf.
std::optional<PositionScore> score_position(std::span<const float> logits,
                                            std::span<const float> reference, Token next);

// A mean with its standard error, s / sqrt(n).
struct Estimate {
    double value = 0, error = 0;
};

struct EvalSummary {
    int64_t n_positions = 0;
    // exp(mean nll); its error is that of the mean times the perplexity (to first order).
    Estimate perplexity;
    // Beside a reference:
    Estimate reference_perplexity, kl;
    double kl_median = 0, kl_p99 = 0, kl_max = 0;
    double top1_agreement = 0;    // share of positions, 0..1
    double p_rms_difference = 0;  // of the probability of the token that came, root of mean square
};
EvalSummary summarise(std::span<const PositionScore> scores, bool has_reference);

// The value below which a share `fraction` of `sorted` lies, between neighbours on a straight line;
// `sorted` is not empty.
double percentile(std::span<const double> sorted, double fraction);

}  // namespace ridge
