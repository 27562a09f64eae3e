#include <limits>

#include "cases/case.h"

namespace ridge {
namespace {

// Tokens up to which flat distributions are drawn from, for which most of them have to be sorted.
constexpr int64_t kMostSorted = 50000;

// Each way of drawing once, in one batch.
std::vector<SampleParams> all_params(int64_t n_vocab) {
    std::vector<SampleParams> all;
    auto add = [&](SampleParams params) {
        params.seed = all.size();
        all.push_back(std::move(params));
    };
    add({});
    add({.temperature = 0});
    add({.temperature = 0, .n_logprobs = 5});
    add({.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0});
    add({.temperature = 1, .top_k = 0, .top_p = 0.9f, .min_p = 0});
    add({.temperature = 1.5f, .top_k = 0, .top_p = 1, .min_p = 0.02f, .n_logprobs = 0});
    add({.temperature = 2, .top_k = 1000, .top_p = 0.99f, .min_p = 0, .n_logprobs = 20});
    add({.temperature = 1, .top_k = 1});
    add({.temperature = 1, .top_p = 0});
    add({.temperature = 1, .min_p = 1});
    add({.repeat_penalty = 1.3f, .presence_penalty = 0.2f, .frequency_penalty = 0.1f});
    add({.repeat_penalty = 1.3f, .penalty_last_n = -1, .n_logprobs = 3});
    const float forbidden = -std::numeric_limits<float>::infinity();
    add({.temperature = 1,
         .logit_bias = {{0, 3.0f}, {static_cast<Token>(n_vocab - 1), forbidden}},
         .n_logprobs = 2});
    add({.temperature = 1,
         .repeat_penalty = 1.1f,
         .logit_bias = {{static_cast<Token>(n_vocab / 2), 0.3f},
                        {0, 2.0f},
                        {static_cast<Token>(n_vocab / 2), -0.1f},
                        {0, 0.7f}},
         .n_logprobs = 200});
    if (n_vocab > kMostSorted) return all;
    add({.temperature = 3, .top_k = 0, .top_p = 0.999f, .min_p = 1e-4f});
    add({.temperature = 5, .top_k = 0, .top_p = 1, .min_p = 0, .n_logprobs = 1});
    add({.temperature = 2, .top_k = 3000, .top_p = 0.9999f, .min_p = 0});
    add({.temperature = 4, .top_k = 20000, .top_p = 1, .min_p = 0});
    return all;
}

Case sample(int64_t n_vocab, Fill fill, float scale) {
    Case c{.op = Op::kSample, .d_in = n_vocab, .params = all_params(n_vocab)};
    c.n_rows = static_cast<int64_t>(c.params.size());
    c.fill = fill, c.scale = scale;
    c.tolerance = 1e-4f;  // of log probabilities
    return c;
}

}  // namespace

void add_sample_cases(std::vector<Case>& cases) {
    for (int64_t n_vocab : {2, 63, 1000, 2049, 49152, 128256}) {
        cases.push_back(finish_case(sample(n_vocab, Fill::kNormal, 3)));
    }
    cases.push_back(finish_case({.op = Op::kSample,
                                 .n_rows = 3,
                                 .d_in = 262144,
                                 .params = {{}, {.temperature = 0}, {.top_k = 0, .min_p = 0}},
                                 .scale = 3,
                                 .tolerance = 1e-4f}));
    cases.push_back(finish_case(sample(1000, Fill::kConstant, 1), "all equal"));
    cases.push_back(finish_case(sample(10000, Fill::kConstant, -2), "all equal"));
    cases.push_back(finish_case(sample(32000, Fill::kNormal, 1e-3f), "flat"));
    cases.push_back(finish_case(sample(1000, Fill::kNormal, 1e4f), "one of probability 1"));
    cases.push_back(finish_case(sample(1000, Fill::kSigns, 10), "ties"));
}

}  // namespace ridge
