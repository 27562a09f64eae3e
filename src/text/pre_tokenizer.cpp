#include "text/pre_tokenizer.h"

#include <climits>

#include "base/utf8.h"
#include "text/unicode.h"

namespace ridge {
namespace {

constexpr PreTokenizer kPreTokenizers[] = {
    // name               digits                  newline_aware nfc  ignore_merges add_bos
    {"gpt-2", DigitRule::kRun, false, false, false, false},
    {"llama-bpe", DigitRule::kUpToThree, true, false, true, true},
    {"qwen2", DigitRule::kOne, true, true, false, false},
    {"deepseek-r1-qwen", DigitRule::kOne, true, true, false, false},
    {"smollm", DigitRule::kSplitFirst, false, false, false, false},
};

struct Alias {
    std::string_view alias, name;
};
constexpr Alias kAliases[] = {
    {"gpt2", "gpt-2"}, {"llama3", "llama-bpe"}, {"llama-v3", "llama-bpe"}};
constexpr Alias kRegexes[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", "gpt-2"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "llama-bpe"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen2"},
};

const PreTokenizer* find_by_name(std::string_view name) {
    for (const PreTokenizer& rule : kPreTokenizers) {
        if (rule.name == name) return &rule;
    }
    return nullptr;
}

bool is_space(CharClass c) {
    return c == CharClass::kSpace || c == CharClass::kNewline;
}

}  // namespace

const PreTokenizer* find_pre_tokenizer(std::string_view name) {
    for (const Alias& alias : kAliases) {
        if (alias.alias == name) return find_by_name(alias.name);
    }
    return find_by_name(name);
}

const PreTokenizer* find_pre_tokenizer_by_regex(std::string_view regex) {
    for (const Alias& known : kRegexes) {
        if (known.alias == regex) return find_by_name(known.name);
    }
    return nullptr;
}

std::string pre_tokenizer_names() {
    std::string names;
    for (const PreTokenizer& rule : kPreTokenizers) {
        if (!names.empty()) names += ", ";
        names += rule.name;
    }
    return names;
}

struct PreTokenScanner::Char {
    uint32_t code;
    CharClass kind;
    size_t end;  // offset of the next character
};

PreTokenScanner::PreTokenScanner(const PreTokenizer& rule, std::string_view text)
    : rule_(rule), text_(text) {
    find_end_of_part();
}

PreTokenScanner::Char PreTokenScanner::at(size_t offset) const {
    uint8_t byte = static_cast<uint8_t>(text_[offset]);
    if (byte < 0x80) return {byte, char_class(byte), offset + 1};
    Utf8Char c = decode_utf8(text_.substr(offset, end_ - offset));
    return {c.code, c.valid ? char_class(c.code) : CharClass::kOther, offset + c.n_bytes};
}

bool PreTokenScanner::next(std::string_view& pre_token) {
    if (at_ == end_) {
        if (end_ == text_.size()) return false;
        find_end_of_part();
    }
    size_t begin = at_;
    at_ = pre_token_end();
    pre_token = text_.substr(begin, at_ - begin);
    return true;
}

// With kSplitFirst a part is one digit, or what lies between two digits; else the whole text.
void PreTokenScanner::find_end_of_part() {
    size_t begin = end_;
    end_ = text_.size();
    if (rule_.digits != DigitRule::kSplitFirst) return;
    size_t part_end = begin;
    while (part_end < text_.size()) {
        Char c = at(part_end);
        if (c.kind == CharClass::kNumber) {
            if (part_end == begin) part_end = c.end;
            break;
        }
        part_end = c.end;
    }
    end_ = part_end;
}

size_t PreTokenScanner::pre_token_end() const {
    if (size_t end = contraction_end()) return end;
    Char first = at(at_);
    bool lead = first.kind == CharClass::kSpace || first.kind == CharClass::kOther;
    bool space = first.code == ' ';
    CharClass second = first.end < end_ ? at(first.end).kind : CharClass::kNewline;

    if (first.kind == CharClass::kLetter) return letters_end(first.end);
    if (second == CharClass::kLetter && (rule_.newline_aware ? lead : space)) {
        return letters_end(first.end);
    }
    int max_digits = rule_.digits == DigitRule::kUpToThree ? 3
                     : rule_.digits == DigitRule::kRun     ? INT_MAX
                                                           : 1;
    if (first.kind == CharClass::kNumber) return digits_end(first.end, max_digits - 1);
    if (rule_.digits == DigitRule::kRun && space && second == CharClass::kNumber) {
        return digits_end(first.end, max_digits);
    }
    if (first.kind == CharClass::kOther || (space && second == CharClass::kOther)) {
        return signs_end(first.end);
    }
    return spaces_end();
}

// The end of 's 't 're 've 'm 'll or 'd at the place reached; 0: none there. In any case, "s" is
// also U+017F, the long s, which Unicode folds to it.
size_t PreTokenScanner::contraction_end() const {
    if (text_[at_] != '\'' || at_ + 1 == end_) return 0;
    auto letter_at = [&](size_t offset) -> Char {
        if (offset >= end_) return {0, CharClass::kOther, offset};
        Char c = at(offset);
        if (!rule_.newline_aware) return c;
        if (c.code >= 'A' && c.code <= 'Z') c.code += 'a' - 'A';
        if (c.code == 0x17f) c.code = 's';
        return c;
    };
    Char first = letter_at(at_ + 1);
    switch (first.code) {
        case 's':
        case 't':
        case 'm':
        case 'd':
            return first.end;
        case 'r':
        case 'v':
        case 'l': {
            Char second = letter_at(first.end);
            return second.code == (first.code == 'l' ? 'l' : 'e') ? second.end : 0;
        }
        default:
            return 0;
    }
}

size_t PreTokenScanner::letters_end(size_t from) const {
    while (from < end_) {
        Char c = at(from);
        if (c.kind != CharClass::kLetter) break;
        from = c.end;
    }
    return from;
}

size_t PreTokenScanner::digits_end(size_t from, int max_digits) const {
    for (; from < end_ && max_digits > 0; max_digits--) {
        Char c = at(from);
        if (c.kind != CharClass::kNumber) break;
        from = c.end;
    }
    return from;
}

size_t PreTokenScanner::signs_end(size_t from) const {
    while (from < end_) {
        Char c = at(from);
        if (c.kind != CharClass::kOther) break;
        from = c.end;
    }
    if (!rule_.newline_aware) return from;
    while (from < end_ && (text_[from] == '\r' || text_[from] == '\n')) from++;
    return from;
}

// "\s*[\r\n]+|\s+(?!\S)|\s+": up to the last newline of the run; else all but its last character,
// which may lead the word that follows; else all of it.
size_t PreTokenScanner::spaces_end() const {
    size_t after_newline = 0, last = at_, end = at_;
    while (end < end_) {
        Char c = at(end);
        if (!is_space(c.kind)) break;
        if (c.kind == CharClass::kNewline) after_newline = c.end;
        last = end;
        end = c.end;
    }
    if (rule_.newline_aware && after_newline > 0) return after_newline;
    return end == end_ || last == at_ ? end : last;
}

}  // namespace ridge
