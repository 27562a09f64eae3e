#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ridge {

// How a byte-level vocabulary wants text cut into pre-tokens, the pieces that merges stay within.
// The published rules are regular expressions whose alternatives are tried in order; all that are
// known here share one shape:
//
//   contraction | [before]letters | [space]digits | [space]signs[newlines] | white space
//
// and differ in the fields below. They are scanned by hand in one pass, in linear time.
enum class DigitRule : uint8_t {
    kRun,         // " ?\p{N}+"
    kUpToThree,   // "\p{N}{1,3}"
    kOne,         // "\p{N}"
    kSplitFirst,  // the text is first cut around every single digit
};

struct PreTokenizer {
    std::string_view name;
    DigitRule digits;
    // True for the newer rules: contractions in any case, any one character but a newline, letter
    // or digit may lead a word, newlines end a run of signs, and white space is cut after its last
    // newline. False for GPT-2's: contractions in lower case, and only a space may lead.
    bool newline_aware;
    bool nfc;            // the models' official tokenizers compose text (NFC) first
    bool ignore_merges;  // a pre-token that is a token is taken as it is
    bool add_bos;        // a GGUF file that does not say wants a BOS token
};

// By llama.cpp's name of it (tokenizer.ggml.pre) or an alias; null: unknown.
const PreTokenizer* find_pre_tokenizer(std::string_view name);
// By a tokenizer.json's regular expression, compared as a string; null: unknown.
const PreTokenizer* find_pre_tokenizer_by_regex(std::string_view regex);
std::string pre_tokenizer_names();  // "gpt-2, llama-bpe, ...", for messages

// Cuts text into pre-tokens, which cover it without gaps. Bytes that are not UTF-8 count as signs.
class PreTokenScanner {
  public:
    PreTokenScanner(const PreTokenizer& rule, std::string_view text);
    // The next pre-token, never empty; false at the end of the text.
    bool next(std::string_view& pre_token);

  private:
    struct Char;
    Char at(size_t offset) const;
    size_t contraction_end() const;
    size_t letters_end(size_t from) const;
    size_t digits_end(size_t from, int max_digits) const;
    size_t signs_end(size_t from) const;
    size_t spaces_end() const;
    size_t pre_token_end() const;
    void find_end_of_part();

    const PreTokenizer& rule_;
    std::string_view text_;
    size_t at_ = 0;
    size_t end_ = 0;  // of the part that is scanned as if it were the whole text
};

}  // namespace ridge
