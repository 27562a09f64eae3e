#include "text/jinja/interpreter.h"

#include "base/printable.h"
#include "text/jinja/attributes.h"
#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace ridge::jinja {
namespace {

constexpr NameId kNoName = ~NameId{0};

NameId find_id(const Program& program, const char* name) {
    auto at = program.ids.find(name);
    return at == program.ids.end() ? kNoName : at->second;
}

}  // namespace

Value* Scope::find(NameId id) {
    for (auto& [name, value] : variables) {
        if (name == id) return &value;
    }
    return nullptr;
}

Interpreter::Interpreter(Runtime& rt, const Program& program, const CivilTime& now)
    : rt_(rt),
      program_(program),
      now_(now),
      loop_id_(find_id(program, "loop")),
      caller_id_(find_id(program, "caller")),
      kwargs_id_(find_id(program, "kwargs")),
      varargs_id_(find_id(program, "varargs")) {
    root_.parent = &globals_;
    reads_loop_ = loop_id_ != kNoName;
    constexpr std::pair<std::string_view, FunctionId> kFunctions[] = {
        {"range", FunctionId::kRange},
        {"dict", FunctionId::kDict},
        {"namespace", FunctionId::kNamespace},
        {"cycler", FunctionId::kCycler},
        {"joiner", FunctionId::kJoiner},
        {"raise_exception", FunctionId::kRaiseException},
        {"strftime_now", FunctionId::kStrftimeNow},
    };
    for (const auto& [name, id] : kFunctions) {
        Value function = Value::of_kind(Kind::kFunction);
        function.detail = static_cast<uint8_t>(id);
        set_global(name, function);
    }
}

void Interpreter::set_global(std::string_view name, const Value& value) {
    auto at = program_.ids.find(std::string(name));
    if (at == program_.ids.end()) return;
    Value* old = globals_.find(at->second);
    if (old != nullptr) {
        *old = value;
    } else {
        globals_.variables.emplace_back(at->second, value);
    }
}

void Interpreter::run(TextBuilder& out) {
    leave_unset(root_, program_.unset);
    run_block(program_.body, root_, out);
}

// Scopes.

Scope* Interpreter::new_scope(Scope* parent, const std::vector<NameId>& unset) {
    rt_.step();
    if (free_scopes_.empty()) {
        rt_.charge(sizeof(Scope));
        free_scopes_.push_back(&scopes_.emplace_back());
    }
    Scope* scope = free_scopes_.back();
    free_scopes_.pop_back();
    scope->parent = parent;
    leave_unset(*scope, unset);
    return scope;
}

void Interpreter::leave_unset(Scope& scope, const std::vector<NameId>& unset) {
    for (NameId id : unset) set(scope, id, Value::missing());
}

void Interpreter::release(Scope* scope) {
    if (scope == nullptr || scope->captured) return;
    scope->variables.clear();
    free_scopes_.push_back(scope);
}

void Interpreter::set(Scope& scope, NameId id, const Value& value) {
    rt_.step(1 + scope.variables.size() / 8);
    Value* old = scope.find(id);
    if (old != nullptr) {
        *old = value;
        return;
    }
    rt_.charge(sizeof(scope.variables[0]));
    scope.variables.emplace_back(id, value);
}

Value Interpreter::look_up(NameId id, const Str& name, Scope& scope) {
    for (Scope* level = &scope; level != nullptr; level = level->parent) {
        rt_.step(1 + level->variables.size() / 8);
        const Value* found = level->find(id);
        if (found == nullptr) continue;
        if (found->is_missing()) break;
        return *found;
    }
    if (name.view() == "self" || name.view() == "lipsum") {
        rt_.fail("'{}' is not supported", name.view());
    }
    return Value::undefined(name);
}

// Statements.

Interpreter::Flow Interpreter::run_block(const Block& block, Scope& scope, TextBuilder& out) {
    Nested nested(rt_);
    for (const Stmt* stmt : block) {
        rt_.line = stmt->line;
        rt_.step();
        Flow flow = run_statement(*stmt, scope, out);
        if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
}

Interpreter::Flow Interpreter::run_statement(const Stmt& stmt, Scope& scope, TextBuilder& out) {
    switch (stmt.kind) {
        case StmtKind::kText:
            out.append(stmt.text);
            break;
        case StmtKind::kPrint:
            append_text(rt_, out, evaluate(*stmt.value, scope));
            break;
        case StmtKind::kIf:
            return run_if(stmt, scope, out);
        case StmtKind::kFor:
            return run_loop(*make_loop(stmt, scope, evaluate(*stmt.value, scope), 0), out);
        case StmtKind::kSet:
            assign(*stmt.target, evaluate(*stmt.value, scope), scope);
            break;
        case StmtKind::kSetBlock:
            return run_set_block(stmt, scope);
        case StmtKind::kWith:
            return run_with(stmt, scope, out);
        case StmtKind::kMacro:
            set(scope, stmt.macro->id, make_macro(*stmt.macro, scope));
            break;
        case StmtKind::kCall:
            run_call_block(stmt, scope, out);
            break;
        case StmtKind::kFilterBlock:
            return run_filter_block(stmt, scope, out);
        case StmtKind::kGeneration:
            return run_in_new_scope(stmt.body, stmt.unset, scope, out);
        case StmtKind::kBreak:
            return Flow::kBreak;
        case StmtKind::kContinue:
            return Flow::kContinue;
    }
    return Flow::kNext;
}

Interpreter::Flow Interpreter::run_if(const Stmt& stmt, Scope& scope, TextBuilder& out) {
    for (const Branch& branch : stmt.branches) {
        if (branch.test == nullptr || is_true(evaluate(*branch.test, scope))) {
            return run_block(branch.body, scope, out);
        }
    }
    return Flow::kNext;
}

Interpreter::Flow Interpreter::run_in_new_scope(const Block& block,
                                                const std::vector<NameId>& unset, Scope& scope,
                                                TextBuilder& out) {
    Scope* inner = new_scope(&scope, unset);
    Flow flow = run_block(block, *inner, out);
    release(inner);
    return flow;
}

Interpreter::Flow Interpreter::capture(const Stmt& stmt, Scope& scope, Value& result) {
    TextBuilder text(rt_);
    Scope* inner = new_scope(&scope, stmt.unset);
    Flow flow = run_block(stmt.body, *inner, text);
    if (flow == Flow::kNext) {
        result = Value::of(text.finish());
        if (stmt.value != nullptr) {
            Value plain = result;
            const Value* outer = std::exchange(captured_, &plain);
            result = evaluate(*stmt.value, *inner);
            captured_ = outer;
        }
    }
    release(inner);
    return flow;
}

Interpreter::Flow Interpreter::run_set_block(const Stmt& stmt, Scope& scope) {
    Value value;
    Flow flow = capture(stmt, scope, value);
    if (flow == Flow::kNext) assign(*stmt.target, value, scope);
    return flow;
}

Interpreter::Flow Interpreter::run_filter_block(const Stmt& stmt, Scope& scope, TextBuilder& out) {
    Value filtered;
    Flow flow = capture(stmt, scope, filtered);
    if (flow == Flow::kNext) append_text(rt_, out, filtered);
    return flow;
}

Interpreter::Flow Interpreter::run_with(const Stmt& stmt, Scope& scope, TextBuilder& out) {
    Scope* inner = new_scope(&scope, stmt.unset);
    for (const auto& [target, value] : stmt.withs) assign(*target, evaluate(*value, scope), *inner);
    Flow flow = run_block(stmt.body, *inner, out);
    release(inner);
    return flow;
}

void Interpreter::run_call_block(const Stmt& stmt, Scope& scope, TextBuilder& out) {
    Value caller = make_macro(*stmt.macro, scope);
    append_text(rt_, out, evaluate_call(*stmt.value, scope, &caller));
}

Value Interpreter::make_macro(const MacroDef& definition, Scope& scope) {
    for (Scope* level = &scope; level != nullptr && !level->captured; level = level->parent) {
        level->captured = true;
    }
    Value value = Value::of_kind(Kind::kMacro);
    value.macro = rt_.create<Macro>();
    *value.macro = {&definition, &scope};
    return value;
}

void Interpreter::assign(const Expr& target, const Value& value, Scope& scope) {
    switch (target.kind) {
        case ExprKind::kName:
            set(scope, target.name, value);
            return;
        case ExprKind::kNamespaceRef:
            assign_namespace(target, value, scope);
            return;
        default:
            break;
    }
    rt_.line = target.line;
    Items items = items_of(rt_, value);
    if (items.size != target.items.size()) {
        rt_.fail("{} values for {} names", items.size, target.items.size());
    }
    for (size_t i = 0; i < items.size; i++) assign(*target.items[i], items.data[i], scope);
}

void Interpreter::assign_namespace(const Expr& target, const Value& value, Scope& scope) {
    rt_.line = target.line;
    Value owner = look_up(target.name, target.text, scope);
    if (!owner.is(Kind::kNamespace)) {
        rt_.fail("'{}' is no namespace: its attributes cannot be set",
                 printable(program_.names[target.name], 60));
    }
    if (target.text.view()[0] == '_') {
        rt_.fail("a namespace has no attributes that begin with an underscore");
    }
    Namespace& space = *owner.space;
    rt_.step(1 + space.size / 8);
    for (size_t i = 0; i < space.size; i++) {
        if (space.data[i].key.text.view() == target.text.view()) {
            space.data[i].value = value;
            return;
        }
    }
    if (space.size == space.capacity) {
        space.capacity = std::max<size_t>(4, space.capacity * 2);
        Pair* grown = rt_.create<Pair>(space.capacity);
        std::copy(space.data, space.data + space.size, grown);
        space.data = grown;
    }
    space.data[space.size++] = {Value::of(target.text), value};
}

// Loops.

Loop* Interpreter::make_loop(const Stmt& stmt, Scope& outer, const Value& iterable,
                             int64_t depth0) {
    Loop* loop = rt_.create<Loop>();
    loop->owner = this;
    loop->statement = &stmt;
    loop->outer = &outer;
    loop->depth0 = depth0;
    if (iterable.is(Kind::kIterator)) {
        loop->source = iterable.iterator;
    } else {
        loop->source = rt_.create<Iterator>();
        loop->source->items = items_of(rt_, iterable);
        if (stmt.test == nullptr) loop->length = static_cast<int64_t>(loop->source->items.size);
    }
    return loop;
}

// The next item that passes the statement's test; kMissing at the end.
Value Interpreter::fetch(Loop& loop) {
    const Expr* test = loop.statement->test;
    if (loop.finished) return Value::missing();
    while (loop.source->position < loop.source->items.size) {
        rt_.step();
        const Value& item = loop.source->items.data[loop.source->position++];
        if (test == nullptr || loop.tested) return item;
        if (loop.test_scope == nullptr || loop.test_scope->captured) {
            loop.test_scope = new_scope(loop.outer, {});
        }
        assign(*loop.statement->target, item, *loop.test_scope);
        if (is_true(evaluate(*test, *loop.test_scope))) return item;
    }
    return Value::missing();
}

Value Interpreter::peek(Loop& loop) {
    if (!loop.peeked) {
        loop.after = fetch(loop);
        loop.peeked = true;
    }
    return loop.after;
}

Value Interpreter::advance(Loop& loop) {
    Value next = loop.peeked ? loop.after : fetch(loop);
    loop.peeked = false;
    if (next.is_missing()) return next;
    loop.index0++;
    loop.before = loop.current;
    loop.current = next;
    return next;
}

int64_t Interpreter::length_of(Loop& loop) {
    if (loop.length >= 0) return loop.length;
    // What is left passes the test now, and is kept for the turns to come.
    std::vector<Value> rest;
    for (Value item = fetch(loop); !item.is_missing(); item = fetch(loop)) {
        rt_.charge(sizeof(Value));
        rest.push_back(item);
    }
    loop.length = static_cast<int64_t>(rest.size()) + loop.index0 + 1 +
                  (loop.peeked && !loop.after.is_missing() ? 1 : 0);
    loop.source = rt_.create<Iterator>();
    loop.source->items = rt_.make_list(rest).items;
    loop.tested = true;
    return loop.length;
}

Interpreter::Flow Interpreter::run_loop(Loop& loop, TextBuilder& out) {
    const Stmt& stmt = *loop.statement;
    Scope* body = nullptr;
    bool completed = false;  // a turn that ran to its end: Jinja's `else` asks for that
    Value self = Value::of_kind(Kind::kLoop);
    self.loop = &loop;
    while (true) {
        rt_.line = stmt.line;
        Value item = advance(loop);
        if (item.is_missing()) break;
        if (body == nullptr || body->captured) {
            body = new_scope(loop.outer, stmt.unset);
        } else {
            body->variables.clear();
            leave_unset(*body, stmt.unset);
        }
        if (reads_loop_) set(*body, loop_id_, self);
        assign(*stmt.target, item, *body);
        Flow flow = run_block(stmt.body, *body, out);
        if (flow == Flow::kBreak) break;
        if (flow == Flow::kNext) completed = true;
    }
    release(body);
    release(loop.test_scope);
    loop.finished = true;
    if (completed || stmt.otherwise.empty()) return Flow::kNext;
    return run_in_new_scope(stmt.otherwise, stmt.otherwise_unset, *loop.outer, out);
}

}  // namespace ridge::jinja
