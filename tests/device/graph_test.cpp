#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "device/device_options.h"
#include "engine/engine.h"

// Captured decode steps against the same kernels started one by one. Needs a GPU.

namespace ridge {
namespace {

std::unique_ptr<Engine> open_at(const char* checkpoint) {
    return Engine::open(synth_options("Q4_K", 2048, checkpoint));
}

Request request_of(int n_prompt, const SampleParams& params) {
    Request request;
    for (Token i = 0; i < n_prompt; i++) request.prompt.push_back(100 + i * 37 % 1000);
    request.sampling = params;
    request.n_predict = 12;
    request.ignore_eos = true;
    return request;
}

// Requests on one engine that want more and more room for how their tokens are drawn: graphs that
// were captured before hold addresses of what has moved.
TEST(Graph, draws_as_steps_that_are_not_captured_while_requests_ask_for_more) {
    SampleParams plain{.seed = 5};
    SampleParams penalties = plain;
    penalties.repeat_penalty = 1.3f, penalties.penalty_last_n = -1;
    SampleParams logprobs = plain;
    logprobs.n_logprobs = 200;
    SampleParams biases = plain;
    for (Token i = 0; i < 3000; i++) biases.logit_bias.emplace_back(5 * i, -1.0f);
    SampleParams flat = plain;  // draws from all candidates
    flat.top_k = 0, flat.top_p = 1, flat.min_p = 0, flat.temperature = 3;

    auto captured = open_at("graph"), one_by_one = open_at("fused");
    struct Case {
        int n_prompt;
        const SampleParams* params;
    };
    for (const Case& c : {Case{20, &plain},
                          {20, &penalties},
                          {700, &penalties},
                          {20, &plain},
                          {20, &logprobs},
                          {30, &plain},
                          {20, &biases},
                          {20, &flat},
                          {20, &plain},
                          {1500, &penalties},
                          {20, &flat}}) {
        const Request request = request_of(c.n_prompt, *c.params);
        Sequence a = captured->new_sequence(), b = one_by_one->new_sequence();
        EXPECT_EQ(captured->generate(a, request).tokens, one_by_one->generate(b, request).tokens)
            << "prompt of " << c.n_prompt;
    }
}

}  // namespace
}  // namespace ridge
