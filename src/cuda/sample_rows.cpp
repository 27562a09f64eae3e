#include "cuda/sample_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/error.h"

namespace ridge::cuda {
namespace {

// The tokens whose logits are penalised. Their order does not matter: they are counted.
std::span<const Token> penalised_tokens(const SampleRow& row) {
    const SampleParams& params = *row.params;
    const bool off =
        params.repeat_penalty == 1 && params.frequency_penalty == 0 && params.presence_penalty == 0;
    if (off) return {};
    const auto n = static_cast<size_t>(std::max(params.penalty_last_n, 0));
    if (params.penalty_last_n < 0 || row.history.size() <= n) return row.history;
    return row.history.last(n);
}

void check_bias(Token token, float bias, int64_t n_vocab) {
    if (token < 0 || token >= n_vocab) {
        throw Error("logit bias: token {}, expected 0 to {}", token, n_vocab - 1);
    }
    if (!(bias < std::numeric_limits<float>::infinity())) {
        throw Error("logit bias: {} for token {}, expected a number or -inf", bias, token);
    }
}

}  // namespace

SampleNeeds sample_needs(std::span<const SampleRow> rows) {
    SampleNeeds needs;
    needs.n_rows = static_cast<int64_t>(rows.size());
    for (const SampleRow& row : rows) {
        needs.n_biases += static_cast<int64_t>(2 * row.params->logit_bias.size());
        needs.n_history += static_cast<int64_t>(penalised_tokens(row).size());
        needs.n_top = std::max(needs.n_top, row.params->n_logprobs);
    }
    CHECK(needs.n_words() <= std::numeric_limits<int32_t>::max());
    return needs;
}

void write_draws(std::span<const SampleRow> rows, int64_t n_vocab, RowDraw* draws) {
    int64_t biases = 0, history = sample_needs(rows).n_biases;
    for (const SampleRow& row : rows) {
        const SampleParams& params = *row.params;
        for (const auto& [token, bias] : params.logit_bias) check_bias(token, bias, n_vocab);
        const std::span<const Token> penalised = penalised_tokens(row);
        for (Token token : penalised) CHECK(token < n_vocab);
        RowDraw& draw = *draws++;
        draw = {};
        draw.uniform = sample_uniform(params.seed, row.position);
        draw.log_min_p = params.min_p > 0 ? std::log(double{params.min_p})
                                          : -std::numeric_limits<double>::infinity();
        draw.temperature = params.temperature, draw.top_p = params.top_p;
        draw.repeat_penalty = params.repeat_penalty;
        draw.frequency_penalty = params.frequency_penalty;
        draw.presence_penalty = params.presence_penalty;
        draw.top_k = params.top_k < n_vocab ? std::max(params.top_k, 0) : 0;
        draw.n_logprobs = params.n_logprobs;
        draw.biases = static_cast<int32_t>(biases);
        draw.n_biases = static_cast<int32_t>(params.logit_bias.size());
        biases += 2 * draw.n_biases;
        draw.history = static_cast<int32_t>(history);
        draw.n_history = static_cast<int32_t>(penalised.size());
        history += draw.n_history;
    }
}

// By tokens; those of one token stay in their order, in which they are added.
void write_biases(std::span<const SampleRow> rows, int32_t* words) {
    for (const SampleRow& row : rows) {
        auto biases = row.params->logit_bias;
        std::stable_sort(biases.begin(), biases.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        for (const auto& [token, bias] : biases) {
            *words++ = token;
            *words++ = std::bit_cast<int32_t>(bias);
        }
    }
}

void write_histories(std::span<const SampleRow> rows, int32_t* words) {
    for (const SampleRow& row : rows) {
        const std::span<const Token> penalised = penalised_tokens(row);
        words = std::copy(penalised.begin(), penalised.end(), words);
    }
}

bool draws_from_all(const SampleParams& params) {
    return params.temperature > 0 && (params.top_k <= 0 || params.top_k > kMaxListed);
}

}  // namespace ridge::cuda
