#include "cmd/options.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "base/error.h"

namespace ridge {
namespace {

constexpr int kVocab = 100;

TEST(SamplingOptions, change_only_what_was_asked) {
    SampleParams params;  // as a model's file would have filled it
    params.temperature = 0.6f;
    params.top_k = 20;
    params.seed = 5;
    SamplingOptions options;
    options.apply(params, kVocab);
    EXPECT_EQ(params.temperature, 0.6f);
    EXPECT_EQ(params.top_k, 20);
    EXPECT_EQ(params.seed, 5u);
    EXPECT_TRUE(options.set("top-k", "--top-k", "0"));
    EXPECT_TRUE(options.set("repeat-last-n", "--repeat-last-n", "-1"));
    EXPECT_TRUE(options.set("seed", "--seed", "7"));
    options.apply(params, kVocab);
    EXPECT_EQ(params.temperature, 0.6f);
    EXPECT_EQ(params.top_k, 0);
    EXPECT_EQ(params.penalty_last_n, -1);
    EXPECT_EQ(params.seed, 7u);
}

TEST(SamplingOptions, greedy_is_temperature_0) {
    SampleParams params;
    SamplingOptions options;
    options.temperature = 2.0f;
    options.greedy = true;
    options.apply(params, kVocab);
    EXPECT_EQ(params.temperature, 0);
}

TEST(SamplingOptions, know_their_names) {
    SamplingOptions options;
    EXPECT_EQ(list_sampling(SampleParams()).back(), "logit-bias none");
    SampleParams params;
    params.logit_bias = {{5, 1.5f}, {6, -std::numeric_limits<float>::infinity()}};
    EXPECT_EQ(list_sampling(params).back(), "logit-bias 5+1.5,6-inf");
    for (const std::string& line : list_sampling(params)) {
        std::string name = line.substr(0, line.find(' '));
        EXPECT_TRUE(options.set(name, name, line.substr(name.size() + 1))) << line;
    }
    EXPECT_FALSE(options.set("colour", "/set", "red"));
    EXPECT_FALSE(options.set("--temp", "/set", "1"));
}

TEST(SamplingOptions, a_bias_needs_a_token_of_the_vocabulary) {
    SamplingOptions options;
    options.set("logit-bias", "--logit-bias", "99+1");
    SampleParams params;
    options.apply(params, kVocab);
    ASSERT_EQ(params.logit_bias.size(), 1u);
    options.set("logit-bias", "--logit-bias", "100-inf");
    try {
        options.apply(params, kVocab);
        FAIL() << "no Error";
    } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::kUsage);
        EXPECT_NE(std::string(e.what()).find("--logit-bias 100"), std::string::npos);
    }
    try {
        options.apply(params, kVocab, "/set logit-bias");
        FAIL() << "no Error";
    } catch (const Error& e) {
        EXPECT_EQ(std::string(e.what()).rfind("/set logit-bias 100", 0), 0u) << e.what();
    }
}

TEST(AnswerOptions, thinking_is_left_to_the_template_unless_asked) {
    AnswerOptions options;
    EXPECT_FALSE(options.thinking().has_value());
    options.no_think = true;
    EXPECT_EQ(options.thinking(), std::optional<bool>(false));
    options.think = true;
    EXPECT_EQ(options.thinking(), std::optional<bool>(true));
}

TEST(ModelOptions, threads_are_counted_and_pinned) {
    auto parse = [](const std::vector<std::string>& arguments) {
        OpenOptions open;
        CommandLine line("sample", "A sample.", "ridge sample");
        add_model_options(line, open);
        EXPECT_TRUE(line.parse(arguments));
        return open;
    };
    EXPECT_EQ(parse({}).n_threads, 0);
    EXPECT_FALSE(parse({"-t", "3"}).pin);
    OpenOptions open = parse({"--threads", "1024", "--pin"});
    EXPECT_EQ(open.n_threads, 1024);
    EXPECT_TRUE(open.pin);
    for (const char* text : {"0", "-1", "1025", "99999999999999999999", "2.5", "two", ""}) {
        try {
            parse({"-t", text});
            ADD_FAILURE() << "no error for " << text;
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::kUsage);
            EXPECT_NE(std::string(error.what()).find("-t"), std::string::npos) << error.what();
        }
    }
}

}  // namespace
}  // namespace ridge
