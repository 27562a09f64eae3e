#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>
#include <pcre2.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "support/seed.h"
#include "text/unicode.h"

// PCRE2 runs the published regular expressions themselves.

namespace ridge {
namespace {

using Pieces = std::vector<std::string>;

class Regex {
  public:
    explicit Regex(const std::string& pattern) {
        int error = 0;
        PCRE2_SIZE at = 0;
        code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr));
        EXPECT_NE(code_, nullptr) << pattern << " at " << at;
        match_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    }

    // Length of the match that begins at `at`; 0: none.
    size_t match(const std::string& text, size_t at) const {
        int n = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                            PCRE2_ANCHORED, match_.get(), nullptr);
        if (n < 1) return 0;
        return pcre2_get_ovector_pointer(match_.get())[1] - at;
    }

    Pieces split(const std::string& text) const {
        Pieces pieces;
        for (size_t at = 0; at < text.size();) {
            size_t n_bytes = match(text, at);
            if (n_bytes == 0) {
                ADD_FAILURE() << "no match at " << at << " of " << text;
                break;
            }
            pieces.push_back(text.substr(at, n_bytes));
            at += n_bytes;
        }
        return pieces;
    }

  private:
    struct Free {
        void operator()(pcre2_code* code) const { pcre2_code_free(code); }
        void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
    };
    std::unique_ptr<pcre2_code, Free> code_;
    std::unique_ptr<pcre2_match_data, Free> match_;
};

// PCRE2's \s also has U+180E: the class is spelt out as Unicode's White_Space.
std::string with_white_space(std::string pattern) {
    const std::string space =
        R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
    for (const auto& [from, to] : {std::pair<std::string, std::string>("[^\\s", "[^" + space),
                                   {"\\S", "[^" + space + "]"},
                                   {"\\s", "[" + space + "]"}}) {
        for (size_t at = 0; (at = pattern.find(from, at)) != std::string::npos; at += to.size()) {
            pattern.replace(at, from.size(), to);
        }
    }
    return pattern;
}

const std::string kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Rule {
    std::string name, regex;
};

void PrintTo(const Rule& rule, std::ostream* out) {
    *out << rule.name;
}

Pieces scan(const std::string& name, const std::string& text) {
    Pieces pieces;
    PreTokenScanner scanner(*find_pre_tokenizer(name), text);
    for (std::string_view piece; scanner.next(piece);) pieces.emplace_back(piece);
    return pieces;
}

// SmolLM cuts the text around every digit before the expression sees it.
Pieces expected(const Rule& rule, const Regex& regex, const std::string& text) {
    if (rule.name != "smollm") return regex.split(text);
    static const Regex digit(R"(\p{N})");
    Pieces pieces;
    std::string between;
    auto flush = [&] {
        for (std::string& piece : regex.split(between)) pieces.push_back(std::move(piece));
        between.clear();
    };
    for (size_t at = 0; at < text.size();) {
        if (size_t n_bytes = digit.match(text, at)) {
            flush();
            pieces.push_back(text.substr(at, n_bytes));
            at += n_bytes;
        } else {
            between += text[at++];
            while (at < text.size() && (text[at] & 0xc0) == 0x80) between += text[at++];
        }
    }
    flush();
    return pieces;
}

std::string utf8_of(uint32_t code) {
    std::string text;
    append_utf8(text, code);
    return text;
}

bool is_scalar(uint32_t code) {
    return code < 0x110000 && !(code >= 0xd800 && code < 0xe000);
}

class Classes {
  public:
    CharClass of(uint32_t code) const {
        std::string text = utf8_of(code);
        if (letter_.match(text, 0)) return CharClass::kLetter;
        if (number_.match(text, 0)) return CharClass::kNumber;
        if (newline_.match(text, 0)) return CharClass::kNewline;
        return space_.match(text, 0) ? CharClass::kSpace : CharClass::kOther;
    }
    bool knows(uint32_t code) const { return unassigned_.match(utf8_of(code), 0) == 0; }

  private:
    Regex letter_{R"(\p{L})"}, number_{R"(\p{N})"}, newline_{R"([\r\n])"}, unassigned_{R"(\p{Cn})"};
    Regex space_{with_white_space("\\s")};
};

TEST(PreTokenizer, classes_of_all_code_points_are_pcre2s) {
    Classes classes;
    int n_unknown = 0;
    for (uint32_t code = 0; code < 0x110000; code++) {
        if (!is_scalar(code)) continue;
        if (classes.of(code) == char_class(code)) continue;
        // Only code points that are newer than PCRE2's tables may differ.
        EXPECT_FALSE(classes.knows(code)) << std::hex << code;
        n_unknown++;
    }
    EXPECT_LT(n_unknown, 10'000);
}

class PreTokenizerRule : public testing::TestWithParam<Rule> {};

// Text made to meet every alternative and its edges; most of it is of few kinds of characters.
std::string random_text(std::mt19937_64& random, const Classes& classes) {
    static const std::vector<std::string> parts = {
        "'",
        "'s",
        "'S",
        "'\u017f",
        "'t",
        "'re",
        "'rE",
        "'ve",
        "'m",
        "'ll",
        "'lL",
        "'l",
        "'r",
        "'d",
        "'D",
        "''",
        "a",
        "Z",
        "s",
        "l",
        "e",
        " ",
        " ",
        "  ",
        "   ",
        "\t",
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        " \n ",
        "\u00a0",
        "\u3000",
        "\u0085",
        "\u2028",
        "\u180e",
        "\u200b",
        "\u1680",
        "\x0b",
        "\x1c",
        "1",
        "23",
        "456",
        "7890",
        "\u0663",
        "\u00b2",
        "\u2167",
        "\u00bd",
        "\u0301",
        "\u0903",
        "\u20dd",
        "\u6f22",
        "\u5b57",
        "\uac00",
        "\u0915\u094d",
        "\u00e9",
        "\u02b0",
        "\u01c5",
        ".",
        "!!",
        "#",
        "(",
        "_",
        "\u2014",
        "\U0001f642",
        "\u0378",
        "\ue000",
        "\U00020000",
        std::string(1, '\0'),
    };
    auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
    std::string text;
    size_t n_parts = 1 + pick(12);
    size_t n_kinds = 1 + pick(parts.size());
    size_t first = pick(parts.size());
    for (size_t i = 0; i < n_parts; i++) {
        if (pick(8) > 0) {
            text += parts[(first + pick(n_kinds)) % parts.size()];
            continue;
        }
        uint32_t code = static_cast<uint32_t>(pick(pick(2) == 0 ? 0x3000 : 0x30000));
        if (is_scalar(code) && char_class(code) == classes.of(code)) text += utf8_of(code);
    }
    return text;
}

TEST_P(PreTokenizerRule, cuts_random_text_as_the_published_expression_does) {
    uint64_t seed = test_seed();
    std::mt19937_64 random(seed);
    Classes classes;
    Regex regex(with_white_space(GetParam().regex));
    for (int i = 0; i < 20'000; i++) {
        std::string text = random_text(random, classes);
        ASSERT_EQ(scan(GetParam().name, text), expected(GetParam(), regex, text))
            << testing::PrintToString(text);
    }
}

TEST_P(PreTokenizerRule, covers_bytes_that_are_not_utf8_without_a_gap) {
    uint64_t seed = test_seed();
    std::mt19937_64 random(seed);
    for (int i = 0; i < 5'000; i++) {
        std::string text;
        for (size_t n = random() % 12; n > 0; n--) text += static_cast<char>(random());
        std::string joined;
        for (const std::string& piece : scan(GetParam().name, text)) {
            ASSERT_FALSE(piece.empty());
            joined += piece;
        }
        ASSERT_EQ(joined, text);
    }
}

INSTANTIATE_TEST_SUITE_P(All, PreTokenizerRule,
                         testing::Values(Rule{"gpt-2", kGpt2}, Rule{"llama-bpe", kLlama3},
                                         Rule{"qwen2", kQwen2}, Rule{"deepseek-r1-qwen", kQwen2},
                                         Rule{"smollm", kGpt2}),
                         [](const auto& info) {
                             std::string name = info.param.name;
                             for (char& c : name) c = c == '-' ? '_' : c;
                             return name;
                         });

TEST(PreTokenizer, is_found_by_name_alias_and_expression) {
    EXPECT_EQ(find_pre_tokenizer("llama3"), find_pre_tokenizer("llama-bpe"));
    EXPECT_EQ(find_pre_tokenizer("llama-v3"), find_pre_tokenizer("llama-bpe"));
    EXPECT_EQ(find_pre_tokenizer_by_regex(kLlama3), find_pre_tokenizer("llama-bpe"));
    EXPECT_EQ(find_pre_tokenizer_by_regex(kQwen2), find_pre_tokenizer("qwen2"));
    EXPECT_EQ(find_pre_tokenizer_by_regex(kGpt2), find_pre_tokenizer("gpt-2"));
    EXPECT_EQ(find_pre_tokenizer("default"), nullptr);
    EXPECT_EQ(find_pre_tokenizer(""), nullptr);
    EXPECT_EQ(find_pre_tokenizer_by_regex(kLlama3 + " "), nullptr);
    EXPECT_EQ(pre_tokenizer_names(), "gpt-2, llama-bpe, qwen2, deepseek-r1-qwen, smollm");
}

}  // namespace
}  // namespace ridge
