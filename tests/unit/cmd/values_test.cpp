#include "cmd/values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace ridge {
namespace {

// The message of the usage Error that `run` throws; empty, and a failure, where it throws none.
template <class Run>
std::string usage_error(Run run) {
    try {
        run();
    } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::kUsage);
        EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
        return e.what();
    }
    ADD_FAILURE() << "no Error";
    return {};
}

TEST(Values, integers_are_taken_whole_and_within_their_range) {
    EXPECT_EQ(parse_integer("-n", "0", -1, 10), 0);
    EXPECT_EQ(parse_integer("-n", "-1", -1, 10), -1);
    EXPECT_EQ(parse_integer("-n", "10", -1, 10), 10);
    for (const char* bad : {"", "1x", "x", " 1", "1 ", "11", "-2", "1.0", "0x1", "1e1", "+1",
                            "99999999999999999999", "-", "١"}) {
        std::string message = usage_error([&] { parse_integer("-n", bad, -1, 10); });
        EXPECT_NE(message.find("-n"), std::string::npos) << message;
        EXPECT_NE(message.find("-1 to 10"), std::string::npos) << message;
    }
}

TEST(Values, lists_of_integers_hold_numbers_and_ranges) {
    using List = std::vector<int64_t>;
    auto list = [](const char* text) { return parse_integers("-p", text, 0, 4096); };
    EXPECT_EQ(list("512"), List({512}));
    EXPECT_EQ(list("128,512,128"), List({128, 512, 128})) << "order and repeats stay";
    EXPECT_EQ(list("1-4"), List({1, 2, 3, 4}));
    EXPECT_EQ(list("3-3"), List({3}));
    EXPECT_EQ(list("128-512+128"), List({128, 256, 384, 512}));
    EXPECT_EQ(list("100-512+200"), List({100, 300, 500})) << "never beyond the last";
    EXPECT_EQ(list("128-1024*2"), List({128, 256, 512, 1024}));
    EXPECT_EQ(list("1-100*3"), List({1, 3, 9, 27, 81}));
    EXPECT_EQ(list("0,16-64*4,7"), List({0, 16, 64, 7}));
    EXPECT_EQ(list("0-2"), List({0, 1, 2}));
    EXPECT_EQ(parse_integers("-p", "1-9223372036854775807*4611686018427387904", 0, INT64_MAX),
              List({1, int64_t{1} << 62}))
        << "nothing overflows";
    EXPECT_EQ(parse_integers("-p", "5-9223372036854775807+9223372036854775803", 0, INT64_MAX),
              List({5}));
    EXPECT_EQ(list("1-1000").size(), kMaxListValues);
}

TEST(Values, lists_of_integers_refuse_what_is_none) {
    for (const char* bad : {"",
                            ",",
                            "1,",
                            ",1",
                            "1,,2",
                            "x",
                            "-1",
                            "1-",
                            "-",
                            "4-1",
                            "1-4+",
                            "1-4+0",
                            "1-4*1",
                            "1-4*0",
                            "1-4*",
                            "0-4*2",
                            "1+4",
                            "1*4",
                            "1+2-4",
                            "1-4+-1",
                            "1-4+1*2",
                            "1-2-3",
                            "4097",
                            "1-4097",
                            "1 ,2",
                            "1.5",
                            "99999999999999999999",
                            "1-99999999999999999999"}) {
        SCOPED_TRACE(bad);
        std::string message = usage_error([&] { parse_integers("-p", bad, 0, 4096); });
        EXPECT_EQ(message.rfind("-p \"", 0), 0u) << message;
        EXPECT_NE(message.find("from 0 to 4096"), std::string::npos) << message;
    }
    for (const char* gap : {",", "1,", ",1", "1,,2"}) {
        EXPECT_NE(usage_error([&] {
                      parse_integers("-p", gap, 0, 4096);
                  }).find("-p \"" + std::string(gap) + "\": expected"),
                  std::string::npos)
            << "what was written, not the empty part of it";
    }
    for (const char* many : {"1-1001", "0-4096", "1-1000,1"}) {
        std::string message = usage_error([&] { parse_integers("-p", many, 0, 4096); });
        EXPECT_NE(message.find("at most 1000"), std::string::npos) << message;
    }
}

TEST(Values, words_stand_between_commas) {
    EXPECT_EQ(parse_words("-ctk", "f16"), std::vector<std::string>({"f16"}));
    EXPECT_EQ(parse_words("-ctk", "f16,f32"), std::vector<std::string>({"f16", "f32"}));
    for (const char* bad : {"", ",", "a,", ",a", "a,,b"})
        usage_error([&] { parse_words("-ctk", bad); });
}

TEST(Values, numbers_are_finite_and_within_their_range) {
    EXPECT_EQ(parse_number("--temp", "0", 0, 100), 0);
    EXPECT_EQ(parse_number("--temp", "0.5", 0, 100), 0.5);
    EXPECT_EQ(parse_number("--temp", "1e1", 0, 100), 10);
    for (const char* bad : {"", "nan", "NaN", "inf", "-inf", "-0.1", "101", "1x", "0,5", " 1",
                            "1e999", "--", "0x1p3"}) {
        std::string message = usage_error([&] { parse_number("--temp", bad, 0, 100); });
        EXPECT_NE(message.find("--temp"), std::string::npos) << message;
        EXPECT_NE(message.find("0 to 100"), std::string::npos) << message;
    }
}

TEST(Values, an_offending_value_is_shown_without_its_escape_codes) {
    std::string message = usage_error([] { parse_integer("-n", "\x1b[2J\n", 0, 1); });
    EXPECT_NE(message.find("\\x1b[2J\\x0a"), std::string::npos) << message;
}

TEST(Values, seeds_have_64_bits) {
    EXPECT_EQ(parse_seed("-s", "0"), 0u);
    EXPECT_EQ(parse_seed("-s", "18446744073709551615"), std::numeric_limits<uint64_t>::max());
    for (const char* bad : {"", "-2", "18446744073709551616", "1.5", "seed"})
        usage_error([&] { parse_seed("-s", bad); });
    EXPECT_EQ(parse_seed_or_none("-s", "-1"), std::nullopt);
    EXPECT_EQ(parse_seed_or_none("-s", "7"), std::optional<uint64_t>(7));
    std::string message = usage_error([] { parse_seed_or_none("-s", "-2"); });
    EXPECT_NE(message.find("-1 for a new seed"), std::string::npos) << message;
}

TEST(Values, a_range_is_told_whole) {
    EXPECT_EQ(usage_error([] { parse_integer("-n", "99999999999", -1, 2147483647); }),
              "-n \"99999999999\": expected a whole number from -1 to 2147483647");
    EXPECT_NE(usage_error([] { parse_ids("--ids", "1,,2"); }).find("--ids \"1,,2\""),
              std::string::npos);
}

TEST(Values, a_choice_error_lists_the_choices) {
    EXPECT_EQ(parse_choice("-ctk", "f16", {"f32", "f16"}), "f16");
    std::string message = usage_error([] { parse_choice("-ctk", "q3", {"f32", "f16"}); });
    EXPECT_EQ(message, "-ctk \"q3\": expected one of f32, f16");
}

TEST(Values, ids_come_with_commas_spaces_lines_or_brackets) {
    std::vector<Token> ids = {1, 2, 30};
    for (const char* good :
         {"1,2,30", "1 2 30", "[1, 2, 30]", "1\n2\n30\n", " [1,2,30] \n", "1,2,30,"})
        EXPECT_EQ(parse_ids("--ids", good), ids) << good;
    EXPECT_TRUE(parse_ids("--ids", "").empty());
    EXPECT_TRUE(parse_ids("--ids", "[]").empty());
    for (const char* bad : {"1,,2", "-1", "1,x", "1.5", "2147483648", "[1", "1]", "[[1]]", "1;2"})
        usage_error([&] { parse_ids("--ids", bad); });
}

TEST(Values, logit_biases_are_an_id_and_a_signed_number) {
    std::vector<std::pair<Token, float>> biases =
        parse_logit_bias("--logit-bias", "15043+1.5,2-inf");
    ASSERT_EQ(biases.size(), 2u);
    EXPECT_EQ(biases[0].first, 15043);
    EXPECT_EQ(biases[0].second, 1.5f);
    EXPECT_EQ(biases[1].first, 2);
    EXPECT_EQ(biases[1].second, -std::numeric_limits<float>::infinity());
    for (const char* bad : {"", "1", "+1", "1+", "1+x", "x+1", "1+nan", "1+inf", "1--1", "1+-1",
                            "1+1,", "1+1e99", "99999999999+1"})
        usage_error([&] { parse_logit_bias("--logit-bias", bad); });
}

TEST(Values, dates_are_days_of_the_calendar) {
    EXPECT_EQ(parse_date("--date", "2026-11-29"), "2026-11-29");
    EXPECT_EQ(parse_date("--date", "2024-02-29"), "2024-02-29");
    for (const char* bad :
         {"", "2026-11-31", "2025-02-29", "1900-02-29", "2026-13-01", "2026-00-01", "26-11-29",
          "2026/11/29", "2026-11-29 ", "2026-1-029", "+026-11-29"})
        usage_error([&] { parse_date("--date", bad); });
}

}  // namespace
}  // namespace ridge
