#include "base/json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ridge {
namespace {

std::string error_of(std::string_view text, int max_depth = kMaxJsonDepth) {
    try {
        parse_json(text, "config.json", max_depth);
    } catch (const Error& e) {
        return e.what();
    }
    return "no error";
}

std::string nested(size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
}

std::string object_with_keys(int n) {
    std::string text = "{";
    for (int i = 0; i < n; i++) {
        text += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":0";
    }
    return text + "}";
}

TEST(JsonTest, an_object_keeps_the_order_of_its_keys_and_the_last_of_equal_ones) {
    EXPECT_EQ(parse_json(R"({"z": 1, "a": 2, "m": 3, "z": 4})", "x").dump(),
              R"({"z":4,"a":2,"m":3})");
    EXPECT_EQ(parse_json_map(R"({"z": 1, "a": 2})", "x").at("z"), 1);
}

TEST(JsonTest, bad_syntax_is_an_error_with_its_place) {
    std::string error = error_of("{\n  \"a\": 1,\n  \"b\" 2\n}");
    EXPECT_EQ(error.rfind("config.json: not valid JSON at line 3, column 7: ", 0), 0u) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
    EXPECT_NE(error_of("").find("line 1, column 1"), std::string::npos) << error_of("");
    for (std::string text :
         {"[1, 2", "{\"a\":}", "nul", "[1] 2", "'a'", "{\"a\": 1,}", "\"\\x\"", "[01]", "1e999"})
        EXPECT_EQ(error_of(text).rfind("config.json: not valid JSON", 0), 0u) << text;
}

TEST(JsonTest, text_that_is_not_utf8_is_an_error_on_one_clean_line) {
    std::string error = error_of("{\"a\": \"\xff\x1b[31m\"}");
    EXPECT_EQ(error.rfind("config.json: not valid JSON", 0), 0u) << error;
    for (char c : error) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << error;
}

TEST(JsonTest, nesting_ends_at_the_limit) {
    EXPECT_EQ(error_of(nested(64)), "no error");
    EXPECT_EQ(error_of(nested(65)),
              "config.json: JSON is nested deeper than 64 levels at line 1, column 65");
    EXPECT_EQ(error_of(nested(200'000)),
              "config.json: JSON is nested deeper than 64 levels at line 1, column 65");
    EXPECT_EQ(error_of(std::string(200'000, '[')),
              "config.json: JSON is nested deeper than 64 levels at line 1, column 65");
    EXPECT_EQ(error_of("{\"a\":{\"b\":0}}", 1),
              "config.json: JSON is nested deeper than 1 levels at line 1, column 6");
    EXPECT_THROW(parse_json_map(nested(65), "x"), Error);
    EXPECT_THROW(check_json_depth(nested(65), "x"), Error);
    EXPECT_NO_THROW(check_json_depth(nested(64), "x"));
}

TEST(JsonTest, brackets_inside_strings_do_not_count) {
    std::string brackets(1000, '[');
    EXPECT_EQ(error_of("[\"" + brackets + "\"]"), "no error");
    EXPECT_EQ(error_of("[\"\\\"" + brackets + "\\\\\"]"), "no error");
    // Closing brackets that open nothing buy no depth for those that follow.
    EXPECT_NE(error_of("]]]]" + nested(66)), "no error");
    // An unfinished escape at the end of the text.
    EXPECT_NE(error_of("[\"\\"), "no error");
}

TEST(JsonTest, an_ordered_object_has_at_most_ten_thousand_keys) {
    EXPECT_EQ(error_of(object_with_keys(10'000)), "no error");
    EXPECT_EQ(error_of(object_with_keys(10'001)),
              "config.json: a JSON object has more than 10000 keys");
    // The limit is of each object; arrays and maps have none.
    std::string many = "[" + object_with_keys(6000) + "," + object_with_keys(6000) + "]";
    EXPECT_EQ(error_of(many), "no error");
    std::string largest = object_with_keys(10'000);
    std::string four = "[" + largest + "," + largest + "," + largest + "," + largest;
    EXPECT_EQ(error_of(four + "]"), "no error");
    EXPECT_EQ(error_of(four + "," + object_with_keys(1000) + "]"),
              "config.json: JSON objects with too many keys: more than 200020000 comparisons");
    std::string zeros = "[0";
    for (int i = 0; i < 20'000; i++) zeros += ",0";
    EXPECT_EQ(error_of(zeros + "]"), "no error");
    EXPECT_EQ(parse_json_map(object_with_keys(20'000), "x").size(), 20'000u);
}

}  // namespace
}  // namespace ridge
