#include <unordered_set>

#include "base/printable.h"
#include "text/jinja/filters.h"
#include "text/jinja/numbers.h"
#include "text/jinja/parser.h"

namespace ridge::jinja {
namespace {

// Levels of binary operators, loosest first.
enum Level {
    kOrLevel = 1,
    kAndLevel,
    kNotLevel,
    kCompareLevel,
    kSumLevel,
    kConcatLevel,
    kProductLevel,
    kPowerLevel,
    kUnaryLevel
};

struct Operator {
    std::string_view text;
    Level level;
    Op op;
};
constexpr Operator kArithmetic[] = {
    {"+", kSumLevel, Op::kAdd},           {"-", kSumLevel, Op::kSub},
    {"*", kProductLevel, Op::kMul},       {"/", kProductLevel, Op::kDiv},
    {"//", kProductLevel, Op::kFloorDiv}, {"%", kProductLevel, Op::kMod},
    {"**", kPowerLevel, Op::kPow},
};
constexpr Operator kComparisons[] = {
    {"==", kCompareLevel, Op::kEq}, {"!=", kCompareLevel, Op::kNe}, {"<", kCompareLevel, Op::kLt},
    {"<=", kCompareLevel, Op::kLe}, {">", kCompareLevel, Op::kGt},  {">=", kCompareLevel, Op::kGe},
};

template <size_t N>
const Operator* find_operator(const Operator (&table)[N], const Token& token) {
    if (token.kind != TokenKind::kOperator) return nullptr;
    for (const Operator& row : table) {
        if (row.text == token.text) return &row;
    }
    return nullptr;
}

bool is_tuple_end(const Token& token, std::string_view end_name) {
    return token.kind == TokenKind::kPrintEnd || token.kind == TokenKind::kBlockEnd ||
           token.is_op(")") || (!end_name.empty() && token.is_name(end_name));
}

}  // namespace

Expr* Parser::parse_tuple(bool with_conditional, std::string_view end_name, bool parenthesised) {
    Deeper deeper(*this);
    uint32_t line = token_.line;
    std::vector<Expr*> items;
    bool is_tuple = false;
    while (true) {
        if (!items.empty()) expect_op(",");
        if (is_tuple_end(token_, end_name)) break;
        items.push_back(parse_expression(with_conditional));
        if (!token_.is_op(",")) break;
        is_tuple = true;
        line = token_.line;
    }
    if (!is_tuple) {
        if (!items.empty()) return items[0];
        if (!parenthesised) fail(token_.line, "expected an expression, got {}", describe(token_));
    }
    Expr* tuple = make(ExprKind::kTuple, line);
    for (Expr* item : items) adopt(tuple, item);
    tuple->items = std::move(items);
    return tuple;
}

Expr* Parser::parse_expression(bool with_conditional) {
    Deeper deeper(*this);
    Expr* node = with_conditional ? parse_conditional() : parse_binary(kOrLevel);
    if (node->kind == ExprKind::kName) note_load(node->name);
    return node;
}

Expr* Parser::parse_conditional() {
    Deeper deeper(*this);
    uint32_t line = token_.line;
    size_t n_unknown = unknown_.size();
    Expr* left = parse_binary(kOrLevel);
    bool conditional = token_.is_name("if");
    while (token_.is_name("if")) {
        skip();
        Expr* node = make(ExprKind::kConditional, line);
        node->a = left;
        node->b = parse_binary(kOrLevel);
        if (skip_if_name("else")) node->c = parse_conditional();
        adopt(node, node->a);
        adopt(node, node->b);
        if (node->c != nullptr) adopt(node, node->c);
        left = node;
        line = token_.line;
    }
    if (conditional) unknown_.resize(n_unknown);
    return left;
}

// Precedence climbing: one frame for all the levels between `or` and `**`.
Expr* Parser::parse_binary(int min_level) {
    Deeper deeper(*this);
    uint32_t line = token_.line;
    Expr* left;
    if (min_level <= kNotLevel && token_.is_name("not")) {
        skip();
        left = make(ExprKind::kNot, line);
        left->a = parse_binary(kNotLevel);
        adopt(left, left->a);
    } else {
        left = parse_unary(true);
    }
    while (true) {
        ExprKind kind = ExprKind::kArithmetic;
        Level level;
        Op op = Op::kAdd;
        if (const Operator* row = find_operator(kArithmetic, token_)) {
            level = row->level;
            op = row->op;
        } else if (token_.is_name("and") || token_.is_name("or")) {
            kind = token_.text == "and" ? ExprKind::kAnd : ExprKind::kOr;
            level = token_.text == "and" ? kAndLevel : kOrLevel;
        } else if (token_.is_op("~") && min_level <= kConcatLevel) {
            left = parse_concat(left);
            continue;
        } else if (min_level <= kCompareLevel &&
                   (find_operator(kComparisons, token_) != nullptr || token_.is_name("in") ||
                    (token_.is_name("not") && ahead_.is_name("in")))) {
            left = parse_compare(left);
            continue;
        } else {
            return left;
        }
        if (level < min_level) return left;
        skip();
        Expr* node = make(kind, line);
        node->op = op;
        node->a = left;
        node->b = parse_binary(level + 1);
        adopt(node, node->a);
        adopt(node, node->b);
        left = node;
        line = token_.line;
    }
}

Expr* Parser::parse_compare(Expr* first) {
    Expr* node = make(ExprKind::kCompare, first->line);
    node->a = first;
    adopt(node, first);
    while (true) {
        Op op;
        if (const Operator* row = find_operator(kComparisons, token_)) {
            op = row->op;
        } else if (token_.is_name("in")) {
            op = Op::kIn;
        } else if (token_.is_name("not") && ahead_.is_name("in")) {
            op = Op::kNotIn;
            skip();
        } else {
            return node;
        }
        skip();
        Expr* operand = make(ExprKind::kOperand, token_.line);
        operand->op = op;
        operand->a = parse_binary(kSumLevel);
        adopt(operand, operand->a);
        adopt(node, operand);
        node->items.push_back(operand);
    }
}

Expr* Parser::parse_concat(Expr* first) {
    Expr* node = make(ExprKind::kConcat, first->line);
    node->items.push_back(first);
    adopt(node, first);
    while (skip_if_op("~")) {
        Expr* item = parse_binary(kProductLevel);
        adopt(node, item);
        node->items.push_back(item);
    }
    return node;
}

Expr* Parser::parse_unary(bool with_filter) {
    Deeper deeper(*this);
    Expr* node;
    if (token_.is_op("-") || token_.is_op("+")) {
        node = make(token_.text == "-" ? ExprKind::kNegative : ExprKind::kPositive, token_.line);
        skip();
        node->a = parse_unary(false);
        adopt(node, node->a);
    } else {
        node = parse_primary(false);
    }
    node = parse_postfix(node);
    return with_filter ? parse_filters_and_tests(node) : node;
}

Expr* Parser::parse_primary(bool with_namespace) {
    Deeper deeper(*this);
    switch (token_.kind) {
        case TokenKind::kName:
            return parse_name(with_namespace);
        case TokenKind::kString:
            return parse_string();
        case TokenKind::kInteger:
        case TokenKind::kFloat:
            return parse_number();
        default:
            break;
    }
    if (token_.is_op("(")) {
        skip();
        Expr* inner = parse_tuple(true, "", true);
        expect_op(")");
        return inner;
    }
    if (token_.is_op("[")) return parse_list();
    if (token_.is_op("{")) return parse_dict();
    fail(token_.line, "unexpected {}", describe(token_));
}

Expr* Parser::parse_name(bool with_namespace) {
    Token name = token_;
    skip();
    Expr* node = make(ExprKind::kConstant, name.line);
    if (name.text == "true" || name.text == "True") {
        node->value = Value::of(true);
    } else if (name.text == "false" || name.text == "False") {
        node->value = Value::of(false);
    } else if (name.text == "none" || name.text == "None") {
        node->value = Value::none();
    } else {
        node->kind = ExprKind::kName;
        node->name = program_.id_of(name.text);
        node->text = Str::of(name.text, true);
        if (with_namespace && skip_if_op(".")) {
            node->kind = ExprKind::kNamespaceRef;
            node->text = Str::of(expect_any_name(), true);
        }
    }
    return node;
}

Expr* Parser::parse_number() {
    Expr* node = make(ExprKind::kConstant, token_.line);
    std::string digits;
    for (char c : token_.text) {
        if (c != '_') digits += c;
    }
    if (token_.kind == TokenKind::kFloat) {
        node->value = Value::of_real(parse_real(digits).value_or(0));
    } else {
        std::optional<int64_t> value = parse_literal_int(digits);
        if (!value) {
            fail(token_.line, "integer {} does not fit 64 bits", printable(token_.text, 40));
        }
        node->value = Value::of_int(*value);
    }
    skip();
    return node;
}

Expr* Parser::parse_string() {
    Expr* node = make(ExprKind::kConstant, token_.line);
    std::string joined;
    bool plain =
        ahead_.kind != TokenKind::kString && token_.text.find('\\') == std::string_view::npos;
    if (plain) {
        node->value = Value::literal(token_.text);
        skip();
        return node;
    }
    while (token_.kind == TokenKind::kString) {
        std::string error;
        joined += unescape(token_.text, error);
        if (!error.empty()) fail(token_.line, "{}", error);
        skip();
    }
    program_.strings.push_back(std::move(joined));
    node->value = Value::literal(program_.strings.back());
    return node;
}

Expr* Parser::parse_list() {
    Expr* list = make(ExprKind::kList, token_.line);
    expect_op("[");
    while (!token_.is_op("]")) {
        if (!list->items.empty()) expect_op(",");
        if (token_.is_op("]")) break;
        list->items.push_back(parse_expression());
        adopt(list, list->items.back());
    }
    expect_op("]");
    return list;
}

Expr* Parser::parse_dict() {
    Expr* dict = make(ExprKind::kDict, token_.line);
    expect_op("{");
    while (!token_.is_op("}")) {
        if (!dict->items.empty()) expect_op(",");
        if (token_.is_op("}")) break;
        for (bool key : {true, false}) {
            dict->items.push_back(parse_expression());
            adopt(dict, dict->items.back());
            if (key) expect_op(":");
        }
    }
    expect_op("}");
    return dict;
}

Expr* Parser::parse_postfix(Expr* node) {
    while (true) {
        if (token_.is_op(".")) {
            node = parse_dot(node);
        } else if (token_.is_op("[")) {
            node = parse_brackets(node);
        } else if (token_.is_op("(")) {
            node = parse_call(node);
        } else {
            return node;
        }
    }
}

Expr* Parser::parse_filters_and_tests(Expr* node) {
    while (true) {
        if (token_.is_op("|")) {
            node = parse_filter(node, false);
        } else if (token_.is_name("is")) {
            node = parse_test(node);
        } else if (token_.is_op("(")) {
            node = parse_call(node);
        } else {
            return node;
        }
    }
}

Expr* Parser::parse_dot(Expr* node) {
    uint32_t line = token_.line;
    skip();
    Expr* access;
    if (token_.kind == TokenKind::kName) {
        access = make(ExprKind::kAttribute, line);
        access->text = Str::of(token_.text, true);
        if (token_.text == "text") program_.reads_text_parts = true;
        skip();
    } else if (token_.kind == TokenKind::kInteger) {
        access = make(ExprKind::kSubscript, line);
        access->b = parse_number();
        adopt(access, access->b);
    } else {
        fail(token_.line, "expected a name or a number behind '.', got {}", describe(token_));
    }
    access->a = node;
    adopt(access, node);
    return access;
}

Expr* Parser::parse_brackets(Expr* node) {
    uint32_t line = token_.line;
    expect_op("[");
    std::vector<Expr*> args;
    bool is_slice = false;
    while (!token_.is_op("]")) {
        if (!args.empty()) expect_op(",");
        args.push_back(parse_slice_or_index(node, is_slice));
        if (is_slice && !token_.is_op("]")) fail(line, "a slice inside a tuple is not supported");
    }
    expect_op("]");
    if (is_slice) {
        if (args.size() > 1) fail(line, "a slice inside a tuple is not supported");
        return args[0];
    }
    Expr* access = make(ExprKind::kSubscript, line);
    access->a = node;
    if (args.size() == 1) {
        access->b = args[0];
        const Value& key = access->b->value;
        if (access->b->kind == ExprKind::kConstant && key.is_string() &&
            key.text.view() == "text") {
            program_.reads_text_parts = true;
        }
    } else {
        access->b = make(ExprKind::kTuple, line);
        for (Expr* arg : args) adopt(access->b, arg);
        access->b->items = std::move(args);
    }
    adopt(access, access->a);
    adopt(access, access->b);
    return access;
}

// One subscript: an index, or the whole node[start:stop:step].
Expr* Parser::parse_slice_or_index(Expr* node, bool& is_slice) {
    uint32_t line = token_.line;
    Expr* parts[3] = {};
    if (!token_.is_op(":")) {
        parts[0] = parse_expression();
        if (!token_.is_op(":")) return parts[0];
    }
    is_slice = true;
    skip();
    auto at_end = [&] { return token_.is_op("]") || token_.is_op(","); };
    if (!token_.is_op(":") && !at_end()) parts[1] = parse_expression();
    if (skip_if_op(":") && !at_end()) parts[2] = parse_expression();
    Expr* slice = make(ExprKind::kSlice, line);
    slice->a = node;
    adopt(slice, node);
    for (Expr* part : parts) {
        if (part != nullptr) adopt(slice, part);
        slice->items.push_back(part);
    }
    return slice;
}

Expr* Parser::parse_call(Expr* callee) {
    Expr* call = make(ExprKind::kCall, token_.line);
    call->a = callee;
    adopt(call, callee);
    call->call = parse_call_args(call);
    return call;
}

std::unique_ptr<CallArgs> Parser::parse_call_args(Expr* owner) {
    Deeper deeper(*this);
    auto args = std::make_unique<CallArgs>();
    uint32_t line = token_.line;
    expect_op("(");
    bool first = true;
    std::unordered_set<std::string_view> names;
    while (!token_.is_op(")")) {
        if (!first) {
            expect_op(",");
            if (token_.is_op(")")) break;
        }
        first = false;
        bool bad = args->double_star != nullptr;
        Expr* value;
        if (skip_if_op("*")) {
            bad |= args->star != nullptr;
            value = args->star = parse_expression();
        } else if (skip_if_op("**")) {
            value = args->double_star = parse_expression();
        } else if (token_.kind == TokenKind::kName && ahead_.is_op("=")) {
            Str name = Str::of(token_.text, true);
            bad |= !names.insert(name.view()).second;
            skip();
            skip();
            value = parse_expression();
            args->named.emplace_back(name, value);
        } else {
            bad |= args->star != nullptr || !args->named.empty();
            value = parse_expression();
            args->positional.push_back(value);
        }
        if (bad) fail(line, "arguments of a call in a wrong order, or given twice");
        adopt(owner, value);
    }
    expect_op(")");
    return args;
}

Str Parser::parse_dotted_name() {
    std::string_view first = expect_any_name();
    if (!token_.is_op(".")) return Str::of(first, true);
    std::string name(first);
    while (skip_if_op(".")) {
        name += '.';
        name += expect_any_name();
    }
    program_.strings.push_back(std::move(name));
    return Str::of(program_.strings.back(), true);
}

// node|a|b(...); `in_place`: the first name stands without its bar.
Expr* Parser::parse_filter(Expr* node, bool in_place) {
    while (in_place || token_.is_op("|")) {
        if (!in_place) skip();
        in_place = false;
        Expr* filter = make(ExprKind::kFilter, token_.line);
        filter->text = parse_dotted_name();
        if (!is_filter(filter->text.view()))
            unknown_.push_back({filter->line, "filter", filter->text});
        filter->a = node;
        if (node != nullptr) adopt(filter, node);
        filter->call = token_.is_op("(") ? parse_call_args(filter) : std::make_unique<CallArgs>();
        node = filter;
    }
    return node;
}

Expr* Parser::parse_test(Expr* node) {
    Expr* test = make(ExprKind::kTest, token_.line);
    skip();
    bool negated = skip_if_name("not");
    test->text = parse_dotted_name();
    if (!is_test(test->text.view())) unknown_.push_back({test->line, "test", test->text});
    test->a = node;
    adopt(test, node);
    bool operand = token_.kind == TokenKind::kName || token_.kind == TokenKind::kString ||
                   token_.kind == TokenKind::kInteger || token_.kind == TokenKind::kFloat ||
                   token_.is_op("[") || token_.is_op("{");
    if (token_.is_op("(")) {
        test->call = parse_call_args(test);
    } else {
        test->call = std::make_unique<CallArgs>();
        if (operand && !token_.is_name("else") && !token_.is_name("or") && !token_.is_name("and")) {
            if (token_.is_name("is")) fail(token_.line, "tests cannot be chained with 'is'");
            Expr* arg = parse_postfix(parse_primary(false));
            adopt(test, arg);
            test->call->positional.push_back(arg);
        }
    }
    if (!negated) return test;
    Expr* inverse = make(ExprKind::kNot, test->line);
    inverse->a = test;
    adopt(inverse, test);
    return inverse;
}

}  // namespace ridge::jinja
