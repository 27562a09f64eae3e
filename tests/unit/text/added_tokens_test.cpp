#include "text/added_tokens.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <tuple>

#include "base/timer.h"
#include "base/utf8.h"
#include "support/seed.h"
#include "text/unicode.h"

namespace ridge {
namespace {

using Entry = AddedTokenMatcher::Entry;
using Matches = std::vector<std::tuple<size_t, size_t, Token>>;

Matches matches_of(const std::vector<Entry>& entries, std::string_view text, size_t begin,
                   size_t end) {
    AddedTokenMatcher matcher(entries);
    AddedTokenMatcher::Search search = matcher.search(text, begin, end);
    Matches matches;
    while (auto match = search.next()) matches.push_back({match->begin, match->end, match->id});
    return matches;
}

Matches matches_of(const std::vector<Entry>& entries, std::string_view text) {
    return matches_of(entries, text, 0, text.size());
}

size_t previous(std::string_view text, size_t at) {
    do at--;
    while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80);
    return at;
}

// What is to be found, by trying every token at every place. The text is UTF-8.
Matches expected(const std::vector<Entry>& entries, std::string_view text, size_t begin,
                 size_t end) {
    auto code_at = [&](size_t at) { return decode_utf8(text.substr(at)).code; };
    Matches matches;
    size_t left = begin;
    for (size_t at = begin; at < end;) {
        const Entry* longest = nullptr;
        for (const Entry& entry : entries) {
            if (text.substr(at, std::min(entry.text.size(), end - at)) == entry.text &&
                (longest == nullptr || entry.text.size() > longest->text.size())) {
                longest = &entry;
            }
        }
        if (longest == nullptr) {
            at++;
            continue;
        }
        size_t from = at, to = at + longest->text.size();
        at = to;
        if (longest->token.single_word &&
            ((from > 0 && is_word_char(code_at(previous(text, from)))) ||
             (to < text.size() && is_word_char(code_at(to))))) {
            continue;
        }
        while (longest->token.left_strip && from > left &&
               is_white_space(code_at(previous(text, from))) && previous(text, from) >= left) {
            from = previous(text, from);
        }
        while (longest->token.right_strip && to < text.size() && is_white_space(code_at(to))) {
            to += decode_utf8(text.substr(to)).n_bytes;
        }
        matches.push_back({from, to, longest->token.id});
        at = left = to;
    }
    return matches;
}

TEST(AddedTokens, are_found_leftmost_and_of_several_the_longest) {
    std::vector<Entry> entries = {{"bcde", {.id = 0}}, {"ab", {.id = 1}}, {"abcx", {.id = 2}},
                                  {"cd", {.id = 3}},   {"ab", {.id = 4}}, {"d", {.id = 5}}};
    EXPECT_EQ(matches_of(entries, "abcde"), (Matches{{0, 2, 1}, {2, 4, 3}}));
    EXPECT_EQ(matches_of(entries, "zabcxbcdezd"), (Matches{{1, 5, 2}, {5, 9, 0}, {10, 11, 5}}));
    EXPECT_EQ(matches_of(entries, "abcx", 0, 3), (Matches{{0, 2, 1}})) << "what ends behind it";
    EXPECT_EQ(matches_of({}, "abc"), Matches{});
    EXPECT_EQ(matches_of(entries, ""), Matches{});
}

TEST(AddedTokens, are_found_as_trying_each_at_every_place_finds_them) {
    std::mt19937_64 random(test_seed());
    const char* letters[] = {"a", "a", "a", "b", " ", "\xc3\xa9", "\xe2\x80\x83", "."};
    auto text_of = [&](size_t n) {
        std::string text;
        for (size_t i = 0; i < n; i++) text += letters[random() % std::size(letters)];
        return text;
    };
    for (int i = 0; i < 3'000; i++) {
        std::vector<std::string> texts;
        for (size_t n = 1 + random() % 9; texts.size() < n;)
            texts.push_back(text_of(1 + random() % 5));
        std::vector<Entry> entries;
        for (const std::string& text : texts) {
            auto bits = i % 2 == 0 ? 0 : random();
            entries.push_back({text,
                               {.id = static_cast<Token>(entries.size()),
                                .left_strip = bits % 4 == 1,
                                .right_strip = bits / 4 % 4 == 1,
                                .single_word = bits / 16 % 4 == 1}});
        }
        std::string text = text_of(random() % 60);
        size_t begin = random() % (text.size() + 1);
        if (i % 3 == 0) begin = 0;
        while (begin < text.size() && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) begin++;
        size_t end = i % 3 == 1 ? text.size() : begin + random() % (text.size() - begin + 1);
        ASSERT_EQ(matches_of(entries, text, begin, end), expected(entries, text, begin, end))
            << '"' << text << "\" from " << begin << " to " << end << ", tokens "
            << testing::PrintToString(texts);
    }
}

// Text is read in blocks; tokens that lie across their bounds are found like any other.
TEST(AddedTokens, are_found_anywhere_in_long_text) {
    std::string longest(kMaxAddedTokenBytes, 'x');
    std::vector<Entry> entries = {{longest, {.id = 0}}, {"<ab>", {.id = 1}}};
    for (size_t at = 0; at < 20'000; at += 37) {
        std::string text(at, '.');
        text += "<ab>" + longest + "<ab>" + std::string(30, '-');
        Matches want = {{at, at + 4, 1}, {at + 4, at + 516, 0}, {at + 516, at + 520, 1}};
        ASSERT_EQ(matches_of(entries, text), want) << at;
    }
}

TEST(AddedTokens, take_time_linear_in_the_text_whatever_they_are) {
    std::string run(kMaxAddedTokenBytes - 1, 'x');
    std::string behind = run + 'b', before = 'b' + run, whole = run + 'x';
    std::string half = run.substr(0, 255), middle = half + 'b' + half;
    std::string text(2'000'000, 'x');
    for (const std::vector<Entry>& entries : std::vector<std::vector<Entry>>{
             {{behind, {.id = 0}}},
             {{before, {.id = 0}}},
             {{middle, {.id = 0}}},
             {{"x", {.id = 0}}, {behind, {.id = 1}}, {before, {.id = 2}}},
             {{"x", {.id = 0, .right_strip = true}}, {whole, {.id = 1, .single_word = true}}}}) {
        Timer timer;
        Matches matches = matches_of(entries, text);
        EXPECT_LT(timer.elapsed_ms(), 2'000) << entries.size() << ", " << entries[0].text;
    }
}

}  // namespace
}  // namespace ridge
