#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"

namespace ridge {
namespace {

OpenOptions tiny(const std::string& name = "tiny-llama3", const std::string& format = "Q8_0") {
    OpenOptions options;
    options.model = "synth:" + name + ":" + format;
    options.n_threads = 2;
    options.n_ctx = 512;
    return options;
}

std::vector<Token> random_tokens(size_t n, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Token> tokens(n);
    for (Token& token : tokens) token = static_cast<Token>(random() % 256);
    return tokens;
}

Request greedy(std::vector<Token> prompt, int64_t n_predict) {
    Request request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.n_predict = n_predict;
    request.ignore_eos = true;
    return request;
}

std::vector<float> all_logits(Engine& engine, const std::vector<Token>& tokens) {
    std::vector<float> all;
    Sequence sequence = engine.new_sequence();
    engine.evaluate(sequence, tokens, [&](int64_t position, std::span<const float> logits) {
        EXPECT_EQ(position, static_cast<int64_t>(all.size() / logits.size()));
        all.insert(all.end(), logits.begin(), logits.end());
    });
    return all;
}

double relative_l2(const std::vector<float>& got, const std::vector<float>& want) {
    EXPECT_EQ(got.size(), want.size());
    double error = 0, norm = 0;
    for (size_t i = 0; i < want.size(); i++) {
        error += std::pow(static_cast<double>(got[i]) - want[i], 2);
        norm += std::pow(static_cast<double>(want[i]), 2);
    }
    return std::sqrt(error / norm);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class EveryTinyModel : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(EveryTinyModel, plain_agrees_with_the_oracle) {
    auto [name, format] = GetParam();
    OpenOptions options = tiny(name, format);
    options.cache_type_k = options.cache_type_v = "f32";
    std::vector<Token> tokens = random_tokens(70, 1);  // past one block of attention
    options.checkpoint = "ref";
    std::vector<float> want = all_logits(*Engine::open(options), tokens);
    options.checkpoint = "plain";
    std::vector<float> got = all_logits(*Engine::open(options), tokens);
    double error = relative_l2(got, want);
    EXPECT_LT(error, 1e-5);
    EXPECT_GT(error, 0) << "the two cannot be the same code";
}

INSTANTIATE_TEST_SUITE_P(
    Engine, EveryTinyModel,
    testing::Combine(testing::Values("tiny-llama3", "tiny-qwen3", "tiny-qwen2", "tiny-open-llama"),
                     testing::Values("F32", "BF16", "Q4_0", "Q4_K_M", "IQ4_XS")));

TEST(Engine, says_which_kernels_are_not_the_checkpoints_own_and_why) {
    for (const std::string& checkpoint : checkpoint_names("cpu")) {
        OpenOptions options = tiny("tiny-llama3", "Q4_0");
        options.checkpoint = checkpoint;
        EXPECT_TRUE(Engine::open(options)->info().fallbacks.empty()) << checkpoint;
    }
    OpenOptions options = tiny("tiny-open-llama", "Q4_0");
    const std::string_view reason = "d_head is not a multiple of 16";
    EXPECT_EQ(Engine::open(options)->info().fallbacks,
              (std::vector<Fallback>{{"attn_in", "fused", "ops", reason},
                                     {"kv_append", "decode_attention", "plain", reason},
                                     {"attention", "prefill_attention", "plain", reason}}));
    options.checkpoint = "gemm";  // before the fused stages and prompts' attention
    EXPECT_EQ(Engine::open(options)->info().fallbacks,
              (std::vector<Fallback>{{"kv_append", "decode_attention", "plain", reason},
                                     {"attention", "decode_attention", "plain", reason}}));
    options.checkpoint = "plain";
    EXPECT_TRUE(Engine::open(options)->info().fallbacks.empty());
}

TEST(Engine, logits_do_not_depend_on_threads) {
    std::vector<Token> tokens = random_tokens(80, 2);
    OpenOptions options = tiny();
    options.n_threads = 1;
    std::vector<float> one = all_logits(*Engine::open(options), tokens);
    options.n_threads = 3;
    EXPECT_TRUE(same_bits(one, all_logits(*Engine::open(options), tokens)));
}

TEST(Engine, logits_do_not_depend_on_how_a_prompt_is_cut) {
    std::vector<Token> tokens = random_tokens(60, 3);
    auto engine = Engine::open(tiny());
    std::vector<float> whole = all_logits(*engine, tokens), pieces;
    Sequence sequence = engine->new_sequence();
    for (size_t at = 0, n = 1; at < tokens.size(); at += n, n = n % 7 + 1) {
        n = std::min(n, tokens.size() - at);
        engine->evaluate(sequence, std::span(tokens).subspan(at, n),
                         [&](int64_t, std::span<const float> logits) {
                             pieces.insert(pieces.end(), logits.begin(), logits.end());
                         });
    }
    EXPECT_TRUE(same_bits(whole, pieces));
}

TEST(Engine, logits_of_a_part_are_those_of_the_whole) {
    std::vector<Token> tokens = random_tokens(100, 6);
    auto engine = Engine::open(tiny());
    std::vector<float> whole = all_logits(*engine, tokens);
    const size_t n_vocab = whole.size() / tokens.size();
    for (int64_t n_without : {0, 1, 33, 99, 100}) {
        EvaluateOptions options;
        options.n_without = n_without;
        Sequence sequence = engine->new_sequence();
        int64_t next = n_without;
        engine->evaluate(
            sequence, tokens,
            [&](int64_t position, std::span<const float> logits) {
                EXPECT_EQ(position, next++);
                EXPECT_EQ(std::memcmp(logits.data(),
                                      whole.data() + static_cast<size_t>(position) * n_vocab,
                                      logits.size_bytes()),
                          0);
            },
            options);
        EXPECT_EQ(next, 100);
        EXPECT_EQ(sequence.tokens(), tokens);
    }
}

TEST(Engine, evaluates_decode_rows_as_it_generates) {
    auto engine = Engine::open(tiny());
    std::vector<Token> prompt = random_tokens(1, 7);
    Sequence kept = engine->new_sequence(), sequence = engine->new_sequence();
    std::vector<Token> drawn = engine->generate(kept, greedy(prompt, 30)).tokens;
    ASSERT_EQ(drawn.size(), 30u);
    std::vector<Token> tokens = prompt;
    tokens.insert(tokens.end(), drawn.begin(), drawn.end() - 1);
    EvaluateOptions options;
    options.row_class = RowClass::kDecode;
    // Before each step, and before each of the five stages of its layers.
    const int n_asked_a_step = 1 + 5 * engine->config().n_layers;
    int n_asked = 0, n_may_ask = 30 * n_asked_a_step;
    options.cancelled = [&] { return ++n_asked > n_may_ask; };
    std::vector<Token> best;
    EXPECT_TRUE(engine->evaluate(
        sequence, tokens,
        [&](int64_t, std::span<const float> logits) {
            best.push_back(static_cast<Token>(std::max_element(logits.begin(), logits.end()) -
                                              logits.begin()));
        },
        options));
    EXPECT_EQ(best, drawn);
    EXPECT_EQ(n_asked, 30 * n_asked_a_step) << "a step for each token";
    for (int extra : {0, 1, n_asked_a_step - 1}) {  // between steps, and within the sixth
        sequence.clear();
        n_asked = 0, n_may_ask = 5 * n_asked_a_step + extra;
        EXPECT_FALSE(engine->evaluate(
            sequence, tokens, [](int64_t, std::span<const float>) {}, options));
        EXPECT_EQ(sequence.tokens().size(), 5u);
    }
    // What a step that was ended left behind changes nothing.
    options.cancelled = {};
    std::vector<Token> rest(tokens.begin() + 5, tokens.end());
    best.resize(5);
    EXPECT_TRUE(engine->evaluate(
        sequence, rest,
        [&](int64_t, std::span<const float> logits) {
            best.push_back(static_cast<Token>(std::max_element(logits.begin(), logits.end()) -
                                              logits.begin()));
        },
        options));
    EXPECT_EQ(best, drawn);
}

TEST(Engine, a_prompt_is_cancelled_within_a_step) {
    auto engine = Engine::open(tiny());
    Sequence sequence = engine->new_sequence();
    Request request = greedy(random_tokens(300, 12), 5);
    const std::vector<Token> want = engine->generate(sequence, request).tokens;
    sequence.clear();
    int n_asked = 0;
    request.cancelled = [&] { return ++n_asked > 1 + 5 * engine->config().n_layers + 4; };
    Generation cancelled = engine->generate(sequence, request);
    EXPECT_EQ(cancelled.reason, StopReason::kCancelled);
    EXPECT_TRUE(cancelled.tokens.empty());
    EXPECT_EQ(cancelled.n_computed, 32) << "the first step's";
    EXPECT_EQ(sequence.tokens().size(), 32u);
    request.cancelled = {};
    EXPECT_EQ(engine->generate(sequence, request).tokens, want);
}

TEST(Engine, what_a_check_refuses_costs_no_weights) {
    bool started = false;
    std::string message;
    try {
        Engine::open(
            tiny(), [&](std::string_view, double) { started = true; },
            [&](const Engine& engine) {
                EXPECT_EQ(engine.info().n_ctx, 512);
                EXPECT_EQ(engine.info().n_ctx_train, engine.config().n_ctx_train);
                EXPECT_EQ(engine.info().path, tiny().model);
                EXPECT_FALSE(engine.tokenizer().encode("word").empty());
                EXPECT_NE(engine.chat_template(), nullptr);
                throw Error("refused");
            });
    } catch (const Error& e) {
        message = e.what();
    }
    EXPECT_EQ(message, "refused");
    EXPECT_FALSE(started) << "weights were made";
}

TEST(Engine, errors_of_a_step_name_the_model) {
    auto engine = Engine::open(tiny());
    Sequence sequence = engine->new_sequence();
    Request request = greedy({1, 2, 3}, 1);
    for (Token token = 0; token < engine->config().n_vocab; token++)
        request.sampling.logit_bias.emplace_back(token, -std::numeric_limits<float>::infinity());
    std::string message;
    try {
        engine->generate(sequence, request);
    } catch (const Error& e) {
        message = e.what();
    }
    EXPECT_EQ(message, tiny().model + ": position 3: all logits are -inf, expected a finite one");
    EXPECT_TRUE(sequence.tokens().empty());
}

TEST(Engine, names_the_instruction_set_of_the_kernels_that_run) {
    OpenOptions options = tiny();
    options.device = "cpu";
    for (const char* checkpoint : {"ref", "plain"}) {
        options.checkpoint = checkpoint;
        EXPECT_EQ(Engine::open(options)->info().isa, "scalar") << checkpoint;
    }
    options.checkpoint = "matvec";
    EXPECT_EQ(Engine::open(options)->info().isa, cpu_isa_names().back());
}

TEST(Engine, a_shared_prefix_is_not_computed_again_and_changes_nothing) {
    auto engine = Engine::open(tiny());
    std::vector<Token> first = random_tokens(300, 4), second = first;  // more than one prompt step
    second.resize(200);
    second.push_back(77);
    Sequence kept = engine->new_sequence();
    engine->generate(kept, greedy(first, 5));
    Generation again = engine->generate(kept, greedy(second, 20));
    EXPECT_EQ(again.n_reused, 200);
    Sequence fresh = engine->new_sequence();
    Generation alone = engine->generate(fresh, greedy(second, 20));
    EXPECT_EQ(alone.n_reused, 0);
    EXPECT_EQ(again.tokens, alone.tokens);
}

TEST(Engine, sequences_take_turns_in_the_cache) {
    auto engine = Engine::open(tiny());
    Sequence a = engine->new_sequence(), b = engine->new_sequence();
    std::vector<Token> prompt_a = random_tokens(20, 5), prompt_b = random_tokens(25, 6);
    Generation first = engine->generate(a, greedy(prompt_a, 10));
    engine->generate(b, greedy(prompt_b, 10));
    Generation again = engine->generate(a, greedy(prompt_a, 10));
    EXPECT_EQ(again.n_reused, 0) << "the cache holds the other sequence";
    EXPECT_EQ(first.tokens, again.tokens);
}

TEST(Engine, greedy_takes_the_highest_logit_of_each_step) {
    auto engine = Engine::open(tiny());
    std::vector<Token> tokens = random_tokens(12, 7);
    Sequence sequence = engine->new_sequence();
    Generation answer = engine->generate(sequence, greedy(tokens, 8));
    ASSERT_EQ(answer.tokens.size(), 8u);
    tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
    size_t n_vocab = static_cast<size_t>(engine->config().n_vocab);
    std::vector<float> logits = all_logits(*engine, tokens);
    for (size_t i = 0; i < 8; i++) {
        auto row = logits.begin() + static_cast<int64_t>((11 + i) * n_vocab);
        Token best =
            static_cast<Token>(std::max_element(row, row + static_cast<int64_t>(n_vocab)) - row);
        EXPECT_EQ(answer.tokens[i], best) << i;
    }
}

TEST(Engine, a_seed_replays_its_text_and_another_gives_another) {
    auto engine = Engine::open(tiny());
    Request request = greedy(random_tokens(5, 8), 40);
    request.sampling.temperature = 1.5f;
    request.sampling.top_k = 0;
    auto run = [&](uint64_t seed) {
        request.sampling.seed = seed;
        Sequence sequence = engine->new_sequence();
        return engine->generate(sequence, request).tokens;
    };
    EXPECT_EQ(run(1), run(1));
    EXPECT_NE(run(1), run(2));
}

TEST(Engine, says_why_it_stopped) {
    auto engine = Engine::open(tiny());
    std::vector<Token> prompt = random_tokens(10, 9);
    Sequence sequence = engine->new_sequence();
    EXPECT_EQ(engine->generate(sequence, greedy(prompt, 3)).reason, StopReason::kLength);

    Generation none = engine->generate(sequence, greedy(prompt, 0));
    EXPECT_EQ(none.reason, StopReason::kLength);
    EXPECT_TRUE(none.tokens.empty());

    Generation full = engine->generate(sequence, greedy(prompt, -1));
    EXPECT_EQ(full.reason, StopReason::kContextFull);
    EXPECT_EQ(full.tokens.size(), 512u - 10 + 1)
        << "one more token than there is room for can be drawn";

    Request cancelled = greedy(prompt, -1);
    int n_asked = 0;
    cancelled.cancelled = [&] { return ++n_asked > 4; };
    EXPECT_EQ(engine->generate(sequence, cancelled).reason, StopReason::kCancelled);

    Request ended = greedy(prompt, 20);
    ended.ignore_eos = false;
    ended.end_tokens = {engine->generate(sequence, greedy(prompt, 1)).tokens[0]};
    Generation end = engine->generate(sequence, ended);
    EXPECT_EQ(end.reason, StopReason::kEndToken);
    EXPECT_TRUE(end.tokens.empty());
}

TEST(Engine, text_of_events_is_the_text_of_the_answer) {
    auto engine = Engine::open(tiny());
    Request request = greedy(random_tokens(6, 10), 60);
    std::string shown;
    Sequence sequence = engine->new_sequence();
    Generation answer =
        engine->generate(sequence, request, [&](const TokenEvent& event) { shown += event.text; });
    EXPECT_EQ(shown, answer.text);

    ASSERT_GT(answer.text.size(), 12u);
    request.stops = {answer.text.substr(answer.text.size() / 2, 4)};
    size_t at = answer.text.find(request.stops[0]);
    shown.clear();
    Generation stopped =
        engine->generate(sequence, request, [&](const TokenEvent& event) { shown += event.text; });
    EXPECT_EQ(stopped.reason, StopReason::kStopString);
    EXPECT_EQ(stopped.stop, request.stops[0]);
    EXPECT_EQ(stopped.text, answer.text.substr(0, at));
    EXPECT_EQ(shown, stopped.text);
}

// What a bad request says; empty where it is accepted.
template <class Call>
std::string error_of(Call call) {
    try {
        call();
    } catch (const Error& e) {
        return e.what();
    }
    return {};
}

void expect_words(const std::string& message, const std::vector<std::string>& words) {
    for (const std::string& word : words) {
        EXPECT_NE(message.find(word), std::string::npos) << "no '" << word << "' in: " << message;
    }
}

TEST(Engine, refuses_bad_requests_and_goes_on) {
    auto engine = Engine::open(tiny());
    Sequence sequence = engine->new_sequence();
    auto message = [&](std::vector<Token> prompt) {
        return error_of([&] { engine->generate(sequence, greedy(std::move(prompt), 1)); });
    };
    expect_words(message({}), {"prompt is empty"});
    expect_words(message(std::vector<Token>(513, 1)), {"513", "512", "-c"});
    expect_words(message({1, -1}), {"-1"});
    expect_words(message({engine->config().n_vocab}), {std::to_string(engine->config().n_vocab)});
    EXPECT_EQ(engine->generate(sequence, greedy(std::vector<Token>(512, 1), 1)).tokens.size(), 1u);
}

TEST(Engine, refuses_bad_options) {
    auto message = [&](auto change) {
        OpenOptions options = tiny();
        change(options);
        return error_of([&] { Engine::open(options); });
    };
    expect_words(message([](OpenOptions& o) { o.model = ""; }), {"-m"});
    expect_words(message([](OpenOptions& o) { o.model = "/nowhere/model.gguf"; }),
                 {"/nowhere/model.gguf"});
    expect_words(message([](OpenOptions& o) { o.model = "synth:tiny-llama3"; }),
                 {"synth:NAME:FORMAT"});
    expect_words(message([](OpenOptions& o) { o.model = "synth:gpt-5:Q4_0"; }),
                 {"gpt-5", "tiny-llama3"});
    expect_words(message([](OpenOptions& o) { o.cache_type_k = "q3"; }),
                 {"-ctk \"q3\"", "f32, f16, bf16"});
    expect_words(message([](OpenOptions& o) { o.device = "tpu"; }), {"--device \"tpu\"", "cpu"});
    expect_words(message([](OpenOptions& o) { o.checkpoint = "warp"; }),
                 {"--checkpoint \"warp\"", "ref, plain"});
    expect_words(message([](OpenOptions& o) { o.n_ctx = int64_t{1} << 40; }), {"-c 1099511627776"});
}

}  // namespace
}  // namespace ridge
