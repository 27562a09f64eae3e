#include "text/jinja/attributes.h"

#include <algorithm>

#include "base/printable.h"
#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/string_methods.h"

namespace ridge::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

bool is_one_of(std::string_view name, Names names) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_dunder(std::string_view name) {
    return name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__";
}

Value make_method(Runtime& rt, const Value& self, const Str& name) {
    Value v = Value::of_kind(Kind::kMethod);
    v.method = rt.create<Method>();
    *v.method = {self, name};
    return v;
}

Value dict_attribute(Runtime& rt, const Value& value, const Str& name) {
    if (is_one_of(name.view(), {"get", "items", "keys", "values", "copy"})) {
        return make_method(rt, value, name);
    }
    if (is_one_of(name.view(), {"clear", "pop", "popitem", "setdefault", "update"})) {
        return Value::undefined(name, Absent::kForbidden);
    }
    if (name.view() == "fromkeys") rt.fail("the dict method 'fromkeys' is not supported");
    return Value::missing();
}

Value list_attribute(Runtime& rt, const Value& value, const Str& name) {
    bool is_list = value.is(Kind::kList);
    if (is_one_of(name.view(), {"count", "index"}) || (is_list && name.view() == "copy")) {
        return make_method(rt, value, name);
    }
    if (is_list && is_one_of(name.view(), {"append", "clear", "pop", "reverse", "insert", "sort",
                                           "extend", "remove"})) {
        return Value::undefined(name, Absent::kForbidden);
    }
    if (value.is(Kind::kTuple) && value.detail == static_cast<uint8_t>(TupleOf::kGroup)) {
        if (name.view() == "grouper") return value.items.data[0];
        if (name.view() == "list") return value.items.data[1];
    }
    return Value::missing();
}

Value cycler_attribute(Runtime& rt, const Value& value, const Str& name) {
    if (name.view() == "current") return value.cycler->items.data[value.cycler->position];
    if (is_one_of(name.view(), {"next", "reset"})) return make_method(rt, value, name);
    return Value::missing();
}

}  // namespace

Value find_attribute(Runtime& rt, const Value& value, const Str& name) {
    rt.step();
    if (is_dunder(name.view())) return Value::undefined(name, Absent::kForbidden);
    switch (value.kind) {
        case Kind::kDict:
            return dict_attribute(rt, value, name);
        case Kind::kList:
        case Kind::kTuple:
            return list_attribute(rt, value, name);
        case Kind::kString:
            if (is_string_method(rt, name.view())) return make_method(rt, value, name);
            return Value::missing();
        case Kind::kNamespace: {
            const Value* found =
                find_key(rt, {value.space->data, value.space->size}, Value::of(name));
            return found != nullptr ? *found : Value::missing();
        }
        case Kind::kLoop: {
            Value found = loop_attribute(rt, *value.loop, name);
            if (!found.is(Kind::kMethod) || found.method != nullptr) return found;
            return make_method(rt, value, name);
        }
        case Kind::kMacro:
            return macro_attribute(rt, *value.macro, name.view());
        case Kind::kCycler:
            return cycler_attribute(rt, value, name);
        case Kind::kRange:
            if (name.view() == "start") return Value::of_int(value.range.start);
            if (name.view() == "stop") return Value::of_int(value.range.stop);
            if (name.view() == "step") return Value::of_int(value.range.step);
            return Value::missing();
        case Kind::kInt:
        case Kind::kBool:
        case Kind::kFloat:
            if (is_one_of(name.view(), {"real", "imag", "conjugate", "numerator", "denominator",
                                        "bit_length", "is_integer", "hex", "to_bytes"})) {
                rt.fail("the attribute '{}' of a number is not supported", name.view());
            }
            return Value::missing();
        default:
            return Value::missing();
    }
}

Value get_attribute(Runtime& rt, const Value& value, const Str& name) {
    if (value.is_undefined() && name.view() != "__class__") fail_undefined(rt, value);
    Value found = find_attribute(rt, value, name);
    if (!found.is_missing()) return found;
    found = find_item(rt, value, Value::of(name));
    return found.is_missing() ? Value::undefined(name, Absent::kAttribute) : found;
}

Value get_item(Runtime& rt, const Value& value, const Value& key) {
    rt.step();
    if (value.is_undefined()) fail_undefined(rt, value);
    Value found = find_item(rt, value, key);
    if (!found.is_missing()) return found;
    if (!key.is_string()) {
        Str name = key.is_number() ? rt.copy(scalar_text(key), key.trusted) : Str::of("?", true);
        return Value::undefined(name, Absent::kAttribute);
    }
    found = find_attribute(rt, value, key.text);
    return found.is_missing() ? Value::undefined(key.text, Absent::kAttribute) : found;
}

Value get_path(Runtime& rt, Value value, const Value& path, const Value& fallback) {
    auto take = [&](const Value& part) {
        value = get_item(rt, value, part);
        if (!fallback.is_missing() && !fallback.is_none() && value.is_undefined()) value = fallback;
    };
    if (path.is_none() || path.is_missing()) return value;
    if (!path.is_string()) {
        take(path);
        return value;
    }
    std::string_view view = path.text.view();
    size_t begin = 0;
    while (true) {
        size_t end = std::min(view.find('.', begin), view.size());
        Str part = path.text.slice(begin, end);
        bool digits =
            !part.empty() && part.view().find_first_not_of("0123456789") == std::string_view::npos;
        std::optional<ParsedInt> index;
        if (digits) index = parse_int(part.view(), 10);
        take(index && index->fits ? Value::of_int(index->value) : Value::of(part));
        if (end == view.size()) return value;
        begin = end + 1;
    }
}

namespace {

Value make_view(const Value& dict, ViewOf of) {
    Value view = Value::of_kind(Kind::kView);
    view.pairs = dict.pairs;
    view.detail = static_cast<uint8_t>(of);
    return view;
}

Value call_dict_method(Runtime& rt, const Method& method, const Args& args) {
    std::string_view name = method.name.view();
    if (name == "get") {
        constexpr std::array<std::string_view, 2> kNames = {"key", "default"};
        if (!args.named.empty()) rt.fail("dict.get takes no named arguments");
        auto [key, fallback] = bind(rt, "dict.get", args, kNames, 1);
        check_hashable(rt, key);
        const Value* found = find_key(rt, method.self.pairs, key);
        if (found != nullptr) return *found;
        return fallback.is_missing() ? Value::none() : fallback;
    }
    expect_no_args(rt, name, args);
    if (name == "items") return make_view(method.self, ViewOf::kItems);
    if (name == "keys") return make_view(method.self, ViewOf::kKeys);
    if (name == "values") return make_view(method.self, ViewOf::kValues);
    return method.self;  // copy: nothing can change it
}

Value call_list_method(Runtime& rt, const Method& method, const Args& args) {
    std::string_view name = method.name.view();
    if (name == "copy") {
        expect_no_args(rt, name, args);
        return method.self;
    }
    if (!args.named.empty()) rt.fail("{} takes no named arguments", name);
    constexpr std::array<std::string_view, 3> kNames = {"value", "start", "stop"};
    auto [wanted, start, stop] = bind(rt, name, args, kNames, 1);
    Items items = method.self.items;
    if (name == "count") {
        if (args.positional.size() > 1) rt.fail("count takes one argument");
        int64_t n = 0;
        for (const Value& item : items) n += are_equal(rt, item, wanted) ? 1 : 0;
        return Value::of_int(n);
    }
    auto place = [&](const Value& value, int64_t fallback) {
        if (value.is_missing()) return fallback;
        int64_t at = expect_int(rt, value, "index: a bound");
        auto size = static_cast<int64_t>(items.size);
        return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
    };
    int64_t end = place(stop, static_cast<int64_t>(items.size));
    for (int64_t i = place(start, 0); i < end; i++) {
        if (are_equal(rt, items.data[i], wanted)) return Value::of_int(i);
    }
    rt.fail("index: the value is not in the {}", type_name(method.self));
}

Value call_cycler_method(Runtime& rt, const Method& method, const Args& args) {
    expect_no_args(rt, method.name.view(), args);
    Cycler& cycler = *method.self.cycler;
    if (method.name.view() == "reset") {
        cycler.position = 0;
        return Value::none();
    }
    const Value& current = cycler.items.data[cycler.position];
    cycler.position = (cycler.position + 1) % cycler.items.size;
    return current;
}

}  // namespace

Value call_method(Runtime& rt, const Method& method, const Args& args) {
    switch (method.self.kind) {
        case Kind::kString:
            return call_string_method(rt, method, args);
        case Kind::kDict:
            return call_dict_method(rt, method, args);
        case Kind::kLoop:
            return loop_method(rt, *method.self.loop, method.name.view(), args);
        case Kind::kCycler:
            return call_cycler_method(rt, method, args);
        default:
            return call_list_method(rt, method, args);
    }
}

}  // namespace ridge::jinja
