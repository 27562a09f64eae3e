#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/value.h"

namespace ridge::jinja {

using NameId = uint32_t;  // a variable's name, an index into Program::names

enum class ExprKind : uint8_t {
    kConstant,      // value
    kName,          // name
    kTuple,         // items
    kList,          // items
    kDict,          // items: key, value, key, value, ...
    kAttribute,     // a.text
    kSubscript,     // a[b]
    kSlice,         // a[items[0]:items[1]:items[2]], each may be null
    kCall,          // a(call)
    kFilter,        // a|text(call); a null: the text of the enclosing block
    kTest,          // a is text(call)
    kNegative,      // -a
    kPositive,      // +a
    kNot,           // not a
    kArithmetic,    // a op b
    kAnd,           // a and b
    kOr,            // a or b
    kCompare,       // a, then items: operands in a row
    kOperand,       // op a, inside kCompare
    kConcat,        // items joined by ~
    kConditional,   // a if b else c; c may be null
    kNamespaceRef,  // name.text as the target of an assignment
};

enum class Op : uint8_t {
    kAdd,
    kSub,
    kMul,
    kDiv,
    kFloorDiv,
    kMod,
    kPow,
    kEq,
    kNe,
    kLt,
    kLe,
    kGt,
    kGe,
    kIn,
    kNotIn,
};

struct Expr;

struct CallArgs {
    std::vector<Expr*> positional;
    std::vector<std::pair<Str, Expr*>> named;
    Expr* star = nullptr;         // *args
    Expr* double_star = nullptr;  // **kwargs
};

struct Expr {
    ExprKind kind;
    Op op = Op::kAdd;
    uint16_t depth = 1;  // levels below this node, itself included
    uint32_t line = 0;
    NameId name = 0;
    Str text;
    Value value;
    Expr *a = nullptr, *b = nullptr, *c = nullptr;
    std::vector<Expr*> items;
    std::unique_ptr<CallArgs> call;
};

enum class StmtKind : uint8_t {
    kText,         // text
    kPrint,        // value
    kIf,           // branches
    kFor,          // target, value, test (may be null), recursive, body, otherwise
    kSet,          // target, value
    kSetBlock,     // target, value (filters, may be null), body
    kWith,         // withs, body
    kMacro,        // macro
    kCall,         // macro (its body is the caller's block), value: the call
    kFilterBlock,  // value: filters, body
    kGeneration,   // body
    kBreak,
    kContinue,
};

struct Stmt;
using Block = std::vector<Stmt*>;

struct MacroDef {
    struct Parameter {
        NameId id;
        Str name;
        Expr* fallback;  // null: none
    };
    Str name;  // empty: the block of a call
    NameId id = 0;
    std::vector<Parameter> parameters;
    Block body;
    std::vector<NameId> unset;  // see scopes.h
    bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};

struct Branch {
    Expr* test;  // null: else
    Block body;
};

struct Stmt {
    StmtKind kind;
    bool recursive = false;
    uint32_t line = 0;
    Str text;
    Expr *target = nullptr, *value = nullptr, *test = nullptr;
    Block body, otherwise;
    std::vector<Branch> branches;
    std::vector<std::pair<Expr*, Expr*>> withs;  // target, value
    std::unique_ptr<MacroDef> macro;
    std::vector<NameId> unset, otherwise_unset;  // of body and otherwise: see scopes.h
};

// A parsed template. It owns its source and everything that the nodes point at.
struct Program {
    std::string name;    // of the template, fit for a message
    std::string source;  // newlines made \n, the last one dropped
    Block body;
    std::vector<NameId> unset;  // see scopes.h

    std::deque<Expr> exprs;
    std::deque<Stmt> stmts;
    std::deque<std::string> strings;  // literals whose escapes were resolved
    std::vector<std::string> names;   // by NameId
    std::unordered_map<std::string, NameId> ids;
    std::vector<bool> loaded;       // by NameId: read somewhere in the template
    bool reads_text_parts = false;  // an attribute or a key `text` is read: list content is handled

    NameId id_of(std::string_view variable);
};

// Parses a template. Error, naming it and the line, for what is not the language or is not
// supported; for a source that is longer than 1 MiB, is not UTF-8 or nests too deep.
std::unique_ptr<Program> parse(std::string source, std::string name);

constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

}  // namespace ridge::jinja
