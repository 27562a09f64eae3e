#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/str.h"

namespace ridge::jinja {

enum class TokenKind : uint8_t {
    kEnd,
    kText,        // between tags, whitespace control applied
    kPrintBegin,  // {{
    kPrintEnd,
    kBlockBegin,  // {%
    kBlockEnd,
    kName,
    kString,   // text: still with its escapes, without the quotes
    kInteger,  // text: digits
    kFloat,
    kOperator,  // text: + - * / // % ** ~ [ ] ( ) { } == != > >= < <= = . : | , ;
};

struct Token {
    TokenKind kind = TokenKind::kEnd;
    uint32_t line = 1;
    std::string_view text;

    bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
    bool is_op(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
};

// Cuts a template into tokens, one at a time, in linear time. Rules of Jinja with trim_blocks and
// lstrip_blocks: a newline behind a block or comment tag is dropped; so is whitespace before one
// that starts its line; `-` inside a tag strips all whitespace on its side, `+` none.
class Lexer {
  public:
    // `source`: newlines are \n; it outlives the lexer. `name` stands for it in messages.
    Lexer(std::string_view source, std::string_view name) : source_(source), name_(name) {}

    Token next();

  private:
    enum class State { kText, kPrint, kBlock };

    Token next_in_text();
    Token next_in_tag();
    bool lex_text(Token& token);  // false: nothing to give for this stretch
    void skip_comment();
    bool lex_raw(size_t tag, Token& token);
    bool match_raw_begin(size_t tag, size_t& end, char& sign) const;
    std::string_view strip_before_tag(std::string_view text, char sign, bool lstrip) const;
    bool match_tag_end(Token& token);
    Token lex_number();
    Token lex_string();
    Token lex_operator();
    void balance(std::string_view op);

    Token take(TokenKind kind, size_t end);
    void advance(size_t end);
    size_t skip_space(size_t at) const;
    char peek(size_t at) const { return at < source_.size() ? source_[at] : '\0'; }
    bool matches(size_t at, std::string_view what) const {
        return source_.substr(std::min(at, source_.size()), what.size()) == what;
    }
    [[noreturn]] void fail(std::string_view message) const;

    std::string_view source_, name_;
    size_t at_ = 0;
    uint32_t line_ = 1;
    bool line_starting_ = true;  // what was consumed last ended in a newline
    State state_ = State::kText;
    bool tag_is_next_ = false;  // the text before the tag at at_ was given
    std::string brackets_;      // closing brackets that are due
};

// Newlines to \n, and the last one dropped, as Jinja does to its sources.
std::string normalise_source(std::string_view source);

// The value of a string literal; "" in `error` where it is good, else what is wrong with it.
std::string unescape(std::string_view literal, std::string& error);

}  // namespace ridge::jinja
