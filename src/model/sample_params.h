#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "text/token.h"

namespace ridge {

// How the next token is drawn from the logits. In this order:
//   1. logit_bias is added;
//   2. penalties, over the last `penalty_last_n` tokens of the sequence, prompt included: a token
//   seen there has its
//      logit divided (if positive) or multiplied (if not) by repeat_penalty, once however often it
//      was seen; then frequency_penalty * count + presence_penalty is subtracted;
//   3. temperature 0: the highest logit, the lowest id among equals. Otherwise
//   4. top_k highest logits are kept (0, or more than there are: all);
//   5. top_p, below 1: of the probabilities among the tokens kept, the smallest set of most
//   probable ones whose sum reaches top_p - 1e-6; the crossing token stays, and at least one;
//   6. min_p: tokens of at least min_p times the highest probability are kept (less one part in a
//   million, which is what a float32 logit can tell);
//   7. logits are divided by temperature, and one token is drawn by inverse transform over the
//   tokens kept, most probable first, the lowest id first among equals, with the uniform number of
//   (seed, position).
// Log probabilities are of the distribution before step 4, at temperature 1.
struct SampleParams {
    float temperature = 0.8f;     // >= 0
    int top_k = 40;               // >= 0
    float top_p = 0.95f;          // 0..1
    float min_p = 0.05f;          // 0..1
    float repeat_penalty = 1.0f;  // > 0; 1: off
    float presence_penalty = 0;
    float frequency_penalty = 0;
    int penalty_last_n = 64;  // 0: off, -1: the whole sequence
    uint64_t seed = 0;
    std::vector<std::pair<Token, float>> logit_bias{};  // -inf forbids a token
    int n_logprobs =
        -1;  // most probable tokens to report beside the drawn one; -1: no log probabilities at all
};

// One row that is to be sampled.
struct SampleRow {
    const SampleParams* params = nullptr;
    std::span<const Token> history;  // the sequence up to here, the row's own token last
    int64_t position = 0;            // of the token to be drawn
};

struct TokenLogprob {
    Token token;
    float logprob;
};

struct Sampled {
    Token token = -1;
    float logprob = 0;              // where n_logprobs >= 0
    std::vector<TokenLogprob> top;  // n_logprobs most probable, highest first
};

// The uniform number in [0, 1) of a seed and a position: the top 53 bits of SplitMix64's output
// function (Steele, Lea, Flood 2014) over both, so that every backend draws alike and nothing
// depends on call order.
double sample_uniform(uint64_t seed, int64_t position);

}  // namespace ridge
