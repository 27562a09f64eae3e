#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace ridge::jinja {

constexpr int kMaxParserDepth = 800;  // levels of recursion: about six for a pair of parentheses
constexpr int kMaxNodeDepth = 200;    // levels of one expression
constexpr size_t kMaxNodes = 100'000;

// Recursive descent over the lexer's tokens, rule for rule as Jinja's own parser. Expressions are
// in parse_expr.cpp, statements in parse_stmt.cpp.
class Parser {
  public:
    explicit Parser(Program& program);
    void parse_template();

  private:
    // Statements.
    using EndTags = std::initializer_list<std::string_view>;
    Block parse_body(EndTags ends);  // after a tag's %}: up to, not including, one of the end tags
    Block parse_until(EndTags ends);
    Stmt* parse_statement();
    Stmt* parse_for();
    Stmt* parse_if();
    Stmt* parse_set();
    Stmt* parse_with();
    Stmt* parse_macro();
    Stmt* parse_call_block();
    Stmt* parse_filter_block();
    Stmt* parse_generation();
    Stmt* parse_loop_control(StmtKind kind);
    void parse_print_statement(Block& body);
    void parse_signature(MacroDef& macro);
    void parse_macro_body(MacroDef& macro, std::string_view end);
    Expr* parse_target(bool with_namespace, std::string_view end_name);
    void check_target(Expr* target);

    // Expressions.
    Expr* parse_tuple(bool with_conditional, std::string_view end_name, bool parenthesised);
    Expr* parse_target_tuple(bool with_namespace, std::string_view end_name);
    Expr* parse_expression(bool with_conditional = true);
    Expr* parse_conditional();
    Expr* parse_binary(int min_level);
    Expr* parse_compare(Expr* first);
    Expr* parse_concat(Expr* first);
    Expr* parse_unary(bool with_filter);
    Expr* parse_primary(bool with_namespace);
    Expr* parse_name(bool with_namespace);
    Expr* parse_number();
    Expr* parse_string();
    Expr* parse_list();
    Expr* parse_dict();
    Expr* parse_postfix(Expr* node);
    Expr* parse_filters_and_tests(Expr* node);
    Expr* parse_dot(Expr* node);
    Expr* parse_brackets(Expr* node);
    Expr* parse_slice_or_index(Expr* node, bool& is_slice);
    Expr* parse_call(Expr* callee);
    std::unique_ptr<CallArgs> parse_call_args(Expr* owner);
    Expr* parse_filter(Expr* node, bool in_place);
    Expr* parse_test(Expr* node);
    Str parse_dotted_name();

    // Nodes.
    Expr* make(ExprKind kind, uint32_t line);
    Stmt* make(StmtKind kind, uint32_t line);
    void adopt(Expr* parent, Expr* child);  // keeps depth, and its bound
    void check_unknown();
    void note_load(NameId id);
    void note_store(NameId id);

    // Tokens.
    void skip();
    bool skip_if_op(std::string_view op);
    bool skip_if_name(std::string_view name);
    void expect_op(std::string_view op);
    void expect_name(std::string_view name);
    std::string_view expect_any_name();
    void expect_block_end();
    std::string describe(const Token& token) const;
    template <class... A>
    [[noreturn]] void fail(uint32_t line, fmt::format_string<A...> format, A&&... args) const {
        throw Error("{}: line {}: {}", program_.name, line,
                    fmt::format(format, std::forward<A>(args)...));
    }

    // Counts one level of recursion while it lives.
    class Deeper {
      public:
        explicit Deeper(Parser& parser) : parser_(parser) {
            if (++parser_.depth_ > kMaxParserDepth) {
                parser_.fail(parser_.token_.line, "nested too deep");
            }
        }
        ~Deeper() { parser_.depth_--; }
        Deeper(const Deeper&) = delete;
        Deeper& operator=(const Deeper&) = delete;

      private:
        Parser& parser_;
    };

    Program& program_;
    Lexer lexer_;
    Token token_, ahead_;
    int depth_ = 0;
    int loops_ = 0;      // loops around, inside the current macro: break and continue need one
    int for_depth_ = 0;  // loops around, through macros: `loop` cannot be assigned
    // Filters and tests that nobody knows. An error at once, but for those in an `if` or a
    // conditional expression: these only when they are reached.
    struct Unknown {
        uint32_t line;
        std::string_view what;
        Str name;
    };
    std::vector<Unknown> unknown_;
    int ifs_ = 0;
    // Macros around, innermost last: which of caller, kwargs and varargs their bodies read before
    // they set them.
    struct Special {
        std::array<bool, 3> used{}, stored{};
    };
    std::vector<Special> specials_;
    std::array<NameId, 3> special_ids_;
};

}  // namespace ridge::jinja
