#include <algorithm>
#include <unordered_set>

#include "base/printable.h"
#include "text/jinja/parser.h"
#include "text/jinja/scopes.h"
#include "text/jinja/unicode.h"

namespace ridge::jinja {

NameId Program::id_of(std::string_view variable) {
    auto [at, is_new] = ids.try_emplace(std::string(variable), static_cast<NameId>(names.size()));
    if (is_new) {
        names.push_back(at->first);
        loaded.push_back(false);
    }
    return at->second;
}

std::unique_ptr<Program> parse(std::string source, std::string name) {
    auto program = std::make_unique<Program>();
    program->name = printable(name);
    if (source.size() > kMaxTemplateBytes) {
        throw Error("{}: the template has {} bytes, expected at most {}", program->name,
                    source.size(), kMaxTemplateBytes);
    }
    size_t bad = find_invalid_utf8(source);
    if (bad != std::string::npos) {
        throw Error("{}: the template is not UTF-8 at byte {}", program->name, bad);
    }
    program->source = normalise_source(source);
    Parser(*program).parse_template();
    find_unset_names(*program);
    return program;
}

Parser::Parser(Program& program)
    : program_(program),
      lexer_(program.source, program.name),
      special_ids_{program.id_of("caller"), program.id_of("kwargs"), program.id_of("varargs")} {
    token_ = lexer_.next();
    ahead_ = lexer_.next();
}

void Parser::parse_template() {
    program_.body = parse_until({});
}

// Tokens.

void Parser::skip() {
    token_ = ahead_;
    if (ahead_.kind != TokenKind::kEnd) ahead_ = lexer_.next();
}

bool Parser::skip_if_op(std::string_view op) {
    if (!token_.is_op(op)) return false;
    skip();
    return true;
}

bool Parser::skip_if_name(std::string_view name) {
    if (!token_.is_name(name)) return false;
    skip();
    return true;
}

void Parser::expect_op(std::string_view op) {
    if (!skip_if_op(op)) fail(token_.line, "expected '{}', got {}", op, describe(token_));
}

void Parser::expect_name(std::string_view name) {
    if (!skip_if_name(name)) fail(token_.line, "expected '{}', got {}", name, describe(token_));
}

std::string_view Parser::expect_any_name() {
    if (token_.kind != TokenKind::kName) {
        fail(token_.line, "expected a name, got {}", describe(token_));
    }
    std::string_view name = token_.text;
    skip();
    return name;
}

void Parser::expect_block_end() {
    if (token_.kind != TokenKind::kBlockEnd) {
        fail(token_.line, "expected '%}}', got {}", describe(token_));
    }
    skip();
}

std::string Parser::describe(const Token& token) const {
    switch (token.kind) {
        case TokenKind::kEnd:
            return "the end of the template";
        case TokenKind::kText:
            return "text";
        case TokenKind::kPrintBegin:
            return "'{{'";
        case TokenKind::kPrintEnd:
            return "'}}'";
        case TokenKind::kBlockBegin:
            return "'{%'";
        case TokenKind::kBlockEnd:
            return "'%}'";
        case TokenKind::kString:
            return "a string";
        case TokenKind::kName:
        case TokenKind::kInteger:
        case TokenKind::kFloat:
        case TokenKind::kOperator:
            break;
    }
    return "'" + printable(token.text, 60) + "'";
}

// Nodes.

Expr* Parser::make(ExprKind kind, uint32_t line) {
    if (program_.exprs.size() >= kMaxNodes) {
        fail(line, "the template has more than {} expressions", kMaxNodes);
    }
    Expr& node = program_.exprs.emplace_back();
    node.kind = kind;
    node.line = line;
    return &node;
}

Stmt* Parser::make(StmtKind kind, uint32_t line) {
    if (program_.stmts.size() >= kMaxNodes) {
        fail(line, "the template has more than {} statements", kMaxNodes);
    }
    Stmt& node = program_.stmts.emplace_back();
    node.kind = kind;
    node.line = line;
    return &node;
}

void Parser::adopt(Expr* parent, Expr* child) {
    if (child->depth >= kMaxNodeDepth) {
        fail(child->line, "an expression is nested more than {} levels deep", kMaxNodeDepth);
    }
    parent->depth = std::max<uint16_t>(parent->depth, static_cast<uint16_t>(child->depth + 1));
    if (child->kind == ExprKind::kName) note_load(child->name);
}

void Parser::check_unknown() {
    if (ifs_ == 0 && !unknown_.empty()) {
        const Unknown& first = unknown_[0];
        fail(first.line, "unknown {} '{}'", first.what, printable(first.name.view(), 60));
    }
    unknown_.clear();
}

void Parser::note_load(NameId id) {
    program_.loaded[id] = true;
    for (size_t i = 0; i < special_ids_.size(); i++) {
        if (id != special_ids_[i]) continue;
        for (Special& special : specials_) {
            if (!special.stored[i]) special.used[i] = true;
        }
    }
}

void Parser::note_store(NameId id) {
    for (size_t i = 0; i < special_ids_.size(); i++) {
        if (id != special_ids_[i]) continue;
        for (Special& special : specials_) special.stored[i] = true;
    }
}

// Statements.

Block Parser::parse_body(EndTags ends) {
    skip_if_op(":");
    expect_block_end();
    return parse_until(ends);
}

Block Parser::parse_until(EndTags ends) {
    Deeper deeper(*this);
    Block body;
    while (token_.kind != TokenKind::kEnd) {
        if (token_.kind == TokenKind::kText) {
            Stmt* text = make(StmtKind::kText, token_.line);
            text->text = Str::of(token_.text, true);
            body.push_back(text);
            skip();
        } else if (token_.kind == TokenKind::kPrintBegin) {
            skip();
            Stmt* print = make(StmtKind::kPrint, token_.line);
            print->value = parse_tuple(true, "", false);
            if (token_.kind != TokenKind::kPrintEnd) {
                fail(token_.line, "expected '}}}}', got {}", describe(token_));
            }
            skip();
            check_unknown();
            body.push_back(print);
        } else {
            skip();  // {%
            for (std::string_view end : ends) {
                if (token_.is_name(end)) return body;
            }
            if (token_.is_name("print")) {
                parse_print_statement(body);
            } else {
                body.push_back(parse_statement());
            }
            check_unknown();
            expect_block_end();
        }
    }
    if (ends.size() > 0) {
        fail(token_.line, "the template ends where '{}' is due", *ends.begin());
    }
    return body;
}

Stmt* Parser::parse_statement() {
    Deeper deeper(*this);
    if (token_.kind != TokenKind::kName) {
        fail(token_.line, "expected a statement, got {}", describe(token_));
    }
    std::string_view tag = token_.text;
    if (tag == "for") return parse_for();
    if (tag == "if") return parse_if();
    if (tag == "set") return parse_set();
    if (tag == "with") return parse_with();
    if (tag == "macro") return parse_macro();
    if (tag == "call") return parse_call_block();
    if (tag == "filter") return parse_filter_block();
    if (tag == "generation") return parse_generation();
    if (tag == "break") return parse_loop_control(StmtKind::kBreak);
    if (tag == "continue") return parse_loop_control(StmtKind::kContinue);
    for (std::string_view known :
         {"block", "extends", "include", "import", "from", "autoescape", "trans", "do", "debug"}) {
        if (tag == known) fail(token_.line, "the statement '{}' is not supported", tag);
    }
    fail(token_.line, "unknown statement '{}'", printable(tag, 60));
}

void Parser::parse_print_statement(Block& body) {
    uint32_t line = token_.line;
    skip();
    for (bool first = true; token_.kind != TokenKind::kBlockEnd; first = false) {
        if (!first) expect_op(",");
        Stmt* print = make(StmtKind::kPrint, line);
        print->value = parse_expression();
        body.push_back(print);
    }
}

Stmt* Parser::parse_for() {
    Stmt* loop = make(StmtKind::kFor, token_.line);
    skip();
    for_depth_++;
    loop->target = parse_target(false, "in");
    expect_name("in");
    loop->value = parse_tuple(false, "recursive", false);
    if (skip_if_name("if")) loop->test = parse_expression();
    loop->recursive = skip_if_name("recursive");
    check_unknown();
    loops_++;
    loop->body = parse_body({"endfor", "else"});
    loops_--;
    bool has_else = token_.is_name("else");
    skip();
    if (has_else) {
        loop->otherwise = parse_body({"endfor"});
        skip();
    }
    for_depth_--;
    return loop;
}

Stmt* Parser::parse_if() {
    Stmt* chain = make(StmtKind::kIf, token_.line);
    ifs_++;
    std::string_view tag = "if";
    do {
        skip();
        Expr* test = nullptr;
        if (tag != "else") {
            test = parse_tuple(false, "", false);
            unknown_.clear();
        }
        chain->branches.push_back({test, {}});
        Block body = tag == "else" ? parse_body({"endif"}) : parse_body({"endif", "elif", "else"});
        chain->branches.back().body = std::move(body);
        tag = token_.text;
    } while (tag != "endif");
    skip();
    ifs_--;
    return chain;
}

Stmt* Parser::parse_set() {
    uint32_t line = token_.line;
    skip();
    Expr* target = parse_target(true, "");
    Stmt* set;
    if (skip_if_op("=")) {
        set = make(StmtKind::kSet, line);
        set->value = parse_tuple(true, "", false);
    } else {
        set = make(StmtKind::kSetBlock, line);
        set->value = parse_filter(nullptr, false);
        check_unknown();
        set->body = parse_body({"endset"});
        skip();
    }
    set->target = target;
    return set;
}

Stmt* Parser::parse_with() {
    Stmt* with = make(StmtKind::kWith, token_.line);
    skip();
    while (token_.kind != TokenKind::kBlockEnd) {
        if (!with->withs.empty()) expect_op(",");
        Expr* target = parse_target(false, "");
        expect_op("=");
        Expr* value = parse_expression();
        with->withs.emplace_back(target, value);
    }
    check_unknown();
    with->body = parse_body({"endwith"});
    skip();
    return with;
}

// (a, b=1): names, and values for those that are not given.
void Parser::parse_signature(MacroDef& macro) {
    expect_op("(");
    std::unordered_set<NameId> ids;
    while (!token_.is_op(")")) {
        if (!macro.parameters.empty()) expect_op(",");
        uint32_t line = token_.line;
        std::string_view name = expect_any_name();
        MacroDef::Parameter parameter{program_.id_of(name), Str::of(name, true), nullptr};
        if (!ids.insert(parameter.id).second) {
            fail(line, "parameter '{}' twice", printable(name, 60));
        }
        if (skip_if_op("=")) {
            parameter.fallback = parse_expression();
        } else if (!macro.parameters.empty() && macro.parameters.back().fallback != nullptr) {
            fail(line, "parameter '{}' without a value behind one with", printable(name, 60));
        }
        macro.parameters.push_back(parameter);
    }
    expect_op(")");
}

void Parser::parse_macro_body(MacroDef& macro, std::string_view end) {
    int loops = std::exchange(loops_, 0);
    specials_.emplace_back();
    macro.body = parse_body({end});
    skip();
    Special special = specials_.back();
    specials_.pop_back();
    loops_ = loops;
    for (const MacroDef::Parameter& parameter : macro.parameters) {
        for (size_t i = 0; i < special_ids_.size(); i++) {
            if (parameter.id != special_ids_[i]) continue;
            if (i == 0 && special.used[0] && parameter.fallback == nullptr) {
                fail(token_.line, "a parameter 'caller' needs a default value");
            }
            special.used[i] = false;
        }
    }
    macro.uses_caller = special.used[0];
    macro.uses_kwargs = special.used[1];
    macro.uses_varargs = special.used[2];
}

Stmt* Parser::parse_macro() {
    Stmt* node = make(StmtKind::kMacro, token_.line);
    skip();
    node->macro = std::make_unique<MacroDef>();
    std::string_view name = expect_any_name();
    node->macro->name = Str::of(name, true);
    node->macro->id = program_.id_of(name);
    note_store(node->macro->id);
    parse_signature(*node->macro);
    check_unknown();
    parse_macro_body(*node->macro, "endmacro");
    return node;
}

Stmt* Parser::parse_call_block() {
    Stmt* node = make(StmtKind::kCall, token_.line);
    skip();
    node->macro = std::make_unique<MacroDef>();
    if (token_.is_op("(")) parse_signature(*node->macro);
    node->value = parse_expression();
    if (node->value->kind != ExprKind::kCall) fail(node->line, "expected a call");
    check_unknown();
    parse_macro_body(*node->macro, "endcall");
    return node;
}

Stmt* Parser::parse_filter_block() {
    Stmt* node = make(StmtKind::kFilterBlock, token_.line);
    skip();
    node->value = parse_filter(nullptr, true);
    check_unknown();
    node->body = parse_body({"endfilter"});
    skip();
    return node;
}

// {% generation %}: marks what the assistant wrote, for training; here its body
// alone counts.
Stmt* Parser::parse_generation() {
    Stmt* node = make(StmtKind::kGeneration, token_.line);
    skip();
    int loops = std::exchange(loops_, 0);
    node->body = parse_body({"endgeneration"});
    loops_ = loops;
    skip();
    return node;
}

Stmt* Parser::parse_loop_control(StmtKind kind) {
    if (loops_ == 0) fail(token_.line, "'{}' outside a loop", token_.text);
    Stmt* node = make(kind, token_.line);
    skip();
    return node;
}

// What can stand left of `=` or between `for` and `in`: names, tuples of them,
// ns.name for `set`.
Expr* Parser::parse_target(bool with_namespace, std::string_view end_name) {
    Expr* target = parse_target_tuple(with_namespace, end_name);
    check_target(target);
    return target;
}

Expr* Parser::parse_target_tuple(bool with_namespace, std::string_view end_name) {
    Deeper deeper(*this);
    uint32_t line = token_.line;
    std::vector<Expr*> items;
    bool is_tuple = false;
    auto at_end = [&] {
        return token_.kind == TokenKind::kPrintEnd || token_.kind == TokenKind::kBlockEnd ||
               token_.is_op(")") || (!end_name.empty() && token_.is_name(end_name));
    };
    while (true) {
        if (!items.empty()) expect_op(",");
        if (at_end()) break;
        items.push_back(parse_primary(with_namespace));
        if (!token_.is_op(",")) break;
        is_tuple = true;
    }
    if (!is_tuple && !items.empty()) return items[0];
    if (!is_tuple) fail(token_.line, "expected a name, got {}", describe(token_));
    Expr* tuple = make(ExprKind::kTuple, line);
    tuple->items = std::move(items);
    return tuple;
}

void Parser::check_target(Expr* target) {
    Deeper deeper(*this);
    switch (target->kind) {
        case ExprKind::kName: {
            if (for_depth_ > 0 && target->text.view() == "loop") {
                fail(target->line, "'loop' cannot be assigned inside a loop");
            }
            note_store(target->name);
            return;
        }
        case ExprKind::kNamespaceRef:
            note_load(target->name);
            return;
        case ExprKind::kTuple:
            for (Expr* item : target->items) check_target(item);
            return;
        default:
            fail(target->line, "this cannot be assigned to");
    }
}

}  // namespace ridge::jinja
