#include "base/printable.h"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"

namespace ridge {
namespace {

TEST(PrintableTest, plain_text_stays_as_it_is) {
    EXPECT_EQ(printable("model.gguf"), "model.gguf");
    EXPECT_EQ(printable("größe 模型 🦙"), "größe 模型 🦙");
    EXPECT_EQ(printable(""), "");
}

TEST(CountedTest, one_is_no_plural) {
    EXPECT_EQ(counted(0, "token"), "0 tokens");
    EXPECT_EQ(counted(1, "token"), "1 token");
    EXPECT_EQ(counted(2, "token"), "2 tokens");
}

TEST(PrintableTest, what_steers_a_terminal_is_made_visible) {
    EXPECT_EQ(printable("\x1b[31mred"), "\\x1b[31mred");
    EXPECT_EQ(printable("a\nb\tc\r"), "a\\x0ab\\x09c\\x0d");
    EXPECT_EQ(printable("a\nb\tc\r", 0, true), "a\nb\tc\\x0d");
    EXPECT_EQ(printable(std::string_view("\0\x7f", 2)), "\\x00\\x7f");
    EXPECT_EQ(printable("\xc2\x9b"
                        "31m"),
              "\\u009b31m");
}

TEST(PrintableTest, every_byte_that_is_not_utf8_is_shown) {
    EXPECT_EQ(printable("\xff"), "\\xff");
    EXPECT_EQ(printable("\xe2\x82|"), "\\xe2\\x82|");
    EXPECT_EQ(printable("\xf0\x9f\xa6"), "\\xf0\\x9f\\xa6");
    EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
}

TEST(PrintableTest, long_text_is_cut) {
    EXPECT_EQ(printable("abcdef", 3), "abc...");
    EXPECT_EQ(printable("abc", 3), "abc");
    EXPECT_EQ(printable(std::string(1000, 'x')), std::string(200, 'x') + "...");
    EXPECT_EQ(printable(std::string(1000, 'x'), 0), std::string(1000, 'x'));
}

TEST(PrintableTest, random_bytes_give_clean_utf8) {
    uint32_t seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    for (int round = 0; round < 2000; round++) {
        std::string bytes(random() % 40, ' ');
        for (char& byte : bytes) byte = static_cast<char>(random());
        std::string text = printable(bytes, 0);
        for (size_t at = 0; at < text.size();) {
            Utf8Char c = decode_utf8(std::string_view(text).substr(at));
            ASSERT_TRUE(c.valid);
            ASSERT_GE(c.code, 0x20u);
            ASSERT_TRUE(c.code < 0x7f || c.code > 0x9f);
            at += c.n_bytes;
        }
    }
}

}  // namespace
}  // namespace ridge
