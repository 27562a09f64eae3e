#include "text/jinja/strings.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace ridge::jinja {
namespace {

constexpr size_t kShortNeedle = 32;  // below: the library's search, at most 32 times the text

uint32_t code_at(std::string_view text, size_t at) {
    return decode_utf8(text.substr(at)).code;
}

// Start of the character that ends at `end`.
size_t previous(std::string_view text, size_t end) {
    size_t at = end - 1;
    while (at > 0 && !is_utf8_start(text[at])) at--;
    return at;
}

void push(Runtime& rt, std::vector<Str>& parts, const Str& part) {
    rt.charge(sizeof(Str));
    parts.push_back(part);
}

}  // namespace

int64_t count_chars(std::string_view text) {
    return std::count_if(text.begin(), text.end(), is_utf8_start);
}

size_t byte_of_char(std::string_view text, int64_t n) {
    size_t at = 0;
    for (; n > 0 && at < text.size(); n--) at += utf8_length(text[at]);
    return at;
}

Finder::Finder(std::string_view needle) : needle_(needle) {
    if (needle.size() <= kShortNeedle) return;
    borders_.assign(needle.size(), 0);
    for (size_t i = 1; i < needle.size(); i++) {
        size_t k = borders_[i - 1];
        while (k > 0 && needle[i] != needle[k]) k = borders_[k - 1];
        borders_[i] = static_cast<uint32_t>(needle[i] == needle[k] ? k + 1 : 0);
    }
}

size_t Finder::find(std::string_view text, size_t from) const {
    if (borders_.empty()) return text.find(needle_, from);
    size_t matched = 0;
    for (size_t i = from; i < text.size(); i++) {
        while (matched > 0 && text[i] != needle_[matched]) matched = borders_[matched - 1];
        if (text[i] == needle_[matched]) matched++;
        if (matched == needle_.size()) return i + 1 - matched;
    }
    return std::string_view::npos;
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
    return Finder(needle).find(text, from);
}

size_t rfind_text(Runtime& rt, std::string_view text, std::string_view needle) {
    if (needle.size() > kShortNeedle) rt.step(text.size() / 64 * (needle.size() / 64 + 1));
    return text.rfind(needle);
}

Str strip(Runtime& rt, const Str& text, const Value& chars, Side side) {
    std::u32string set;
    bool space = chars.is_missing() || chars.is_none();
    if (!space) {
        Str wanted = expect_string(rt, chars, "strip: the argument");
        rt.charge(wanted.size * sizeof(char32_t));
        for (size_t at = 0; at < wanted.size; at += utf8_length(wanted.data[at])) {
            set += static_cast<char32_t>(code_at(wanted.view(), at));
        }
    }
    auto goes = [&](uint32_t code) {
        if (space) return is_space(code);
        rt.step(1 + set.size() / 16);
        return set.find(static_cast<char32_t>(code)) != std::u32string::npos;
    };
    size_t begin = 0, end = text.size;
    if (side != Side::kRight) {
        while (begin < end && goes(code_at(text.view(), begin)))
            begin += utf8_length(text.data[begin]);
    }
    if (side != Side::kLeft) {
        while (end > begin) {
            size_t last = previous(text.view(), end);
            if (!goes(code_at(text.view(), last))) break;
            end = last;
        }
    }
    rt.touch(text.size - (end - begin));
    return text.slice(begin, end);
}

// Splitting. A negative bound is none.

std::vector<Str> split_space(Runtime& rt, const Str& text, int64_t max_splits) {
    std::vector<Str> parts;
    std::string_view view = text.view();
    rt.touch(text.size);
    size_t at = 0;
    auto skip = [&](bool space) {
        while (at < text.size && is_space(code_at(view, at)) == space) at += utf8_length(view[at]);
    };
    while (true) {
        skip(true);
        if (at >= text.size) return parts;
        if (max_splits >= 0 && static_cast<int64_t>(parts.size()) >= max_splits) break;
        size_t begin = at;
        skip(false);
        push(rt, parts, text.slice(begin, at));
    }
    push(rt, parts, text.slice(at, text.size));
    return parts;
}

std::vector<Str> rsplit_space(Runtime& rt, const Str& text, int64_t max_splits) {
    std::vector<Str> parts;
    std::string_view view = text.view();
    rt.touch(text.size);
    size_t end = text.size;
    auto skip = [&](bool space) {
        while (end > 0 && is_space(code_at(view, previous(view, end))) == space) {
            end = previous(view, end);
        }
    };
    while (true) {
        skip(true);
        if (end == 0) break;
        if (max_splits >= 0 && static_cast<int64_t>(parts.size()) >= max_splits) {
            push(rt, parts, text.slice(0, end));
            break;
        }
        size_t stop = end;
        skip(false);
        push(rt, parts, text.slice(end, stop));
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
}

std::vector<Str> split(Runtime& rt, const Str& text, const Str& separator, int64_t max_splits) {
    if (separator.empty()) rt.fail("split: empty separator");
    rt.touch(text.size + separator.size);
    Finder finder(separator.view());
    std::vector<Str> parts;
    size_t begin = 0;
    while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
        size_t at = finder.find(text.view(), begin);
        if (at == std::string_view::npos) break;
        push(rt, parts, text.slice(begin, at));
        begin = at + separator.size;
    }
    push(rt, parts, text.slice(begin, text.size));
    return parts;
}

std::vector<Str> rsplit(Runtime& rt, const Str& text, const Str& separator, int64_t max_splits) {
    if (separator.empty()) rt.fail("rsplit: empty separator");
    rt.touch(text.size);
    std::vector<Str> parts;
    size_t end = text.size;
    while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
        size_t at = rfind_text(rt, text.view().substr(0, end), separator.view());
        if (at == std::string_view::npos) break;
        push(rt, parts, text.slice(at + separator.size, end));
        end = at;
    }
    push(rt, parts, text.slice(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
}

namespace {

bool is_line_break(uint32_t code) {
    return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

}  // namespace

std::vector<Str> split_lines(Runtime& rt, const Str& text, bool keep_ends) {
    std::vector<Str> lines;
    rt.touch(text.size);
    size_t begin = 0;
    for (size_t at = 0; at < text.size;) {
        uint32_t code = code_at(text.view(), at);
        size_t end = at + utf8_length(text.data[at]);
        if (is_line_break(code)) {
            if (code == '\r' && end < text.size && text.data[end] == '\n') end++;
            push(rt, lines, text.slice(begin, keep_ends ? end : at));
            begin = end;
        }
        at = end;
    }
    if (begin < text.size) push(rt, lines, text.slice(begin, text.size));
    return lines;
}

Str replace(Runtime& rt, const Str& text, const Str& from, const Str& to, int64_t max_times) {
    TextBuilder out(rt);
    rt.touch(text.size + from.size);
    size_t begin = 0;
    int64_t times = 0;
    auto more = [&] { return max_times < 0 || times < max_times; };
    if (from.empty()) {  // between all characters, and at both ends
        for (; begin < text.size && more(); times++) {
            rt.step();
            size_t end = begin + utf8_length(text.data[begin]);
            out.append(to);
            out.append(text.slice(begin, end));
            begin = end;
        }
        out.append(text.slice(begin, text.size));
        if (begin == text.size && more()) out.append(to);
        return out.finish();
    }
    Finder finder(from.view());
    for (; more(); times++) {
        size_t at = finder.find(text.view(), begin);
        if (at == std::string_view::npos) break;
        rt.step();
        out.append(text.slice(begin, at));
        out.append(to);
        begin = at + from.size;
    }
    if (times == 0) return text;
    out.append(text.slice(begin, text.size));
    return out.finish();
}

Str join(Runtime& rt, const Str& separator, Items items) {
    TextBuilder out(rt);
    for (size_t i = 0; i < items.size; i++) {
        rt.step();
        if (i > 0) out.append(separator);
        append_text(rt, out, items.data[i]);
    }
    return out.finish();
}

int64_t count_text(Runtime& rt, std::string_view text, std::string_view needle) {
    if (needle.empty()) return count_chars(text) + 1;
    rt.touch(text.size());
    Finder finder(needle);
    int64_t count = 0;
    for (size_t at = finder.find(text, 0); at != std::string_view::npos;
         at = finder.find(text, at + needle.size())) {
        count++;
    }
    return count;
}

// Case.

namespace {

// Maps character by character; `map(out, code, at)` appends what one becomes.
template <class Map>
Str map_chars(Runtime& rt, const Str& text, const Map& map) {
    TextBuilder out(rt);
    std::string piece;
    for (size_t at = 0; at < text.size;) {
        size_t n_bytes = utf8_length(text.data[at]);
        bool trusted = text.trusted_at(at);
        // A stretch of one origin is appended at once.
        map(piece, code_at(text.view(), at), at);
        at += n_bytes;
        if (at >= text.size || text.trusted_at(at) != trusted || piece.size() > 4096) {
            out.append(piece, trusted);
            piece.clear();
        }
    }
    Str result = out.finish();
    result.markup = text.markup;
    return result;
}

// Greek sigma at the end of a word has a form of its own.
bool is_final_sigma(std::string_view text, size_t at) {
    size_t before = at;
    bool cased_before = false;
    while (before > 0) {
        before = previous(text, before);
        uint32_t code = code_at(text, before);
        if (is_case_ignorable(code)) continue;
        cased_before = is_cased(code);
        break;
    }
    if (!cased_before) return false;
    for (size_t after = at + 2; after < text.size(); after += utf8_length(text[after])) {
        uint32_t code = code_at(text, after);
        if (!is_case_ignorable(code)) return !is_cased(code);
    }
    return true;
}

constexpr uint32_t kSigma = 0x3a3, kFinalSigma = 0x3c2;

void append_lower_at(std::string& out, std::string_view text, uint32_t code, size_t at) {
    if (code == kSigma && is_final_sigma(text, at)) return append_utf8(out, kFinalSigma);
    append_lower(out, code);
}

}  // namespace

Str upper(Runtime& rt, const Str& text) {
    return map_chars(rt, text,
                     [](std::string& out, uint32_t code, size_t) { append_upper(out, code); });
}

Str lower(Runtime& rt, const Str& text) {
    return map_chars(rt, text, [&](std::string& out, uint32_t code, size_t at) {
        append_lower_at(out, text.view(), code, at);
    });
}

Str casefold(Runtime& rt, const Str& text) {
    return map_chars(rt, text,
                     [](std::string& out, uint32_t code, size_t) { append_casefold(out, code); });
}

Str swap_case(Runtime& rt, const Str& text) {
    return map_chars(rt, text, [&](std::string& out, uint32_t code, size_t at) {
        if (is_upper(code)) return append_lower_at(out, text.view(), code, at);
        if (is_lower(code)) return append_upper(out, code);
        append_utf8(out, code);
    });
}

Str capitalize(Runtime& rt, const Str& text) {
    return map_chars(rt, text, [&](std::string& out, uint32_t code, size_t at) {
        if (at == 0) return append_title(out, code);
        append_lower_at(out, text.view(), code, at);
    });
}

Str title(Runtime& rt, const Str& text) {
    bool in_word = false;
    return map_chars(rt, text, [&](std::string& out, uint32_t code, size_t at) {
        if (in_word) {
            append_lower_at(out, text.view(), code, at);
        } else {
            append_title(out, code);
        }
        in_word = is_cased(code);
    });
}

Str title_filter(Runtime& rt, const Str& text) {
    bool word_starts = true;
    Str plain = text;
    plain.markup = false;
    return map_chars(rt, plain, [&](std::string& out, uint32_t code, size_t at) {
        bool separates = is_space(code) ||
                         (code < 0x80 && std::string_view("-({[<").find(static_cast<char>(code)) !=
                                             std::string_view::npos);
        if (word_starts || separates) {
            append_upper(out, code);
        } else {
            append_lower_at(out, text.view(), code, at);
        }
        word_starts = separates;
    });
}

// Filling.

namespace {

void append_fill(Runtime& rt, TextBuilder& out, const Str& fill, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        rt.step();
        out.append(fill);
    }
}

}  // namespace

Str pad(Runtime& rt, const Str& text, int64_t width, const Str& fill, Side text_side) {
    int64_t missing = width - count_chars(text.view());
    if (missing <= 0) return text;
    TextBuilder out(rt);
    if (text_side == Side::kRight) append_fill(rt, out, fill, missing);
    out.append(text);
    if (text_side == Side::kLeft) append_fill(rt, out, fill, missing);
    return out.finish();
}

Str center(Runtime& rt, const Str& text, int64_t width, const Str& fill) {
    int64_t missing = width - count_chars(text.view());
    if (missing <= 0) return text;
    int64_t left = missing / 2 + (missing & width & 1);  // as CPython rounds
    TextBuilder out(rt);
    append_fill(rt, out, fill, left);
    out.append(text);
    append_fill(rt, out, fill, missing - left);
    Str result = out.finish();
    result.markup = text.markup;
    return result;
}

Str zero_fill(Runtime& rt, const Str& text, int64_t width) {
    int64_t missing = width - count_chars(text.view());
    if (missing <= 0) return text;
    bool sign = !text.empty() && (text.data[0] == '-' || text.data[0] == '+');
    TextBuilder out(rt);
    out.append(text.slice(0, sign ? 1 : 0));
    append_fill(rt, out, Str::of("0", false), missing);
    out.append(text.slice(sign ? 1 : 0, text.size));
    return out.finish();
}

Str expand_tabs(Runtime& rt, const Str& text, int64_t tab_size) {
    TextBuilder out(rt);
    int64_t column = 0;
    size_t plain = 0;
    for (size_t at = 0; at < text.size; at++) {
        char c = text.data[at];
        if (c == '\t') {
            out.append(text.slice(plain, at));
            plain = at + 1;
            int64_t n = tab_size > 0 ? tab_size - column % tab_size : 0;
            append_fill(rt, out, Str::of(" ", false), n);
            column += n;
        } else if (c == '\n' || c == '\r') {
            column = 0;
        } else if (is_utf8_start(c)) {
            column++;
        }
    }
    out.append(text.slice(plain, text.size));
    return out.finish();
}

Str reverse_text(Runtime& rt, const Str& text) {
    TextBuilder out(rt);
    for (size_t end = text.size; end > 0;) {
        rt.step();
        size_t at = previous(text.view(), end);
        out.append(text.slice(at, end));
        end = at;
    }
    Str result = out.finish();
    result.markup = text.markup;
    return result;
}

Str escape_html(Runtime& rt, const Str& text) {
    Str result = text;
    if (!text.markup && text.view().find_first_of("&<>\"'") != std::string_view::npos) {
        result = map_chars(rt, text, [](std::string& out, uint32_t code, size_t) {
            switch (code) {
                case '&':
                    out += "&amp;";
                    return;
                case '<':
                    out += "&lt;";
                    return;
                case '>':
                    out += "&gt;";
                    return;
                case '"':
                    out += "&#34;";
                    return;
                case '\'':
                    out += "&#39;";
                    return;
                default:
                    append_utf8(out, code);
            }
        });
    }
    result.markup = true;
    return result;
}

// Predicates.

bool all_chars(Runtime& rt, std::string_view text, CharClass wanted) {
    rt.touch(text.size());
    if (wanted == CharClass::kAscii) return is_ascii(text);
    if (text.empty()) return wanted == CharClass::kPrintable;
    for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
        uint32_t code = code_at(text, at);
        bool good = false;
        switch (wanted) {
            case CharClass::kAlnum:
                good = is_alpha(code) || is_numeric(code) || is_digit(code);
                break;
            case CharClass::kAlpha:
                good = is_alpha(code);
                break;
            case CharClass::kDecimal:
                good = is_decimal(code);
                break;
            case CharClass::kDigit:
                good = is_digit(code);
                break;
            case CharClass::kNumeric:
                good = is_numeric(code);
                break;
            case CharClass::kPrintable:
                good = is_printable(code);
                break;
            case CharClass::kSpace:
                good = is_space(code);
                break;
            case CharClass::kAscii:
                break;
        }
        if (!good) return false;
    }
    return true;
}

namespace {

bool all_cased(Runtime& rt, std::string_view text, bool (*wanted)(uint32_t)) {
    rt.touch(text.size());
    bool any = false;
    for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
        uint32_t code = code_at(text, at);
        if (!is_cased(code)) continue;
        if (!wanted(code)) return false;
        any = true;
    }
    return any;
}

}  // namespace

bool is_lower_text(Runtime& rt, std::string_view text) {
    return all_cased(rt, text, is_lower);
}

bool is_upper_text(Runtime& rt, std::string_view text) {
    return all_cased(rt, text, is_upper);
}

bool is_title_text(Runtime& rt, std::string_view text) {
    rt.touch(text.size());
    bool in_word = false, any = false;
    for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
        uint32_t code = code_at(text, at);
        bool starts = is_upper(code) || is_title(code);
        if (starts ? in_word : is_lower(code) && !in_word) return false;
        in_word = is_cased(code);
        any = any || in_word;
    }
    return any;
}

}  // namespace ridge::jinja
