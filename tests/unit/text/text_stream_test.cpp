#include "text/text_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/timer.h"
#include "support/seed.h"

namespace ridge {
namespace {

TEST(TextStream, holds_the_first_half_of_a_character) {
    TextStream stream;  // Llama 3's tokens 9468 and 19044
    EXPECT_EQ(stream.push("\xf0\x9f"), "");
    EXPECT_EQ(stream.push("\x99\x82"), "\xf0\x9f\x99\x82");
    EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, gives_what_is_complete_and_holds_the_rest) {
    TextStream stream;  // Qwen's token 30484
    EXPECT_EQ(stream.push("\xe0\xa5\x8d\xe0\xa4"), "\xe0\xa5\x8d");
    EXPECT_EQ(stream.push("\xa8"), "\xe0\xa4\xa8");
    EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, shows_bytes_that_never_complete_once_at_the_end) {
    TextStream stream;
    EXPECT_EQ(stream.push("a\xf0\x9f"), "a");
    EXPECT_EQ(stream.push("\x99"), "");
    EXPECT_EQ(stream.finish(), "\xef\xbf\xbd");
    EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, replaces_each_maximal_ill_formed_part) {
    TextStream stream;  // the example of The Unicode Standard, table 3-8
    const std::string bad = "\xef\xbf\xbd";
    EXPECT_EQ(stream.push("\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64"),
              "a" + bad + bad + bad + "b" + bad + "c" + bad + bad + "d");
    EXPECT_EQ(stream.push("\xe2"), "");
    EXPECT_EQ(stream.push("x"), bad + "x");
    EXPECT_EQ(stream.push("\xc0\xaf\xed\xa0\x80"), bad + bad + bad + bad + bad);
}

TEST(TextStream, gives_the_same_text_however_the_bytes_are_cut) {
    uint64_t seed = test_seed();
    std::mt19937_64 random(seed);
    static const std::string parts[] = {"a",    "\xc3\xa9", "\xe6\xbc\xa2", "\xf0\x9f\x99\x82",
                                        "\xff", "\xf0\x9f", "\x80",         "\xe2\x82"};
    for (int i = 0; i < 5'000; i++) {
        std::string bytes, got;
        for (size_t n = random() % 10; n > 0; n--) bytes += parts[random() % std::size(parts)];
        TextStream whole, cut;
        std::string want = whole.push(bytes);
        want += whole.finish();
        for (size_t at = 0; at < bytes.size();) {
            size_t n = 1 + random() % 4;
            got += cut.push(std::string_view(bytes).substr(at, n));
            at += n;
        }
        got += cut.finish();
        ASSERT_EQ(got, want) << testing::PrintToString(bytes);
    }
}

TEST(StopMatcher, stops_at_a_text_that_comes_in_pieces) {
    StopMatcher matcher({"beta gamma"});
    std::string shown;
    for (const char* piece : {"alpha", " be", "ta ga", "mma x", "more"})
        shown += matcher.push(piece);
    EXPECT_EQ(shown + matcher.finish(), "alpha ");
    EXPECT_TRUE(matcher.stopped());
    EXPECT_EQ(matcher.stop(), "beta gamma");
}

TEST(StopMatcher, loses_no_held_text_when_the_answer_ends) {
    StopMatcher matcher({"beta gamma"});
    EXPECT_EQ(matcher.push("alpha beta gam"), "alpha ");
    EXPECT_EQ(matcher.finish(), "beta gam");
    EXPECT_FALSE(matcher.stopped());
    EXPECT_EQ(matcher.push("ma"), "ma");  // what was given is forgotten
}

TEST(StopMatcher, lets_everything_through_without_stop_strings) {
    StopMatcher matcher({});
    EXPECT_EQ(matcher.push("text"), "text");
    EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, refuses_an_empty_stop_string) {
    EXPECT_THROW(StopMatcher({"a", ""}), Error);
}

TEST(StopMatcher, holds_only_what_may_be_the_start_of_a_stop_string) {
    StopMatcher matcher({"aab", "\n\nUser:"});
    EXPECT_EQ(matcher.push("aaa"), "a");
    EXPECT_EQ(matcher.push("c\n"), "aac");
    EXPECT_EQ(matcher.push("\n"), "");
    EXPECT_EQ(matcher.push("\nUse"), "\n");
    EXPECT_EQ(matcher.push("rs"), "\n\nUsers");
}

TEST(StopMatcher, finds_one_stop_string_inside_the_start_of_another) {
    StopMatcher matcher({"abcde", "cd", "bcd"});
    EXPECT_EQ(matcher.push("xabc"), "x");
    EXPECT_EQ(matcher.push("d"), "a");
    EXPECT_EQ(matcher.stop(), "bcd");  // both end here: the longer one
}

// The definition: the first place where some stop string has just ended; the longest that did.
TEST(StopMatcher, agrees_with_a_plain_search_however_the_text_is_cut) {
    uint64_t seed = test_seed();
    std::mt19937_64 random(seed);
    auto random_text = [&](size_t most) {
        std::string text;
        for (size_t n = 1 + random() % most; n > 0; n--)
            text += static_cast<char>('a' + random() % 2);
        return text;
    };
    for (int round = 0; round < 5'000; round++) {
        std::vector<std::string> stops;
        for (size_t n = 1 + random() % 4; n > 0; n--) stops.push_back(random_text(5));
        std::string text = random_text(20), want = text, want_stop;
        for (size_t end = 1; end <= text.size() && want_stop.empty(); end++) {
            for (const std::string& stop : stops) {
                if (stop.size() > want_stop.size() && text.substr(0, end).ends_with(stop)) {
                    want_stop = stop;
                    want = text.substr(0, end - stop.size());
                }
            }
        }
        StopMatcher matcher(stops);
        std::string got;
        for (size_t at = 0; at < text.size();) {
            size_t n = 1 + random() % 3;
            got += matcher.push(std::string_view(text).substr(at, n));
            at += n;
        }
        got += matcher.finish();
        ASSERT_EQ(got, want) << text;
        ASSERT_EQ(matcher.stopped() ? matcher.stop() : "", want_stop) << text;
    }
}

TEST(StopMatcher, takes_linear_time_for_long_repetitive_stop_strings) {
    std::string stop = std::string(20'000, 'a') + "b";
    Timer timer;
    StopMatcher matcher({stop, std::string(10'000, 'a') + "c", std::string(10'000, 'a') + "d"});
    std::string text(200'000, 'a'), shown;
    for (size_t at = 0; at < text.size(); at += 7) {
        shown += matcher.push(std::string_view(text).substr(at, 7));
    }
    EXPECT_LT(timer.elapsed_ms(), 3'000);
    EXPECT_EQ(shown + matcher.finish(), text);
    EXPECT_FALSE(matcher.stopped());
}

}  // namespace
}  // namespace ridge
