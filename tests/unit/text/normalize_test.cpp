#include "text/normalize.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <random>

#include "base/timer.h"
#include "base/utf8.h"
#include "support/seed.h"

namespace ridge {
namespace {

std::string utf8_of(std::u32string_view codes) {
    std::string text;
    for (char32_t code : codes) append_utf8(text, code);
    return text;
}

// utf8proc's own composition, right but quadratic in runs of marks.
std::string utf8proc_nfc(const std::string& text) {
    utf8proc_uint8_t* out = nullptr;
    auto n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                          static_cast<utf8proc_ssize_t>(text.size()), &out,
                          static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    std::unique_ptr<utf8proc_uint8_t, decltype(&free)> owner(out, &free);
    EXPECT_GE(n, 0);
    return {reinterpret_cast<char*>(out), static_cast<size_t>(n)};
}

// Blocks in which nothing of relevance came after Unicode 9: there any newer table agrees.
char32_t random_code(std::mt19937_64& random) {
    struct Range {
        char32_t first, last;
    };
    static const Range ranges[] = {
        {0x20, 0x7e},     {0xa0, 0x36f},    {0x300, 0x370},     {0x300, 0x345},
        {0x370, 0x5ff},   {0x620, 0x6ff},   {0x900, 0x9df},     {0xb40, 0xbdf},
        {0xc46, 0xce3},   {0xdc0, 0xddf},   {0xf00, 0xfbc},     {0x1100, 0x11ff},
        {0x1e00, 0x1fff}, {0x2000, 0x2bff}, {0x3040, 0x30ff},   {0xac00, 0xac80},
        {0xd700, 0xd7a3}, {0xf900, 0xfb4f}, {0x1d158, 0x1d1c0}, {0x2f800, 0x2fa1d},
        {0x1161, 0x11c2},
    };
    const Range& range = ranges[random() % std::size(ranges)];
    char32_t code = range.first + static_cast<char32_t>(random() % (range.last - range.first + 1));
    return code == 0x11a7 ? 0x11a8 : code;  // utf8proc 2.8 drops U+11A7, which is no consonant
}

TEST(Nfc, agrees_with_utf8proc_on_random_text) {
    uint64_t seed = test_seed();
    std::mt19937_64 random(seed);
    for (int i = 0; i < 100'000; i++) {
        std::u32string codes;
        for (size_t n = 1 + random() % 8; n > 0; n--) codes += random_code(random);
        std::string text = utf8_of(codes);
        std::string want = utf8proc_nfc(text);
        ASSERT_EQ(nfc(text), want) << testing::PrintToString(codes);
        if (is_surely_nfc(text)) {
            ASSERT_EQ(want, text) << testing::PrintToString(codes);
        }
    }
}

// From UAX #15, and the corners of the algorithm.
TEST(Nfc, composes_what_the_standard_says) {
    struct Case {
        std::u32string from, to;
    };
    const Case cases[] = {
        {U"cafe\u0301", U"caf\u00e9"},
        {U"\u00e9\u0301", U"\u00e9\u0301"},
        {U"a\u0301\u0323", U"\u1ea1\u0301"},  // ordered by class, then composed
        {U"D\u0307\u0323", U"\u1e0c\u0307"},
        {U"\u1e0a\u0323", U"\u1e0c\u0307"},
        {U"\u212b", U"\u00c5"},  // a singleton
        {U"\u2126", U"\u03a9"},
        {U"\u0958", U"\u0915\u093c"},  // excluded from composition
        {U"\u0344", U"\u0308\u0301"},
        {U"\u1112\u1161\u11ab", U"\ud55c"},  // Hangul
        {U"\uac00\u11a8", U"\uac01"},
        {U"\uac01\u11a8", U"\uac01\u11a8"},
        {U"\ud788\u11a7", U"\ud788\u11a7"},
        {U"\u1100\u0301\u1161", U"\u1100\u0301\u1161"},  // a mark between blocks
        {U"\u09c7\u09be", U"\u09cb"},                    // two starters
        {U"e\u200d\u0301", U"e\u200d\u0301"},
        {U"\U0002f800", U"\u4e3d"},
        {U"\u0301e", U"\u0301e"},
    };
    for (const Case& c : cases) {
        EXPECT_EQ(nfc(utf8_of(c.from)), utf8_of(c.to)) << testing::PrintToString(c.from);
        EXPECT_EQ(nfc(utf8_of(c.to)), utf8_of(c.to));
    }
}

// The published tokenizers take marks that are newer than Unicode 9 for starters.
TEST(Nfc, leaves_marks_newer_than_unicode_9_where_they_are) {
    for (std::u32string codes :
         {U"\u0303\u1ac0\u0316", U"a\u08d3\u0316", U"\U00011935\U00011930"}) {
        EXPECT_EQ(nfc(utf8_of(codes)), utf8_of(codes));
    }
}

TEST(Nfc, leaves_bytes_that_are_not_utf8_and_composes_around_them) {
    EXPECT_EQ(nfc("e\xff\xcc\x81"), "e\xff\xcc\x81");
    EXPECT_EQ(nfc("\xff"
                  "e\xcc\x81\xe2\x82"),
              "\xff\xc3\xa9\xe2\x82");
    EXPECT_EQ(nfc("\xcc"), "\xcc");
    EXPECT_TRUE(is_surely_nfc("\xff\xfe plain"));
}

TEST(Nfc, orders_a_long_run_of_marks_in_linear_time) {
    std::string text = "e", want = utf8_of(U"\u1eb9");
    for (int i = 0; i < 80'000; i++) text += i % 2 == 0 ? "\xcc\x81" : "\xcc\xa3";
    for (int i = 1; i < 40'000; i++) want += "\xcc\xa3";
    for (int i = 0; i < 40'000; i++) want += "\xcc\x81";
    Timer timer;
    EXPECT_EQ(nfc(text), want);
    EXPECT_LT(timer.elapsed_ms(), 2'000);
}

}  // namespace
}  // namespace ridge
