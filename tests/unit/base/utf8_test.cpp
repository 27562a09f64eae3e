#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ridge {
namespace {

std::string encoded(uint32_t code) {
    std::string text;
    append_utf8(text, code);
    return text;
}

TEST(Utf8Test, every_scalar_value_comes_back_from_its_shortest_form) {
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        if (code >= 0xd800 && code <= 0xdfff) continue;
        std::string text = encoded(code);
        size_t n_bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        ASSERT_EQ(text.size(), n_bytes) << code;
        Utf8Char c = decode_utf8(text + "x");
        ASSERT_TRUE(c.valid) << code;
        ASSERT_EQ(c.code, code);
        ASSERT_EQ(c.n_bytes, n_bytes) << code;
        for (size_t n = 1; n < n_bytes; n++) {
            Utf8Char part = decode_utf8(std::string_view(text).substr(0, n));
            ASSERT_FALSE(part.valid) << code;
            ASSERT_TRUE(part.truncated) << code;
            ASSERT_EQ(part.n_bytes, n) << code;
        }
    }
}

// A decoder that knows only the definition: a lead byte, so many continuation bytes, and then the
// value tells whether the form was the shortest one of a scalar value.
bool is_one_scalar(std::string_view text) {
    auto lead = static_cast<uint8_t>(text[0]);
    size_t n = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
    if (n != text.size()) return false;
    uint32_t code = n == 1 ? lead : lead & (0x7fu >> n);
    for (char next : text.substr(1)) {
        if ((static_cast<uint8_t>(next) & 0xc0) != 0x80) return false;
        code = code << 6 | (static_cast<uint8_t>(next) & 0x3f);
    }
    constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    return code >= kLeast[n] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
}

TEST(Utf8Test, every_sequence_of_up_to_three_bytes_is_judged_as_the_definition_says) {
    std::string text;
    auto check = [&] {
        Utf8Char c = decode_utf8(text);
        bool want = false;
        for (size_t n = 1; n <= text.size(); n++) {
            if (!is_one_scalar(std::string_view(text).substr(0, n))) continue;
            want = true;
            ASSERT_EQ(c.n_bytes, n);
        }
        ASSERT_EQ(c.valid, want) << ::testing::PrintToString(text);
        ASSERT_GE(c.n_bytes, 1);
        ASSERT_LE(c.n_bytes, text.size());
        if (!c.valid) {
            ASSERT_EQ(c.code, 0xfffdu);
        }
    };
    // Bytes at each border of Unicode's table 3-7.
    std::vector<int> tails = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff};
    for (int first = 0; first < 256; first++) {
        text = {static_cast<char>(first)};
        check();
        for (int second = 0; second < 256; second++) {
            text = {static_cast<char>(first), static_cast<char>(second)};
            check();
            for (int third : tails) {
                text = {static_cast<char>(first), static_cast<char>(second),
                        static_cast<char>(third)};
                check();
            }
        }
    }
}

TEST(Utf8Test, ill_formed_text_is_cut_into_maximal_subparts) {
    // The example of the Unicode standard, section 3.9, table 3-11.
    std::string text = "\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64";
    std::vector<uint32_t> codes;
    for (size_t at = 0; at < text.size();) {
        Utf8Char c = decode_utf8(std::string_view(text).substr(at));
        codes.push_back(c.code);
        at += c.n_bytes;
    }
    std::vector<uint32_t> want = {0x61,   0xfffd, 0xfffd, 0xfffd, 0x62,
                                  0xfffd, 0x63,   0xfffd, 0xfffd, 0x64};
    EXPECT_EQ(codes, want);
}

}  // namespace
}  // namespace ridge
