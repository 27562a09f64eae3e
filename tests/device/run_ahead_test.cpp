#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device_options.h"
#include "engine/bench_session.h"
#include "engine/engine_impl.h"
#include "support/wrapped_backend.h"

// Decode steps that are started before the token has come that they take, against the same steps
// that wait for each other. Needs a GPU.

namespace ridge {
namespace {

struct Watched {
    bool may_run_ahead = true;
    int n_ahead = 0;  // steps with tokens that the host does not know
};

class WatchedBackend : public WrappedBackend {
  public:
    WatchedBackend(std::unique_ptr<Backend> inner, Watched& watched)
        : WrappedBackend(std::move(inner)), watched_(watched) {}

    bool can_run_ahead(const Model& model, std::span<const SampleRow> rows) const override {
        return watched_.may_run_ahead && WrappedBackend::can_run_ahead(model, rows);
    }
    Ticket step(const Model& model, const KvCache& kv, const Batch& batch) override {
        watched_.n_ahead += std::any_of(batch.tokens.begin(), batch.tokens.end(),
                                        [](Token token) { return token < 0; });
        return WrappedBackend::step(model, kv, batch);
    }

  private:
    Watched& watched_;
};

WrapBackend watch(Watched& watched) {
    return [&watched](std::unique_ptr<Backend> inner) {
        return std::make_unique<WatchedBackend>(std::move(inner), watched);
    };
}

OpenOptions options_of(const char* checkpoint) {
    return synth_options("Q4_K", 1024, checkpoint);
}

std::unique_ptr<Engine> open(const OpenOptions& options, Watched& watched) {
    Capacity capacity;
    capacity.wrap_backend = watch(watched);
    return Engine::Impl::open(options, capacity, {}, {});
}

Request request_of(int n_prompt, int64_t n_predict, const SampleParams& params) {
    Request request;
    for (Token i = 0; i < n_prompt; i++) request.prompt.push_back(100 + i * 37 % 1000);
    request.sampling = params;
    request.n_predict = n_predict;
    request.ignore_eos = true;
    return request;
}

void expect_same(const Generation& got, const Generation& want) {
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.text, want.text);
    EXPECT_EQ(got.reason, want.reason);
    EXPECT_EQ(got.n_steps, want.n_steps);
    EXPECT_EQ(got.n_reused, want.n_reused);
}

std::vector<SampleParams> ways_of_drawing() {
    std::vector<SampleParams> ways(6);
    for (size_t i = 0; i < ways.size(); i++) ways[i].seed = 11 + i;
    ways[0].temperature = 0;
    ways[1].temperature = 1.3f;
    ways[2].repeat_penalty = 1.5f, ways[2].frequency_penalty = 0.3f, ways[2].penalty_last_n = 4;
    ways[3].presence_penalty = 0.5f, ways[3].penalty_last_n = -1;
    ways[4].top_k = 0, ways[4].top_p = 1, ways[4].min_p = 0, ways[4].temperature = 3;
    ways[5].n_logprobs = 40, ways[5].logit_bias = {{7, 4.0f}, {8, -100.0f}};
    ways[5].repeat_penalty = 1.2f;
    return ways;
}

class RunAhead : public testing::TestWithParam<const char*> {
  protected:
    RunAhead()
        : waiting_(open(options_of(GetParam()), waits_)),
          ahead_(open(options_of(GetParam()), runs_)) {}

    Watched waits_{.may_run_ahead = false}, runs_{};
    std::unique_ptr<Engine> waiting_, ahead_;
};

TEST_P(RunAhead, draws_the_same_in_every_turn_of_a_conversation) {
    for (const SampleParams& params : ways_of_drawing()) {
        SCOPED_TRACE("seed " + std::to_string(params.seed));
        Sequence a = waiting_->new_sequence(), b = ahead_->new_sequence();
        for (int n_prompt : {300, 1, 20}) {
            Request request = request_of(n_prompt, 40, params);
            request.prompt.insert(request.prompt.begin(), a.tokens().begin(), a.tokens().end());
            std::vector<float> logprobs[2];
            const Generation want = waiting_->generate(a, request, [&](const TokenEvent& event) {
                if (event.sampled != nullptr) logprobs[0].push_back(event.sampled->logprob);
            });
            const Generation got = ahead_->generate(b, request, [&](const TokenEvent& event) {
                if (event.sampled != nullptr) logprobs[1].push_back(event.sampled->logprob);
            });
            expect_same(got, want);
            EXPECT_EQ(logprobs[1], logprobs[0]);
            EXPECT_EQ(b.tokens(), a.tokens());
        }
    }
    EXPECT_EQ(waits_.n_ahead, 0);
    EXPECT_EQ(runs_.n_ahead, 6 * 3 * 38);
}

TEST_P(RunAhead, an_answer_that_ends_on_the_way_leaves_the_same_cache) {
    const SampleParams params{.temperature = 1.3f, .seed = 5};
    const Request whole = request_of(50, 60, params);
    Sequence first = waiting_->new_sequence();
    const Generation answer = waiting_->generate(first, whole);
    ASSERT_GT(answer.text.size(), 10u);
    for (size_t n : {size_t{0}, size_t{1}, size_t{30}, size_t{58}}) {
        for (bool by_text : {false, true}) {
            Request ended = whole;
            if (by_text) {
                ended.stops = {answer.text.substr(std::min(3 * n, answer.text.size() - 2), 2)};
            } else {
                ended.ignore_eos = false, ended.end_tokens = {answer.tokens[n]};
            }
            Sequence a = waiting_->new_sequence(), b = ahead_->new_sequence();
            expect_same(ahead_->generate(b, ended), waiting_->generate(a, ended));
            ASSERT_EQ(b.tokens(), a.tokens());
            Request more = request_of(7, 20, params);
            more.prompt.insert(more.prompt.begin(), a.tokens().begin(), a.tokens().end());
            expect_same(ahead_->generate(b, more), waiting_->generate(a, more));
        }
    }
}

TEST_P(RunAhead, goes_on_after_steps_that_were_cancelled_within) {
    const Request whole = request_of(50, 60, {.temperature = 1.3f, .seed = 6});
    Sequence first = waiting_->new_sequence();
    const Generation answer = waiting_->generate(first, whole);
    // The prompt's two steps ask 151 times each, as do decode steps that are not replayed: the
    // first of its size, the one that is captured, and then steps between which is asked.
    bool may_be_captured = false;
    for (int n_may_ask : {400, 400, 310, 340}) {
        SCOPED_TRACE("asked " + std::to_string(n_may_ask) + " times");
        int n_asked = 0;
        Request cancelled = whole;
        cancelled.cancelled = [&] { return ++n_asked > n_may_ask; };
        Sequence sequence = ahead_->new_sequence();
        const Generation cut = ahead_->generate(sequence, cancelled);
        EXPECT_EQ(cut.reason, StopReason::kCancelled);
        EXPECT_TRUE(std::equal(cut.tokens.begin(), cut.tokens.end(), answer.tokens.begin()));
        if (!std::exchange(may_be_captured, true)) continue;
        const Generation again = ahead_->generate(sequence, whole);
        EXPECT_EQ(again.tokens, answer.tokens);
        EXPECT_GT(again.n_reused, 0);
    }
}

TEST_P(RunAhead, a_full_context_ends_at_the_same_token) {
    for (int n_prompt : {1000, 1023, 1024}) {
        const Request request = request_of(n_prompt, -1, {.seed = 3});
        Sequence a = waiting_->new_sequence(), b = ahead_->new_sequence();
        const Generation want = waiting_->generate(a, request);
        EXPECT_EQ(want.reason, StopReason::kContextFull);
        expect_same(ahead_->generate(b, request), want);
    }
}

INSTANTIATE_TEST_SUITE_P(Cuda, RunAhead, testing::Values("sample", "fused", "graph"),
                         [](const auto& test) { return std::string(test.param); });

TEST(RunAheadOfNone, where_the_host_draws_or_layers_are_streamed) {
    const Request request = request_of(10, 8, {.seed = 2});
    for (bool streams : {false, true}) {
        Watched watched;
        OpenOptions options = options_of(streams ? "" : "plain");
        options.stream_weights = streams;
        auto engine = open(options, watched);
        Sequence sequence = engine->new_sequence();
        EXPECT_EQ(engine->generate(sequence, request).tokens.size(), 8u);
        EXPECT_EQ(watched.n_ahead, 0);
    }
    Watched watched;
    auto engine = open(options_of(""), watched);
    Sequence sequence = engine->new_sequence();
    Request wide = request;
    wide.sampling.n_logprobs = 2000;  // more than the device lists
    EXPECT_EQ(engine->generate(sequence, wide).tokens.size(), 8u);
    EXPECT_EQ(watched.n_ahead, 0);
    EXPECT_EQ(engine->generate(sequence, request).tokens.size(), 8u);
    EXPECT_EQ(watched.n_ahead, 6);
}

TEST(BenchSessionAhead, draws_what_it_draws_where_steps_wait_for_each_other) {
    Watched waits{.may_run_ahead = false}, runs;
    const std::vector<int64_t> sizes(8, 200);
    auto waiting = BenchSession::open(options_of(""), sizes, 0, {}, {}, watch(waits));
    auto ahead = BenchSession::open(options_of(""), sizes, 0, {}, {}, watch(runs));
    for (int n_sequences : {1, 3, 8}) {
        waiting->fill(n_sequences, 100), ahead->fill(n_sequences, 100);
        for (int repeat = 0; repeat < 3; repeat++) {  // the last of captured steps alone
            EXPECT_EQ(ahead->decode(n_sequences, 100, 50), waiting->decode(n_sequences, 100, 50));
        }
    }
    EXPECT_EQ(waits.n_ahead, 0);
    EXPECT_EQ(runs.n_ahead, 3 * 3 * 49);
}

}  // namespace
}  // namespace ridge
