#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace ridge {
namespace {

struct CodeRange {
    uint32_t first, last;
};

// Letters and numbers that are in Unicode 16 and not in Unicode 15, which utf8proc 2.8 has.
constexpr CodeRange kLateLetters[] = {
    {0x1c89, 0x1c8a},   {0xa7cb, 0xa7cd},   {0xa7da, 0xa7dc},   {0x105c0, 0x105f3},
    {0x10d4a, 0x10d65}, {0x10d6f, 0x10d85}, {0x10ec2, 0x10ec4}, {0x11380, 0x11389},
    {0x1138b, 0x1138b}, {0x1138e, 0x1138e}, {0x11390, 0x113b5}, {0x113b7, 0x113b7},
    {0x113d1, 0x113d1}, {0x113d3, 0x113d3}, {0x11bc0, 0x11be0}, {0x13460, 0x143fa},
    {0x16100, 0x1611d}, {0x16d40, 0x16d6c}, {0x18cff, 0x18cff}, {0x1e5d0, 0x1e5ed},
    {0x1e5f0, 0x1e5f0}, {0x2ebf0, 0x2ee5d},
};
constexpr CodeRange kLateNumbers[] = {
    {0x10d40, 0x10d49}, {0x116d0, 0x116e3}, {0x11bf0, 0x11bf9}, {0x16130, 0x16139},
    {0x16d70, 0x16d79}, {0x1ccf0, 0x1ccf9}, {0x1e5f1, 0x1e5fa},
};

// Signs that are alphabetic: circled and squared letters.
constexpr CodeRange kLetterSigns[] = {
    {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

template <size_t n>
bool contains(const CodeRange (&ranges)[n], uint32_t code) {
    const CodeRange* after = std::upper_bound(
        std::begin(ranges), std::end(ranges), code,
        [](uint32_t value, const CodeRange& range) { return value < range.first; });
    return after != std::begin(ranges) && code <= std::prev(after)->last;
}

CharClass class_of_ascii(uint32_t code) {
    uint32_t lower = code | 0x20;
    if (lower >= 'a' && lower <= 'z') return CharClass::kLetter;
    if (code >= '0' && code <= '9') return CharClass::kNumber;
    if (code == '\r' || code == '\n') return CharClass::kNewline;
    return is_white_space(code) ? CharClass::kSpace : CharClass::kOther;
}

}  // namespace

bool is_white_space(uint32_t code) {
    if (code < 0x80) return code == ' ' || (code >= 0x09 && code <= 0x0d);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

CharClass char_class(uint32_t code) {
    if (code < 0x80) return class_of_ascii(code);
    if (is_white_space(code)) return CharClass::kSpace;
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
            return CharClass::kLetter;
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_NO:
            return CharClass::kNumber;
        case UTF8PROC_CATEGORY_CN:
            if (contains(kLateLetters, code)) return CharClass::kLetter;
            return contains(kLateNumbers, code) ? CharClass::kNumber : CharClass::kOther;
        default:
            return CharClass::kOther;
    }
}

bool is_word_char(uint32_t code) {
    if (char_class(code) == CharClass::kLetter) return true;
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC:
            return true;
        case UTF8PROC_CATEGORY_CN:
            return contains(kLateNumbers, code);  // all are decimal digits
        default:
            return code == 0x200c || code == 0x200d || contains(kLetterSigns, code);
    }
}

}  // namespace ridge
