#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/str.h"

namespace ridge::jinja {

// The values of a running template. They mirror Python's types, since templates are written against
// them. A Value is a plain handle: what it points at lives in the Runtime (or in the messages, or
// in the template) until the run ends, and is never changed after it was made, except where noted.

enum class Kind : uint8_t {
    kMissing,    // inside the interpreter only: an argument not given, a variable not yet set
    kUndefined,  // prints as nothing, is false; `text` is the name that was asked for
    kNone,
    kBool,
    kInt,
    kBigInt,  // a JSON integer from 2^63 to 2^64 - 1: can be printed and compared, not computed
              // with
    kFloat,
    kString,
    kList,
    kTuple,
    kDict,
    kView,      // dict.keys(), .values(), .items()
    kRange,     // range(...)
    kIterator,  // what `map`, `select` and their like give: read once, always true
    kNamespace,
    kMacro,
    kLoop,
    kFunction,  // a global function: `detail` is its FunctionId
    kMethod,    // a method taken from a value
    kCycler,
    kJoiner,
};

// What an undefined value is missing from, for messages (`detail` of kUndefined).
enum class Absent : uint8_t { kVariable, kAttribute, kForbidden, kHint };
enum class ViewOf : uint8_t { kKeys, kValues, kItems };  // `detail` of kView
enum class TupleOf : uint8_t { kPlain, kGroup };         // kGroup: has .grouper and .list

struct Value;
struct Pair;
struct Iterator;
struct Namespace;
struct Macro;
struct Loop;
struct Method;
struct Cycler;
struct Joiner;

struct Items {  // of kList and kTuple
    const Value* data;
    size_t size;
    const Value* begin() const { return data; }
    const Value* end() const;
};
struct Pairs {  // of kDict and kView, in order of insertion, keys unique
    const Pair* data;
    size_t size;
    const Pair* begin() const { return data; }
    const Pair* end() const;
};
struct Range {
    int64_t start, stop, step;
};

struct Value {
    Kind kind = Kind::kUndefined;
    bool trusted = true;  // of None, numbers and booleans: is their text the template's?
    uint8_t detail = 0;
    union {
        int64_t integer;  // kInt and kBool
        uint64_t big;
        double real;
        Str text;
        Items items;
        Pairs pairs;
        Range range;
        Iterator* iterator;
        Namespace* space;
        Macro* macro;
        Loop* loop;
        Method* method;
        Cycler* cycler;
        Joiner* joiner;
    };

    Value() : text() {}

    static Value missing() { return of_kind(Kind::kMissing); }
    static Value none(bool trusted = true) {
        Value v = of_kind(Kind::kNone);
        v.trusted = trusted;
        return v;
    }
    static Value undefined(Str name, Absent from = Absent::kVariable) {
        Value v = of_kind(Kind::kUndefined);
        v.text = name;
        v.detail = static_cast<uint8_t>(from);
        return v;
    }
    static Value of_hint(std::string_view hint) {  // undefined; a literal says why
        return undefined(Str::of(hint, true), Absent::kHint);
    }
    static Value of(bool b, bool trusted = true) {
        Value v = of_kind(Kind::kBool);
        v.integer = b ? 1 : 0;
        v.trusted = trusted;
        return v;
    }
    static Value of_int(int64_t i, bool trusted = true) {
        Value v = of_kind(Kind::kInt);
        v.integer = i;
        v.trusted = trusted;
        return v;
    }
    static Value of_real(double d, bool trusted = true) {
        Value v = of_kind(Kind::kFloat);
        v.real = d;
        v.trusted = trusted;
        return v;
    }
    static Value of(Str s) {
        Value v = of_kind(Kind::kString);
        v.text = s;
        return v;
    }
    static Value literal(std::string_view s) { return of(Str::of(s, true)); }
    static Value list(const Value* data, size_t size, Kind kind = Kind::kList) {
        Value v = of_kind(kind);
        v.items = {data, size};
        return v;
    }
    static Value dict(const Pair* data, size_t size) {
        Value v = of_kind(Kind::kDict);
        v.pairs = {data, size};
        return v;
    }
    static Value of_kind(Kind kind) {
        Value v;
        v.kind = kind;
        return v;
    }

    bool is(Kind k) const { return kind == k; }
    bool is_missing() const { return kind == Kind::kMissing; }
    bool is_undefined() const { return kind == Kind::kUndefined; }
    bool is_none() const { return kind == Kind::kNone; }
    bool is_string() const { return kind == Kind::kString; }
    bool is_dict() const { return kind == Kind::kDict; }
    bool is_integral() const { return kind == Kind::kInt || kind == Kind::kBool; }
    bool is_number() const {
        return is_integral() || kind == Kind::kFloat || kind == Kind::kBigInt;
    }
    bool is_sequence() const { return kind == Kind::kList || kind == Kind::kTuple; }
};

struct Pair {
    Value key, value;
};

inline const Value* Items::end() const {
    return data + size;
}
inline const Pair* Pairs::end() const {
    return data + size;
}

struct Iterator {  // changes: `position` moves as it is read
    Items items;
    size_t position = 0;
};

struct Namespace {  // changes: `set ns.x = ...`
    Pair* data = nullptr;
    size_t size = 0, capacity = 0;
};

struct Cycler {  // changes: next(), reset()
    Items items;
    size_t position = 0;
};

struct Joiner {  // changes when called
    Value separator;
    bool used = false;
};

struct Method {
    Value self;
    Str name;
};

enum class FunctionId : uint8_t {
    kRange,
    kDict,
    kNamespace,
    kCycler,
    kJoiner,
    kRaiseException,
    kStrftimeNow,
};

// The arguments of a call.
struct Args {
    std::vector<Value> positional;
    std::vector<std::pair<Str, Value>> named;
};

// Python's name of a value's type, for messages.
std::string_view type_name(const Value& value);

}  // namespace ridge::jinja
