#include "base/printable.h"
#include "text/jinja/attributes.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace ridge::jinja {

// Expressions. A node's line is set after its operands were evaluated, when it may itself fail.

Value Interpreter::evaluate(const Expr& e, Scope& scope) {
    Nested nested(rt_);
    rt_.step();
    rt_.line = e.line;
    switch (e.kind) {
        case ExprKind::kConstant:
            return e.value;
        case ExprKind::kName:
            return look_up(e.name, e.text, scope);
        case ExprKind::kTuple:
        case ExprKind::kList:
            return evaluate_items(e, scope);
        case ExprKind::kDict:
            return evaluate_dict(e, scope);
        case ExprKind::kAttribute: {
            Value owner = evaluate(*e.a, scope);
            rt_.line = e.line;
            return get_attribute(rt_, owner, e.text);
        }
        case ExprKind::kSubscript:
        case ExprKind::kArithmetic:
            return evaluate_binary(e, scope);
        case ExprKind::kSlice:
            return evaluate_slice(e, scope);
        case ExprKind::kCall:
            return evaluate_call(e, scope, nullptr);
        case ExprKind::kFilter:
            return evaluate_filter(e, scope);
        case ExprKind::kTest:
            return evaluate_test(e, scope);
        case ExprKind::kNegative:
            return negate(rt_, evaluate(*e.a, scope));
        case ExprKind::kPositive:
            return plus(rt_, evaluate(*e.a, scope));
        case ExprKind::kNot:
            return Value::of(!is_true(evaluate(*e.a, scope)));
        case ExprKind::kAnd: {
            Value left = evaluate(*e.a, scope);
            return is_true(left) ? evaluate(*e.b, scope) : left;
        }
        case ExprKind::kOr: {
            Value left = evaluate(*e.a, scope);
            return is_true(left) ? left : evaluate(*e.b, scope);
        }
        case ExprKind::kCompare:
            return evaluate_compare(e, scope);
        case ExprKind::kConcat:
            return evaluate_concat(e, scope);
        case ExprKind::kConditional:
            return evaluate_conditional(e, scope);
        case ExprKind::kOperand:
        case ExprKind::kNamespaceRef:
            break;  // never evaluated by themselves
    }
    return Value();
}

Value Interpreter::evaluate_binary(const Expr& e, Scope& scope) {
    Value a = evaluate(*e.a, scope);
    Value b = evaluate(*e.b, scope);
    rt_.line = e.line;
    return e.kind == ExprKind::kSubscript ? get_item(rt_, a, b) : arithmetic(rt_, e.op, a, b);
}

Value Interpreter::evaluate_compare(const Expr& e, Scope& scope) {
    Value left = evaluate(*e.a, scope);
    for (const Expr* operand : e.items) {
        Value right = evaluate(*operand->a, scope);
        rt_.line = operand->line;
        if (!compare(rt_, operand->op, left, right)) return Value::of(false);
        left = right;
    }
    return Value::of(true);
}

Value Interpreter::evaluate_concat(const Expr& e, Scope& scope) {
    Str joined;
    for (const Expr* item : e.items) {
        Value value = evaluate(*item, scope);
        rt_.line = e.line;
        joined = rt_.concat(joined, to_text(rt_, value));
    }
    return Value::of(joined);
}

Value Interpreter::evaluate_conditional(const Expr& e, Scope& scope) {
    if (is_true(evaluate(*e.b, scope))) return evaluate(*e.a, scope);
    if (e.c != nullptr) return evaluate(*e.c, scope);
    return Value::of_hint("the condition was false and there is no else");
}

Value Interpreter::evaluate_items(const Expr& e, Scope& scope) {
    Value* data = rt_.create<Value>(e.items.size());
    for (size_t i = 0; i < e.items.size(); i++) data[i] = evaluate(*e.items[i], scope);
    return Value::list(data, e.items.size(),
                       e.kind == ExprKind::kTuple ? Kind::kTuple : Kind::kList);
}

Value Interpreter::evaluate_dict(const Expr& e, Scope& scope) {
    DictBuilder dict(rt_);
    for (size_t i = 0; i + 1 < e.items.size(); i += 2) {
        Value key = evaluate(*e.items[i], scope);
        Value value = evaluate(*e.items[i + 1], scope);
        rt_.line = e.line;
        dict.set(key, value);
    }
    return dict.finish();
}

Value Interpreter::evaluate_slice(const Expr& e, Scope& scope) {
    Value owner = evaluate(*e.a, scope);
    Value parts[3] = {Value::none(), Value::none(), Value::none()};
    for (size_t i = 0; i < 3; i++) {
        if (e.items[i] != nullptr) parts[i] = evaluate(*e.items[i], scope);
    }
    rt_.line = e.line;
    return slice(rt_, owner, parts[0], parts[1], parts[2]);
}

Value Interpreter::evaluate_filter(const Expr& e, Scope& scope) {
    Value subject = e.a != nullptr ? evaluate(*e.a, scope) : *captured_;
    Args args;
    evaluate_args(*e.call, scope, args);
    rt_.line = e.line;
    return apply_filter(rt_, e.text, subject, args);
}

Value Interpreter::evaluate_test(const Expr& e, Scope& scope) {
    Value subject = evaluate(*e.a, scope);
    Args args;
    evaluate_args(*e.call, scope, args);
    rt_.line = e.line;
    return Value::of(apply_test(rt_, e.text, subject, args));
}

void Interpreter::evaluate_args(const CallArgs& call, Scope& scope, Args& args) {
    for (const Expr* positional : call.positional) {
        args.positional.push_back(evaluate(*positional, scope));
    }
    for (const auto& [name, value] : call.named) {
        args.named.emplace_back(name, evaluate(*value, scope));
    }
    if (call.star != nullptr) {
        Items items = items_of(rt_, evaluate(*call.star, scope));
        rt_.charge(items.size * sizeof(Value));
        args.positional.insert(args.positional.end(), items.begin(), items.end());
    }
    if (call.double_star == nullptr) return;
    Value dict = evaluate(*call.double_star, scope);
    if (!dict.is_dict()) rt_.fail("a {} behind ** is not a dict", type_name(dict));
    for (const Pair& pair : dict.pairs) {
        Str name = expect_string(rt_, pair.key, "a name behind **");
        for (const auto& [other, unused] : args.named) {
            rt_.step();
            if (other.view() == name.view()) {
                rt_.fail("argument '{}' is given twice", printable(name.view(), 60));
            }
        }
        rt_.charge(sizeof(args.named[0]));
        args.named.emplace_back(name, pair.value);
    }
}

// Calls.

Value Interpreter::evaluate_call(const Expr& e, Scope& scope, const Value* caller) {
    Value callee = evaluate(*e.a, scope);
    Args args;
    evaluate_args(*e.call, scope, args);
    if (caller != nullptr) args.named.emplace_back(Str::of("caller", true), *caller);
    rt_.line = e.line;
    Value result = call(callee, args);
    rt_.line = e.line;
    return result;
}

Value Interpreter::call(const Value& callee, const Args& args) {
    Nested nested(rt_);
    switch (callee.kind) {
        case Kind::kUndefined:
            fail_undefined(rt_, callee);
        case Kind::kMacro:
            return call_macro(*callee.macro, args);
        case Kind::kFunction:
            return call_function(static_cast<FunctionId>(callee.detail), args);
        case Kind::kMethod:
            return call_method(rt_, *callee.method, args);
        case Kind::kLoop:
            return call_loop(*callee.loop, args);
        case Kind::kJoiner:
            expect_no_args(rt_, "joiner", args);
            if (std::exchange(callee.joiner->used, true)) return callee.joiner->separator;
            return Value::literal("");
        default:
            rt_.fail("a {} cannot be called", type_name(callee));
    }
}

Value Interpreter::call_macro(const Macro& macro, const Args& args) {
    Scope* scope = new_scope(macro.scope, macro.definition->unset);
    bind_macro(*macro.definition, args, *scope);
    TextBuilder out(rt_);
    run_block(macro.definition->body, *scope, out);
    release(scope);
    return Value::of(out.finish());
}

void Interpreter::bind_macro(const MacroDef& definition, const Args& args, Scope& scope) {
    std::string name = definition.name.empty() ? "caller" : printable(definition.name.view(), 60);
    const auto& parameters = definition.parameters;
    std::vector<bool> used(args.named.size());
    auto take_named = [&](std::string_view wanted) {
        for (size_t i = 0; i < args.named.size(); i++) {
            if (used[i] || args.named[i].first.view() != wanted) continue;
            used[i] = true;
            return args.named[i].second;
        }
        return Value::missing();
    };
    for (size_t i = 0; i < parameters.size(); i++) {
        Value value =
            i < args.positional.size() ? args.positional[i] : take_named(parameters[i].name.view());
        set(scope, parameters[i].id, value);
    }
    if (definition.uses_caller) {
        Value caller = take_named("caller");
        bool given = !caller.is_missing() && !caller.is_none();
        set(scope, caller_id_, given ? caller : Value::of_hint("no caller defined"));
    }
    DictBuilder rest(rt_);
    for (size_t i = 0; i < args.named.size(); i++) {
        if (used[i]) continue;
        if (!definition.uses_kwargs) {
            rt_.fail("macro '{}' has no argument '{}'", name,
                     printable(args.named[i].first.view(), 60));
        }
        rest.set(Value::of(args.named[i].first), args.named[i].second);
    }
    if (definition.uses_kwargs) set(scope, kwargs_id_, rest.finish());
    size_t n_taken = std::min(parameters.size(), args.positional.size());
    std::span<const Value> extra(args.positional.data() + n_taken,
                                 args.positional.size() - n_taken);
    if (!extra.empty() && !definition.uses_varargs) {
        rt_.fail("macro '{}' takes at most {} arguments", name, parameters.size());
    }
    if (definition.uses_varargs) set(scope, varargs_id_, rt_.make_list(extra, Kind::kTuple));
    for (const MacroDef::Parameter& parameter : parameters) {
        if (!scope.find(parameter.id)->is_missing()) continue;
        Value value = parameter.fallback != nullptr ? evaluate(*parameter.fallback, scope)
                                                    : Value::undefined(parameter.name);
        *scope.find(parameter.id) = value;
    }
}

Value Interpreter::call_loop(const Loop& loop, const Args& args) {
    constexpr std::array<std::string_view, 1> kNames = {"iterable"};
    auto [iterable] = bind(rt_, "loop", args, kNames, 1);
    if (loop.finished) rt_.fail("the loop is over");
    if (!loop.statement->recursive) rt_.fail("the loop is not marked as recursive");
    TextBuilder out(rt_);
    run_loop(*make_loop(*loop.statement, *loop.outer, iterable, loop.depth0 + 1), out);
    return Value::of(out.finish());
}

Value Interpreter::call_function(FunctionId id, const Args& args) {
    switch (id) {
        case FunctionId::kRange:
            return call_range(args);
        case FunctionId::kDict:
            return call_dict("dict", args);
        case FunctionId::kNamespace:
            return call_namespace(args);
        case FunctionId::kCycler:
            return call_cycler(args);
        case FunctionId::kStrftimeNow:
            return call_strftime(args);
        case FunctionId::kJoiner: {
            constexpr std::array<std::string_view, 1> kNames = {"sep"};
            auto [separator] = bind(rt_, "joiner", args, kNames);
            Value value = Value::of_kind(Kind::kJoiner);
            value.joiner = rt_.create<Joiner>();
            value.joiner->separator = separator.is_missing() ? Value::literal(", ") : separator;
            return value;
        }
        case FunctionId::kRaiseException: {
            constexpr std::array<std::string_view, 1> kNames = {"message"};
            auto [message] = bind(rt_, "raise_exception", args, kNames, 1);
            rt_.fail("{}", printable(to_text(rt_, message).view(), 500));
        }
    }
    return Value();
}

Value Interpreter::call_range(const Args& args) {
    constexpr std::array<std::string_view, 3> kNames = {"start", "stop", "step"};
    if (!args.named.empty()) rt_.fail("range takes no named arguments");
    auto [first, second, third] = bind(rt_, "range", args, kNames, 1);
    Range range{0, 0, 1};
    if (second.is_missing()) {
        range.stop = expect_int(rt_, first, "range: stop");
    } else {
        range.start = expect_int(rt_, first, "range: start");
        range.stop = expect_int(rt_, second, "range: stop");
    }
    if (!third.is_missing()) range.step = expect_int(rt_, third, "range: step");
    if (range.step == 0) rt_.fail("range: the step is zero");
    constexpr int64_t kMaxRange = 100'000;  // as Jinja's sandbox has it
    if (range_size(range) > kMaxRange) {
        rt_.fail("range: {} numbers, expected at most {}", range_size(range), kMaxRange);
    }
    Value value = Value::of_kind(Kind::kRange);
    value.range = range;
    return value;
}

Value Interpreter::call_dict(std::string_view name, const Args& args) {
    DictBuilder dict(rt_);
    if (args.positional.size() > 1) rt_.fail("{} takes at most one value by order", name);
    for (const Value& source : args.positional) {
        if (source.is_undefined()) fail_undefined(rt_, source);
        if (source.is_dict()) {
            for (const Pair& pair : source.pairs) dict.set(pair.key, pair.value);
            continue;
        }
        for (const Value& entry : items_of(rt_, source)) {
            Items pair = items_of(rt_, entry);
            if (pair.size != 2) rt_.fail("{}: an entry of {} values, expected 2", name, pair.size);
            dict.set(pair.data[0], pair.data[1]);
        }
    }
    for (const auto& [key, value] : args.named) dict.set(Value::of(key), value);
    return dict.finish();
}

Value Interpreter::call_namespace(const Args& args) {
    Pairs pairs = call_dict("namespace", args).pairs;
    Value value = Value::of_kind(Kind::kNamespace);
    value.space = rt_.create<Namespace>();
    value.space->data = rt_.create<Pair>(pairs.size);
    value.space->size = value.space->capacity = pairs.size;
    std::copy(pairs.begin(), pairs.end(), value.space->data);
    for (const Pair& pair : pairs) {
        if (pair.key.is_string() && !pair.key.text.empty() && pair.key.text.data[0] == '_') {
            rt_.fail("a namespace has no attributes that begin with an underscore");
        }
    }
    return value;
}

Value Interpreter::call_cycler(const Args& args) {
    if (!args.named.empty()) rt_.fail("cycler takes no named arguments");
    if (args.positional.empty()) rt_.fail("cycler needs at least one item");
    Value value = Value::of_kind(Kind::kCycler);
    value.cycler = rt_.create<Cycler>();
    value.cycler->items = rt_.make_list(args.positional).items;
    return value;
}

Value Interpreter::call_strftime(const Args& args) {
    constexpr std::array<std::string_view, 1> kNames = {"format"};
    auto [format] = bind(rt_, "strftime_now", args, kNames, 1);
    Str text = expect_string(rt_, format, "strftime_now: the format");
    return Value::of(rt_.copy(format_time(rt_, now_, text.view()), text.all_trusted()));
}

// What a template sees of loops and macros.

Value loop_attribute(Runtime&, Loop& loop, const Str& name) {
    std::string_view view = name.view();
    Interpreter& owner = *loop.owner;
    if (view == "index") return Value::of_int(loop.index0 + 1);
    if (view == "index0") return Value::of_int(loop.index0);
    if (view == "first") return Value::of(loop.index0 == 0);
    if (view == "last") return Value::of(owner.peek(loop).is_missing());
    if (view == "length") return Value::of_int(owner.length_of(loop));
    if (view == "revindex") return Value::of_int(owner.length_of(loop) - loop.index0);
    if (view == "revindex0") return Value::of_int(owner.length_of(loop) - loop.index0 - 1);
    if (view == "depth") return Value::of_int(loop.depth0 + 1);
    if (view == "depth0") return Value::of_int(loop.depth0);
    if (view == "previtem") {
        return loop.index0 == 0 ? Value::of_hint("there is no previous item") : loop.before;
    }
    if (view == "nextitem") {
        Value next = owner.peek(loop);
        return next.is_missing() ? Value::of_hint("there is no next item") : next;
    }
    if (view == "cycle" || view == "changed") {
        Value method = Value::of_kind(Kind::kMethod);
        method.method = nullptr;  // the caller binds it
        return method;
    }
    return Value::missing();
}

Value loop_method(Runtime& rt, Loop& loop, std::string_view name, const Args& args) {
    if (!args.named.empty()) rt.fail("loop.{} takes no named arguments", name);
    if (name == "cycle") {
        if (args.positional.empty()) rt.fail("loop.cycle needs at least one item");
        return args.positional[static_cast<size_t>(loop.index0) % args.positional.size()];
    }
    Value values = rt.make_list(args.positional, Kind::kTuple);
    if (!loop.last_changed.is_missing() && are_equal(rt, loop.last_changed, values)) {
        return Value::of(false);
    }
    loop.last_changed = values;
    return Value::of(true);
}

Value macro_attribute(Runtime& rt, const Macro& macro, std::string_view name) {
    const MacroDef& definition = *macro.definition;
    if (name == "name") return definition.name.empty() ? Value::none() : Value::of(definition.name);
    if (name == "catch_kwargs") return Value::of(definition.uses_kwargs);
    if (name == "catch_varargs") return Value::of(definition.uses_varargs);
    if (name == "caller") return Value::of(definition.uses_caller);
    if (name != "arguments") return Value::missing();
    std::vector<Value> names;
    for (const MacroDef::Parameter& parameter : definition.parameters) {
        names.push_back(Value::of(parameter.name));
    }
    return rt.make_list(names, Kind::kTuple);
}

}  // namespace ridge::jinja
