#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "cases/random.h"
#include "engine/bench_session.h"
#include "engine/engine_impl.h"
#include "support/error_of.h"
#include "support/seed.h"
#include "support/wrapped_backend.h"

// Steps that are started before the token is known that they take: nothing that an engine gives,
// or keeps, differs from one whose steps wait for each other.

namespace ridge {
namespace {

// What happens to a backend that can run ahead, for a test to say and to see.
struct Late {
    int n_steps = 0, n_ahead = 0, n_waited = 0;
    // Of the step so numbered, from 0 on; -1: none does. It does not start, or it ends so.
    int fails_to_start = -1, fails = -1;
};

// The CPU as a device that works on its own: a step may take a token that the one before it draws,
// and tells nothing before it is waited for.
class LateBackend : public WrappedBackend {
  public:
    LateBackend(std::unique_ptr<Backend> inner, Late& late)
        : WrappedBackend(std::move(inner)), late_(late) {}

    bool can_run_ahead(const Model&, std::span<const SampleRow>) const override { return true; }

    Ticket step(const Model& model, const KvCache& kv, const Batch& batch) override {
        const int number = late_.n_steps++;
        if (number == late_.fails_to_start) throw Error("step {} does not start", number);
        std::vector<Token> tokens = known(batch.tokens);
        if (!std::equal(tokens.begin(), tokens.end(), batch.tokens.begin())) late_.n_ahead++;
        std::vector<std::vector<Token>> histories;
        for (const SampleRow& row : batch.sample_rows) histories.push_back(known(row.history));
        std::vector<SampleRow> rows(batch.sample_rows.begin(), batch.sample_rows.end());
        for (size_t i = 0; i < rows.size(); i++) rows[i].history = histories[i];
        Batch told = batch;
        told.tokens = tokens, told.sample_rows = rows;
        Flight flight{++n_tickets_, {}, nullptr};
        drawn_.assign(rows.size(), 0);
        try {
            flight.result = inner().wait(inner().step(model, kv, told));
            for (size_t i = 0; i < rows.size(); i++) drawn_[i] = flight.result.sampled[i].token;
            if (number == late_.fails) throw Error("step {} fails", number);
        } catch (const Error&) {  // which a device tells when it is waited for
            flight.error = std::current_exception();
        }
        flights_[flight.ticket % 2] = std::move(flight);
        return {n_tickets_};
    }

    StepResult wait(Ticket ticket) override {
        CHECK(ticket.id == n_tickets_ || ticket.id + 1 == n_tickets_);
        Flight& flight = flights_[ticket.id % 2];
        CHECK(flight.ticket == ticket.id);  // each is waited for once
        flight.ticket = 0;
        late_.n_waited++;
        if (flight.error) std::rethrow_exception(flight.error);
        return std::move(flight.result);
    }

  private:
    struct Flight {
        uint64_t ticket = 0;  // 0: waited for
        StepResult result;
        std::exception_ptr error;
    };

    std::vector<Token> known(std::span<const Token> tokens) const {
        std::vector<Token> all(tokens.begin(), tokens.end());
        for (Token& token : all) {
            if (token < 0) token = drawn_.at(static_cast<size_t>(-1 - token));
        }
        return all;
    }

    Late& late_;
    uint64_t n_tickets_ = 0;
    std::array<Flight, 2> flights_;
    std::vector<Token> drawn_;  // by the step before
};

OpenOptions tiny() {
    OpenOptions options;
    options.model = "synth:tiny-llama3:Q8_0";
    options.n_threads = 2;
    options.n_ctx = 160;
    return options;
}

std::unique_ptr<Engine> open_late(Late& late) {
    Capacity capacity;
    capacity.wrap_backend = [&](std::unique_ptr<Backend> inner) {
        return std::make_unique<LateBackend>(std::move(inner), late);
    };
    return Engine::Impl::open(tiny(), capacity, {}, {});
}

std::string text_of(const std::vector<Token>& tokens) {
    std::string text;
    for (Token token : tokens) text += " " + std::to_string(token);
    return text;
}

// All that comes of a request, but for the time it takes.
std::string told(Engine& engine, Sequence& sequence, const Request& request) {
    std::string all;
    const std::string error = error_of([&] {
        const Generation g = engine.generate(sequence, request, [&](const TokenEvent& event) {
            all += fmt::format("{} '{}'", event.token, event.text);
            if (event.sampled != nullptr) {
                all += fmt::format(" {}", event.sampled->logprob);
                for (const TokenLogprob& top : event.sampled->top)
                    all += fmt::format(" {} {}", top.token, top.logprob);
            }
            all += fmt::format(", {} held\n", sequence.tokens().size());
        });
        all +=
            fmt::format("{} {} '{}' prompt {} {} {}, {} steps: {}\n", g.text, to_string(g.reason),
                        g.stop, g.n_prompt, g.n_computed, g.n_reused, g.n_steps, text_of(g.tokens));
    });
    all += fmt::format("{}; held: {}", error, text_of(sequence.tokens()));
    return all;
}

// Of some tokens behind the sequence's, where there is room for them.
std::vector<float> logits_behind(Engine& engine, Sequence& sequence) {
    std::vector<float> all;
    std::vector<Token> more = {7, 8, 9};
    const auto n_left = engine.info().n_ctx - static_cast<int64_t>(sequence.tokens().size());
    more.resize(static_cast<size_t>(std::min<int64_t>(n_left, 3)));
    engine.evaluate(sequence, more, [&](int64_t, std::span<const float> logits) {
        all.insert(all.end(), logits.begin(), logits.end());
    });
    return all;
}

class RunAhead : public testing::Test {
  protected:
    RunAhead() : plain_(Engine::open(tiny())), ahead_(open_late(late_)) {}

    // One conversation on both, turn by turn.
    void expect_same(const std::vector<Request>& turns, const std::string& what) {
        SCOPED_TRACE(fmt::format("{}, RIDGE_SEED={}", what, test_seed()));
        Sequence a = plain_->new_sequence(), b = ahead_->new_sequence();
        for (size_t turn = 0; turn < turns.size(); turn++) {
            SCOPED_TRACE(fmt::format("turn {}", turn));
            Request request = turns[turn];
            // What was said so far is kept.
            request.prompt.insert(request.prompt.begin(), a.tokens().begin(), a.tokens().end());
            EXPECT_EQ(told(*ahead_, b, request), told(*plain_, a, request));
        }
        const std::vector<float> want = logits_behind(*plain_, a), got = logits_behind(*ahead_, b);
        EXPECT_EQ(got, want);
    }

    Random random_{test_seed()};
    Late late_;
    std::unique_ptr<Engine> plain_, ahead_;
};

Request request_of(Random& random, int64_t n_prompt, int64_t n_predict) {
    Request request;
    for (int64_t i = 0; i < n_prompt; i++) {
        request.prompt.push_back(static_cast<Token>(random.below(250)));
    }
    request.n_predict = n_predict;
    request.ignore_eos = true;
    return request;
}

TEST_F(RunAhead, text_and_cache_are_the_same_with_every_way_of_drawing) {
    std::vector<SampleParams> ways(6);
    ways[0].temperature = 0;
    ways[1].temperature = 1.2f;
    ways[2].repeat_penalty = 1.4f, ways[2].penalty_last_n = 3;
    ways[3].frequency_penalty = 0.4f, ways[3].presence_penalty = 0.2f, ways[3].penalty_last_n = -1;
    ways[4].temperature = 3, ways[4].top_k = 0, ways[4].top_p = 1, ways[4].min_p = 0;
    ways[5].n_logprobs = 4, ways[5].logit_bias = {{5, 3.0f}, {6, -100.0f}};
    for (size_t way = 0; way < ways.size(); way++) {
        std::vector<Request> turns;
        for (int64_t n_prompt : {40, 1, 9}) {
            turns.push_back(request_of(random_, n_prompt, 1 + random_.below(20)));
            turns.back().sampling = ways[way];
            turns.back().sampling.seed = static_cast<uint64_t>(random_.below(1 << 30));
        }
        expect_same(turns, fmt::format("way {}", way));
    }
    EXPECT_GT(late_.n_ahead, 0);
}

TEST_F(RunAhead, every_end_of_an_answer_is_where_it_was) {
    const Request whole = request_of(random_, 20, 40);
    Sequence sequence = plain_->new_sequence();
    const Generation answer = plain_->generate(sequence, whole);
    for (size_t n : {size_t{0}, size_t{1}, size_t{17}, size_t{39}}) {
        Request ended = whole;
        ended.ignore_eos = false;
        ended.end_tokens = {answer.tokens[n]};
        expect_same({ended, request_of(random_, 3, 5)}, fmt::format("ends at token {}", n));
    }
    for (size_t at = 0; at + 3 < answer.text.size(); at += 5) {
        Request stopped = whole;
        stopped.stops = {answer.text.substr(at, 3)};
        expect_same({stopped, request_of(random_, 3, 5)}, "stops at " + stopped.stops[0]);
    }
    for (int64_t n_predict : {0, 1, 2, -1}) {  // -1: the context is full
        Request request = whole;
        request.n_predict = n_predict;
        expect_same({request}, fmt::format("{} tokens", n_predict));
    }
    for (int64_t n_prompt : {158, 159, 160}) {
        expect_same({request_of(random_, n_prompt, -1)}, fmt::format("prompt of {}", n_prompt));
    }
}

TEST_F(RunAhead, what_is_cancelled_ends_where_it_did) {
    const Request whole = request_of(random_, 70, 12);
    const int n_asked_a_step = 1 + 5 * plain_->config().n_layers;
    for (int n_may_ask = 0; n_may_ask < 16 * n_asked_a_step; n_may_ask += 1 + n_may_ask % 4) {
        int n_asked = 0;
        Request request = whole;
        request.cancelled = [&] { return ++n_asked > n_may_ask; };
        Sequence a = plain_->new_sequence(), b = ahead_->new_sequence();
        const std::string want = told(*plain_, a, request);
        n_asked = 0;
        EXPECT_EQ(told(*ahead_, b, request), want) << "asked " << n_may_ask << " times";
        request.cancelled = {};
        EXPECT_EQ(told(*ahead_, b, request), told(*plain_, a, request)) << "and goes on";
    }
}

TEST_F(RunAhead, a_callback_that_throws_leaves_a_sequence_that_goes_on) {
    const Request request = request_of(random_, 10, 9);
    for (int n_tokens : {1, 4, 9}) {
        Sequence a = plain_->new_sequence(), b = ahead_->new_sequence();
        for (auto [engine, sequence] : {std::pair(plain_.get(), &a), std::pair(ahead_.get(), &b)}) {
            int n = 0;
            EXPECT_EQ(error_of([&, engine = engine, sequence = sequence] {
                          engine->generate(*sequence, request, [&](const TokenEvent&) {
                              if (++n == n_tokens) throw Error("nobody listens");
                          });
                      }),
                      "nobody listens");
        }
        EXPECT_EQ(b.tokens(), a.tokens());
        EXPECT_EQ(told(*ahead_, b, request), told(*plain_, a, request));
    }
}

// Step 0 is the prompt's; step n draws token n.
TEST_F(RunAhead, a_step_that_fails_loses_no_token_of_the_one_before) {
    const Request request = request_of(random_, 10, 9);
    Sequence sequence = plain_->new_sequence();
    const std::vector<Token> all = plain_->generate(sequence, request).tokens;
    for (bool starts : {false, true}) {
        for (int number = 0; number < 9; number++) {
            SCOPED_TRACE(fmt::format("step {}, starts: {}", number, starts));
            Late late;
            (starts ? late.fails : late.fails_to_start) = number;
            auto engine = open_late(late);
            Sequence failed = engine->new_sequence();
            std::vector<Token> seen;
            const std::string error = error_of([&] {
                engine->generate(failed, request,
                                 [&](const TokenEvent& event) { seen.push_back(event.token); });
            });
            EXPECT_EQ(error, fmt::format("{}: step {} {}", tiny().model, number,
                                         starts ? "fails" : "does not start"));
            EXPECT_EQ(seen, std::vector<Token>(all.begin(), all.begin() + number));
            const size_t n_held = number == 0 ? 0 : 10 + static_cast<size_t>(number) - 1;
            EXPECT_EQ(failed.tokens().size(), n_held);
            late.fails = late.fails_to_start = -1;
            EXPECT_EQ(engine->generate(failed, request).tokens, all) << "and goes on";
        }
    }
}

TEST_F(RunAhead, a_failed_step_behind_the_answers_end_is_not_told_of) {
    Request request = request_of(random_, 10, 9);
    Sequence sequence = plain_->new_sequence();
    const std::vector<Token> all = plain_->generate(sequence, request).tokens;
    request.ignore_eos = false;
    request.end_tokens = {all[4]};
    const auto n_before = static_cast<int>(std::find(all.begin(), all.end(), all[4]) - all.begin());
    for (bool starts : {false, true}) {
        Late late;
        (starts ? late.fails : late.fails_to_start) = n_before + 1;
        auto engine = open_late(late);
        Sequence ended = engine->new_sequence();
        EXPECT_EQ(engine->generate(ended, request).reason, StopReason::kEndToken);
        EXPECT_EQ(late.n_waited, n_before + 1);
    }
}

TEST_F(RunAhead, no_step_is_started_behind_one_that_is_known_to_be_the_last) {
    Sequence sequence = ahead_->new_sequence();
    ahead_->generate(sequence, request_of(random_, 10, 9));
    EXPECT_EQ(late_.n_steps, 9);
    EXPECT_EQ(late_.n_ahead, 7) << "the first decode step waits for the prompt's token";
    sequence.clear();
    ahead_->generate(sequence, request_of(random_, 150, -1));
    EXPECT_EQ(late_.n_waited, late_.n_steps) << "the context is full";
}

TEST(BenchSessionAhead, draws_what_it_draws_where_steps_wait_for_each_other) {
    constexpr int64_t kDepth = 70;
    Late late;
    auto plain = BenchSession::open(tiny(), {100, 100, 100}, 32);
    auto ahead =
        BenchSession::open(tiny(), {100, 100, 100}, 32, {}, {}, [&](std::unique_ptr<Backend> b) {
            return std::make_unique<LateBackend>(std::move(b), late);
        });
    for (int n_sequences : {1, 3, 2}) {
        for (int64_t n_steps : {1, 2, 9}) {
            plain->fill(n_sequences, kDepth), ahead->fill(n_sequences, kDepth);
            late = {};
            EXPECT_EQ(ahead->decode(n_sequences, kDepth, n_steps),
                      plain->decode(n_sequences, kDepth, n_steps));
            EXPECT_EQ(late.n_waited, n_steps);
            EXPECT_EQ(late.n_ahead, n_steps - 1);
        }
    }
    late = {.fails = 3};
    EXPECT_NE(error_of([&] { ahead->decode(2, kDepth, 9); }).find("step 3 fails"),
              std::string::npos);
    EXPECT_EQ(late.n_steps, 5) << "one step had run ahead";
    late = {};
    plain->fill(2, kDepth), ahead->fill(2, kDepth);
    EXPECT_EQ(ahead->decode(2, kDepth, 9), plain->decode(2, kDepth, 9));
}

}  // namespace
}  // namespace ridge
