#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "base/utf8.h"

namespace ridge::jinja {
namespace {

// Letters whose upper or title case is more than one code point (Unicode's SpecialCasing.txt,
// unconditional mappings), sorted.
struct SpecialCase {
    uint16_t code;
    uint16_t upper[3], title[3];  // ended by 0
};

constexpr SpecialCase kSpecialCases[] = {
    {0x00df, {0x0053, 0x0053, 0}, {0x0053, 0x0073, 0}},
    {0x0149, {0x02bc, 0x004e, 0}, {0x02bc, 0x004e, 0}},
    {0x01f0, {0x004a, 0x030c, 0}, {0x004a, 0x030c, 0}},
    {0x0390, {0x0399, 0x0308, 0x0301}, {0x0399, 0x0308, 0x0301}},
    {0x03b0, {0x03a5, 0x0308, 0x0301}, {0x03a5, 0x0308, 0x0301}},
    {0x0587, {0x0535, 0x0552, 0}, {0x0535, 0x0582, 0}},
    {0x1e96, {0x0048, 0x0331, 0}, {0x0048, 0x0331, 0}},
    {0x1e97, {0x0054, 0x0308, 0}, {0x0054, 0x0308, 0}},
    {0x1e98, {0x0057, 0x030a, 0}, {0x0057, 0x030a, 0}},
    {0x1e99, {0x0059, 0x030a, 0}, {0x0059, 0x030a, 0}},
    {0x1e9a, {0x0041, 0x02be, 0}, {0x0041, 0x02be, 0}},
    {0x1f50, {0x03a5, 0x0313, 0}, {0x03a5, 0x0313, 0}},
    {0x1f52, {0x03a5, 0x0313, 0x0300}, {0x03a5, 0x0313, 0x0300}},
    {0x1f54, {0x03a5, 0x0313, 0x0301}, {0x03a5, 0x0313, 0x0301}},
    {0x1f56, {0x03a5, 0x0313, 0x0342}, {0x03a5, 0x0313, 0x0342}},
    {0x1f80, {0x1f08, 0x0399, 0}, {0x1f88, 0, 0}},
    {0x1f81, {0x1f09, 0x0399, 0}, {0x1f89, 0, 0}},
    {0x1f82, {0x1f0a, 0x0399, 0}, {0x1f8a, 0, 0}},
    {0x1f83, {0x1f0b, 0x0399, 0}, {0x1f8b, 0, 0}},
    {0x1f84, {0x1f0c, 0x0399, 0}, {0x1f8c, 0, 0}},
    {0x1f85, {0x1f0d, 0x0399, 0}, {0x1f8d, 0, 0}},
    {0x1f86, {0x1f0e, 0x0399, 0}, {0x1f8e, 0, 0}},
    {0x1f87, {0x1f0f, 0x0399, 0}, {0x1f8f, 0, 0}},
    {0x1f88, {0x1f08, 0x0399, 0}, {0x1f88, 0, 0}},
    {0x1f89, {0x1f09, 0x0399, 0}, {0x1f89, 0, 0}},
    {0x1f8a, {0x1f0a, 0x0399, 0}, {0x1f8a, 0, 0}},
    {0x1f8b, {0x1f0b, 0x0399, 0}, {0x1f8b, 0, 0}},
    {0x1f8c, {0x1f0c, 0x0399, 0}, {0x1f8c, 0, 0}},
    {0x1f8d, {0x1f0d, 0x0399, 0}, {0x1f8d, 0, 0}},
    {0x1f8e, {0x1f0e, 0x0399, 0}, {0x1f8e, 0, 0}},
    {0x1f8f, {0x1f0f, 0x0399, 0}, {0x1f8f, 0, 0}},
    {0x1f90, {0x1f28, 0x0399, 0}, {0x1f98, 0, 0}},
    {0x1f91, {0x1f29, 0x0399, 0}, {0x1f99, 0, 0}},
    {0x1f92, {0x1f2a, 0x0399, 0}, {0x1f9a, 0, 0}},
    {0x1f93, {0x1f2b, 0x0399, 0}, {0x1f9b, 0, 0}},
    {0x1f94, {0x1f2c, 0x0399, 0}, {0x1f9c, 0, 0}},
    {0x1f95, {0x1f2d, 0x0399, 0}, {0x1f9d, 0, 0}},
    {0x1f96, {0x1f2e, 0x0399, 0}, {0x1f9e, 0, 0}},
    {0x1f97, {0x1f2f, 0x0399, 0}, {0x1f9f, 0, 0}},
    {0x1f98, {0x1f28, 0x0399, 0}, {0x1f98, 0, 0}},
    {0x1f99, {0x1f29, 0x0399, 0}, {0x1f99, 0, 0}},
    {0x1f9a, {0x1f2a, 0x0399, 0}, {0x1f9a, 0, 0}},
    {0x1f9b, {0x1f2b, 0x0399, 0}, {0x1f9b, 0, 0}},
    {0x1f9c, {0x1f2c, 0x0399, 0}, {0x1f9c, 0, 0}},
    {0x1f9d, {0x1f2d, 0x0399, 0}, {0x1f9d, 0, 0}},
    {0x1f9e, {0x1f2e, 0x0399, 0}, {0x1f9e, 0, 0}},
    {0x1f9f, {0x1f2f, 0x0399, 0}, {0x1f9f, 0, 0}},
    {0x1fa0, {0x1f68, 0x0399, 0}, {0x1fa8, 0, 0}},
    {0x1fa1, {0x1f69, 0x0399, 0}, {0x1fa9, 0, 0}},
    {0x1fa2, {0x1f6a, 0x0399, 0}, {0x1faa, 0, 0}},
    {0x1fa3, {0x1f6b, 0x0399, 0}, {0x1fab, 0, 0}},
    {0x1fa4, {0x1f6c, 0x0399, 0}, {0x1fac, 0, 0}},
    {0x1fa5, {0x1f6d, 0x0399, 0}, {0x1fad, 0, 0}},
    {0x1fa6, {0x1f6e, 0x0399, 0}, {0x1fae, 0, 0}},
    {0x1fa7, {0x1f6f, 0x0399, 0}, {0x1faf, 0, 0}},
    {0x1fa8, {0x1f68, 0x0399, 0}, {0x1fa8, 0, 0}},
    {0x1fa9, {0x1f69, 0x0399, 0}, {0x1fa9, 0, 0}},
    {0x1faa, {0x1f6a, 0x0399, 0}, {0x1faa, 0, 0}},
    {0x1fab, {0x1f6b, 0x0399, 0}, {0x1fab, 0, 0}},
    {0x1fac, {0x1f6c, 0x0399, 0}, {0x1fac, 0, 0}},
    {0x1fad, {0x1f6d, 0x0399, 0}, {0x1fad, 0, 0}},
    {0x1fae, {0x1f6e, 0x0399, 0}, {0x1fae, 0, 0}},
    {0x1faf, {0x1f6f, 0x0399, 0}, {0x1faf, 0, 0}},
    {0x1fb2, {0x1fba, 0x0399, 0}, {0x1fba, 0x0345, 0}},
    {0x1fb3, {0x0391, 0x0399, 0}, {0x1fbc, 0, 0}},
    {0x1fb4, {0x0386, 0x0399, 0}, {0x0386, 0x0345, 0}},
    {0x1fb6, {0x0391, 0x0342, 0}, {0x0391, 0x0342, 0}},
    {0x1fb7, {0x0391, 0x0342, 0x0399}, {0x0391, 0x0342, 0x0345}},
    {0x1fbc, {0x0391, 0x0399, 0}, {0x1fbc, 0, 0}},
    {0x1fc2, {0x1fca, 0x0399, 0}, {0x1fca, 0x0345, 0}},
    {0x1fc3, {0x0397, 0x0399, 0}, {0x1fcc, 0, 0}},
    {0x1fc4, {0x0389, 0x0399, 0}, {0x0389, 0x0345, 0}},
    {0x1fc6, {0x0397, 0x0342, 0}, {0x0397, 0x0342, 0}},
    {0x1fc7, {0x0397, 0x0342, 0x0399}, {0x0397, 0x0342, 0x0345}},
    {0x1fcc, {0x0397, 0x0399, 0}, {0x1fcc, 0, 0}},
    {0x1fd2, {0x0399, 0x0308, 0x0300}, {0x0399, 0x0308, 0x0300}},
    {0x1fd3, {0x0399, 0x0308, 0x0301}, {0x0399, 0x0308, 0x0301}},
    {0x1fd6, {0x0399, 0x0342, 0}, {0x0399, 0x0342, 0}},
    {0x1fd7, {0x0399, 0x0308, 0x0342}, {0x0399, 0x0308, 0x0342}},
    {0x1fe2, {0x03a5, 0x0308, 0x0300}, {0x03a5, 0x0308, 0x0300}},
    {0x1fe3, {0x03a5, 0x0308, 0x0301}, {0x03a5, 0x0308, 0x0301}},
    {0x1fe4, {0x03a1, 0x0313, 0}, {0x03a1, 0x0313, 0}},
    {0x1fe6, {0x03a5, 0x0342, 0}, {0x03a5, 0x0342, 0}},
    {0x1fe7, {0x03a5, 0x0308, 0x0342}, {0x03a5, 0x0308, 0x0342}},
    {0x1ff2, {0x1ffa, 0x0399, 0}, {0x1ffa, 0x0345, 0}},
    {0x1ff3, {0x03a9, 0x0399, 0}, {0x1ffc, 0, 0}},
    {0x1ff4, {0x038f, 0x0399, 0}, {0x038f, 0x0345, 0}},
    {0x1ff6, {0x03a9, 0x0342, 0}, {0x03a9, 0x0342, 0}},
    {0x1ff7, {0x03a9, 0x0342, 0x0399}, {0x03a9, 0x0342, 0x0345}},
    {0x1ffc, {0x03a9, 0x0399, 0}, {0x1ffc, 0, 0}},
    {0xfb00, {0x0046, 0x0046, 0}, {0x0046, 0x0066, 0}},
    {0xfb01, {0x0046, 0x0049, 0}, {0x0046, 0x0069, 0}},
    {0xfb02, {0x0046, 0x004c, 0}, {0x0046, 0x006c, 0}},
    {0xfb03, {0x0046, 0x0046, 0x0049}, {0x0046, 0x0066, 0x0069}},
    {0xfb04, {0x0046, 0x0046, 0x004c}, {0x0046, 0x0066, 0x006c}},
    {0xfb05, {0x0053, 0x0054, 0}, {0x0053, 0x0074, 0}},
    {0xfb06, {0x0053, 0x0054, 0}, {0x0053, 0x0074, 0}},
    {0xfb13, {0x0544, 0x0546, 0}, {0x0544, 0x0576, 0}},
    {0xfb14, {0x0544, 0x0535, 0}, {0x0544, 0x0565, 0}},
    {0xfb15, {0x0544, 0x053b, 0}, {0x0544, 0x056b, 0}},
    {0xfb16, {0x054e, 0x0546, 0}, {0x054e, 0x0576, 0}},
    {0xfb17, {0x0544, 0x053d, 0}, {0x0544, 0x056d, 0}},
};

const SpecialCase* find_special(uint32_t code) {
    const SpecialCase* at =
        std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), code,
                         [](const SpecialCase& row, uint32_t c) { return row.code < c; });
    return at != std::end(kSpecialCases) && at->code == code ? at : nullptr;
}

void append_all(std::string& out, const uint16_t (&codes)[3]) {
    for (uint16_t code : codes) {
        if (code != 0) append_utf8(out, code);
    }
}

utf8proc_category_t category(uint32_t code) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool in(uint32_t code, uint32_t low, uint32_t high) {
    return code >= low && code <= high;
}

}  // namespace

bool is_space(uint32_t code) {
    return in(code, 0x09, 0x0d) || in(code, 0x1c, 0x20) || code == 0x85 || code == 0xa0 ||
           code == 0x1680 || in(code, 0x2000, 0x200a) || code == 0x2028 || code == 0x2029 ||
           code == 0x202f || code == 0x205f || code == 0x3000;
}

bool is_alpha(uint32_t code) {
    utf8proc_category_t c = category(code);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_LO;
}

bool is_decimal(uint32_t code) {
    return category(code) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(uint32_t code) {
    return is_decimal(code) || code == 0xb2 || code == 0xb3 || code == 0xb9 || code == 0x2070 ||
           in(code, 0x2074, 0x2079) || in(code, 0x2080, 0x2089) || in(code, 0x2460, 0x2468) ||
           in(code, 0x2474, 0x247c) || in(code, 0x2488, 0x2490) || in(code, 0x2776, 0x277e);
}

bool is_numeric(uint32_t code) {
    utf8proc_category_t c = category(code);
    constexpr std::u32string_view kHanNumbers =
        U"〇一二三四五六七八九十百千万萬億亿兆零壹貳叁參肆伍陸柒捌玖拾佰仟";
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO ||
           kHanNumbers.find(static_cast<char32_t>(code)) != std::u32string_view::npos;
}

bool is_lower(uint32_t code) {
    if (code < 0x80) return in(code, 'a', 'z');
    return category(code) == UTF8PROC_CATEGORY_LL ||
           (utf8proc_islower(static_cast<utf8proc_int32_t>(code)) != 0 && !is_title(code));
}

bool is_upper(uint32_t code) {
    if (code < 0x80) return in(code, 'A', 'Z');
    return category(code) == UTF8PROC_CATEGORY_LU ||
           (utf8proc_isupper(static_cast<utf8proc_int32_t>(code)) != 0 && !is_title(code));
}

bool is_title(uint32_t code) {
    return category(code) == UTF8PROC_CATEGORY_LT;
}

bool is_cased(uint32_t code) {
    return is_lower(code) || is_upper(code) || is_title(code);
}

bool is_case_ignorable(uint32_t code) {
    switch (category(code)) {
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_SK:
            return true;
        default:
            return code == '\'' || code == '.' || code == ':' || code == 0xb7 || code == 0x387 ||
                   code == 0x2018 || code == 0x2019 || code == 0x2024 || code == 0x2027;
    }
}

bool is_printable(uint32_t code) {
    if (code < 0x80) return code >= 0x20 && code != 0x7f;
    switch (category(code)) {
        case UTF8PROC_CATEGORY_CC:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_CS:
        case UTF8PROC_CATEGORY_CO:
        case UTF8PROC_CATEGORY_CN:
        case UTF8PROC_CATEGORY_ZL:
        case UTF8PROC_CATEGORY_ZP:
        case UTF8PROC_CATEGORY_ZS:
            return false;
        default:
            return true;
    }
}

bool is_identifier_part(uint32_t code) {
    if (code < 0x80) {
        return in(code, 'a', 'z') || in(code, 'A', 'Z') || in(code, '0', '9') || code == '_';
    }
    switch (category(code)) {
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_PC:
            return true;
        default:
            return is_alpha(code);
    }
}

void append_upper(std::string& out, uint32_t code) {
    if (const SpecialCase* special = find_special(code)) return append_all(out, special->upper);
    append_utf8(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))));
}

void append_title(std::string& out, uint32_t code) {
    if (const SpecialCase* special = find_special(code)) return append_all(out, special->title);
    append_utf8(out, static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code))));
}

void append_lower(std::string& out, uint32_t code) {
    append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
    if (code == 0x130) append_utf8(out, 0x307);  // the only letter with two
}

void append_casefold(std::string& out, uint32_t code) {
    utf8proc_int32_t folded[8];
    utf8proc_ssize_t n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), folded, 8,
                                                 UTF8PROC_CASEFOLD, nullptr);
    if (n <= 0 || n > 8) return append_utf8(out, code);
    for (utf8proc_ssize_t i = 0; i < n; i++) append_utf8(out, static_cast<uint32_t>(folded[i]));
}

bool is_ascii(std::string_view text) {
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

size_t find_invalid_utf8(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
        if (static_cast<unsigned char>(text[at]) < 0x80) {
            at++;
            continue;
        }
        Utf8Char c = decode_utf8(text.substr(at));
        if (!c.valid) return at;
        at += c.n_bytes;
    }
    return std::string_view::npos;
}

}  // namespace ridge::jinja
