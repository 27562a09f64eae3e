#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "text/jinja/unicode.h"

namespace ridge::jinja {

void Lexer::fail(std::string_view message) const {
    throw Error("{}: line {}: {}", name_, line_, message);
}

void Lexer::advance(size_t end) {
    line_ += static_cast<uint32_t>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                              source_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    if (end > at_) line_starting_ = source_[end - 1] == '\n';
    at_ = end;
}

Token Lexer::take(TokenKind kind, size_t end) {
    Token token{kind, line_, source_.substr(at_, end - at_)};
    advance(end);
    return token;
}

size_t Lexer::skip_space(size_t at) const {
    while (at < source_.size()) {
        Utf8Char c = decode_utf8(source_.substr(at));
        if (!is_space(c.code)) break;
        at += c.n_bytes;
    }
    return at;
}

Token Lexer::next() {
    if (state_ != State::kText) return next_in_tag();
    return next_in_text();
}

Token Lexer::next_in_text() {
    Token token;
    while (!tag_is_next_ && at_ < source_.size()) {
        if (lex_text(token)) return token;
    }
    if (!tag_is_next_) return Token{TokenKind::kEnd, line_, {}};
    tag_is_next_ = false;
    state_ = source_[at_ + 1] == '{' ? State::kPrint : State::kBlock;
    bool sign = peek(at_ + 2) == '-' || peek(at_ + 2) == '+';
    return take(state_ == State::kPrint ? TokenKind::kPrintBegin : TokenKind::kBlockBegin,
                at_ + (sign ? 3 : 2));
}

std::string_view Lexer::strip_before_tag(std::string_view text, char sign, bool lstrip) const {
    if (sign == '-') {
        size_t end = text.size();
        while (end > 0) {
            size_t start = end - 1;
            while (start > 0 && !is_utf8_start(text[start])) start--;
            if (!is_space(decode_utf8(text.substr(start)).code)) break;
            end = start;
        }
        return text.substr(0, end);
    }
    if (sign == '+' || !lstrip) return text;
    size_t line_start = text.rfind('\n') + 1;  // npos + 1 is 0
    if (line_start == 0 && !line_starting_) return text;
    for (size_t at = line_start; at < text.size();) {
        Utf8Char c = decode_utf8(text.substr(at));
        if (!is_space(c.code)) return text;
        at += c.n_bytes;
    }
    return text.substr(0, line_start);
}

// Consumes the text up to the next tag, and comments. Sets tag_is_next_ when a print or block tag
// stands at at_ then. Gives a token when there is text.
bool Lexer::lex_text(Token& token) {
    size_t tag = at_;
    while (tag + 1 < source_.size() &&
           !(source_[tag] == '{' &&
             (source_[tag + 1] == '%' || source_[tag + 1] == '{' || source_[tag + 1] == '#'))) {
        tag++;
    }
    if (tag + 1 >= source_.size()) {
        token = take(TokenKind::kText, source_.size());
        return true;
    }
    size_t raw_end = 0;
    char sign = peek(tag + 2);
    bool raw = source_[tag + 1] == '%' && match_raw_begin(tag, raw_end, sign);
    std::string_view text = source_.substr(at_, tag - at_);
    text = strip_before_tag(text, sign, source_[tag + 1] != '{');
    token = Token{TokenKind::kText, line_, text};
    advance(tag);
    if (raw) {
        // Text before a raw block and the block's own are two tokens: give the first, keep the tag.
        if (!text.empty()) return true;
        return lex_raw(raw_end, token);
    }
    if (source_[tag + 1] == '#') {
        skip_comment();
    } else {
        tag_is_next_ = true;
    }
    return !text.empty();
}

bool Lexer::match_raw_begin(size_t tag, size_t& end, char& sign) const {
    size_t at = tag + 2;
    sign = peek(at);
    if (sign == '-' || sign == '+') at++;
    at = skip_space(at);
    if (!matches(at, "raw")) return false;
    at = skip_space(at + 3);
    if (matches(at, "-%}")) {
        end = skip_space(at + 3);
        return true;
    }
    end = at + 2;
    return matches(at, "%}");
}

bool Lexer::lex_raw(size_t begin, Token& token) {
    advance(begin);
    if (begin == source_.size()) return false;  // as Jinja has it, no error
    for (size_t tag = source_.find("{%", begin); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 2)) {
        size_t at = tag + 2;
        char sign = peek(at);
        if (sign == '-' || sign == '+') at++;
        at = skip_space(at);
        if (!matches(at, "endraw")) continue;
        at = skip_space(at + 6);
        size_t end;
        if (matches(at, "-%}")) {
            end = skip_space(at + 3);
        } else if (matches(at, "+%}")) {
            end = at + 3;
        } else if (matches(at, "%}")) {
            end = at + 2 + (peek(at + 2) == '\n' ? 1 : 0);
        } else {
            continue;
        }
        token = Token{TokenKind::kText, line_,
                      strip_before_tag(source_.substr(begin, tag - begin), sign, true)};
        advance(end);
        return !token.text.empty();
    }
    fail("missing end of raw block");
}

void Lexer::skip_comment() {
    size_t begin = at_ + 2;
    if (peek(begin) == '-' || peek(begin) == '+') begin++;
    if (begin == source_.size()) return advance(begin);  // as Jinja has it, no error
    size_t close = source_.find("#}", begin);
    if (close == std::string_view::npos) fail("missing end of comment");
    size_t end = close + 2;
    char sign = close > begin ? source_[close - 1] : '\0';
    if (sign == '-') {
        end = skip_space(end);
    } else if (sign != '+' && peek(end) == '\n') {
        end++;
    }
    advance(end);
}

bool Lexer::match_tag_end(Token& token) {
    if (!brackets_.empty()) return false;
    bool print = state_ == State::kPrint;
    std::string_view close = print ? "}}" : "%}";
    size_t end;
    if (peek(at_) == '-' && matches(at_ + 1, close)) {
        end = skip_space(at_ + 3);
    } else if (!print && peek(at_) == '+' && matches(at_ + 1, close)) {
        end = at_ + 3;
    } else if (matches(at_, close)) {
        end = at_ + 2;
        if (!print && peek(end) == '\n') end++;
    } else {
        return false;
    }
    token = take(print ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, end);
    state_ = State::kText;
    return true;
}

Token Lexer::next_in_tag() {
    Token token;
    // The end of a tag is tried first: whitespace is never part of it on this side.
    while (true) {
        if (match_tag_end(token)) return token;
        size_t end = skip_space(at_);
        if (end == at_) break;
        advance(end);
    }
    if (at_ >= source_.size()) {
        token.line = line_;
        return token;
    }
    char c = source_[at_];
    if (c >= '0' && c <= '9') return lex_number();
    if (c == '"' || c == '\'') return lex_string();
    size_t end = at_;
    while (end < source_.size()) {
        Utf8Char part = decode_utf8(source_.substr(end));
        if (!is_identifier_part(part.code)) break;
        end += part.n_bytes;
    }
    if (end > at_) return take(TokenKind::kName, end);
    return lex_operator();
}

namespace {

bool digit_of(char c, int base) {
    if (c >= '0' && c <= '9') return c - '0' < base;
    char lower = static_cast<char>(c | 0x20);
    return base == 16 && lower >= 'a' && lower <= 'f';
}

// End of digits that single underscores may part; at where there is none.
size_t scan_digits(std::string_view text, size_t at, int base) {
    size_t end = at;
    while (end < text.size()) {
        size_t digit = end + (end > at && text[end] == '_' ? 1 : 0);
        if (digit >= text.size() || !digit_of(text[digit], base)) break;
        end = digit + 1;
    }
    return end;
}

}  // namespace

Token Lexer::lex_number() {
    size_t end = scan_digits(source_, at_, 10);
    bool is_float = false;
    if (at_ == 0 || source_[at_ - 1] != '.') {  // a.0.1 takes items: not a float
        size_t fraction = end;
        if (peek(end) == '.') {
            size_t digits = scan_digits(source_, end + 1, 10);
            if (digits > end + 1) fraction = digits;
        }
        size_t exponent = fraction;
        if ((peek(exponent) | 0x20) == 'e') {
            exponent++;
            if (peek(exponent) == '+' || peek(exponent) == '-') exponent++;
            size_t digits = scan_digits(source_, exponent, 10);
            exponent = digits > exponent ? digits : fraction;
        }
        is_float = exponent > end;
        if (is_float) end = exponent;
    }
    if (is_float) return take(TokenKind::kFloat, end);
    if (source_[at_] == '0') {
        char mark = static_cast<char>(peek(at_ + 1) | 0x20);
        int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
        if (base != 0) {
            size_t start = at_ + 2 + (peek(at_ + 2) == '_' ? 1 : 0);
            size_t digits = scan_digits(source_, start, base);
            if (digits > start) return take(TokenKind::kInteger, digits);
        }
        end = at_ + 1;  // 0, 00, 0_0; "012" is two numbers, which no rule accepts
        while (peek(end) == '0' || (peek(end) == '_' && peek(end + 1) == '0')) end++;
    }
    return take(TokenKind::kInteger, end);
}

Token Lexer::lex_string() {
    char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("string without an end");
    Token token{TokenKind::kString, line_, source_.substr(at_ + 1, end - at_ - 1)};
    advance(end + 1);
    return token;
}

void Lexer::balance(std::string_view op) {
    switch (op[0]) {
        case '(':
            brackets_ += ')';
            return;
        case '[':
            brackets_ += ']';
            return;
        case '{':
            brackets_ += '}';
            return;
        case ')':
        case ']':
        case '}':
            break;
        default:
            return;
    }
    if (brackets_.empty()) fail("unexpected '" + std::string(op) + "'");
    if (brackets_.back() != op[0]) {
        fail("unexpected '" + std::string(op) + "', expected '" + brackets_.back() + "'");
    }
    brackets_.pop_back();
}

Token Lexer::lex_operator() {
    constexpr std::array<std::string_view, 6> kLong = {"//", "**", "==", "!=", ">=", "<="};
    for (std::string_view op : kLong) {
        if (matches(at_, op)) return take(TokenKind::kOperator, at_ + 2);
    }
    constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    if (kShort.find(source_[at_]) == std::string_view::npos) {
        Utf8Char c = decode_utf8(source_.substr(at_));
        fail("unexpected character '" + printable(source_.substr(at_, c.n_bytes)) + "'");
    }
    balance(source_.substr(at_, 1));
    return take(TokenKind::kOperator, at_ + 1);
}

std::string normalise_source(std::string_view source) {
    std::string out;
    out.reserve(source.size());
    for (size_t at = 0; at < source.size(); at++) {
        if (source[at] == '\r') {
            if (at + 1 < source.size() && source[at + 1] == '\n') at++;
            out += '\n';
        } else {
            out += source[at];
        }
    }
    if (!out.empty() && out.back() == '\n') out.pop_back();
    return out;
}

namespace {

// A backslash before a character beyond ASCII: Jinja escapes that character before it reads
// escapes, so that both stay visible.
void append_escaped(std::string& out, uint32_t code) {
    out += code < 0x100     ? fmt::format("\\x{:02x}", code)
           : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                            : fmt::format("\\U{:08x}", code);
}

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Reads n hexadecimal digits behind the escape's letter.
bool read_hex(std::string_view literal, size_t& at, int n, uint32_t& code) {
    code = 0;
    for (int i = 0; i < n; i++, at++) {
        int digit = at < literal.size() ? hex_value(literal[at]) : -1;
        if (digit < 0) return false;
        code = code << 4 | static_cast<uint32_t>(digit);
    }
    return true;
}

void append_octal(std::string_view literal, size_t& at, std::string& out) {
    uint32_t code = 0;
    for (int i = 0; i < 3 && at < literal.size() && literal[at] >= '0' && literal[at] <= '7';
         i++, at++) {
        code = code * 8 + static_cast<uint32_t>(literal[at] - '0');
    }
    append_utf8(out, code);
}

std::string append_code_escape(std::string_view literal, size_t& at, char kind, std::string& out) {
    uint32_t code;
    if (!read_hex(literal, at, kind == 'x' ? 2 : kind == 'u' ? 4 : 8, code)) {
        return fmt::format("truncated \\{} escape in a string", kind);
    }
    if (code > 0x10ffff) return "escape in a string beyond U+10FFFF";
    if (code >= 0xd800 && code < 0xe000) return "surrogate escape in a string";
    append_utf8(out, code);
    return "";
}

}  // namespace

std::string unescape(std::string_view literal, std::string& error) {
    constexpr std::string_view kLetters = "\\'\"abfnrtv";
    constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    std::string out;
    error.clear();
    for (size_t at = 0; at < literal.size() && error.empty();) {
        if (literal[at] != '\\' || at + 1 >= literal.size()) {
            out += literal[at++];
            continue;
        }
        char kind = literal[at + 1];
        size_t simple = kLetters.find(kind);
        if (simple != std::string_view::npos) {
            out += kMeanings[simple];
            at += 2;
        } else if (kind == '\n') {
            at += 2;
        } else if (kind >= '0' && kind <= '7') {
            append_octal(literal, ++at, out);
        } else if (kind == 'x' || kind == 'u' || kind == 'U') {
            at += 2;
            error = append_code_escape(literal, at, kind, out);
        } else if (kind == 'N') {
            error = "\\N escapes are not supported";
        } else if (static_cast<unsigned char>(kind) >= 0x80) {
            Utf8Char c = decode_utf8(literal.substr(at + 1));
            append_escaped(out, c.code);
            at += 1 + c.n_bytes;
        } else {
            out += literal[at++];  // an unknown escape stays as it is
        }
    }
    return out;
}

}  // namespace ridge::jinja
