#include "text/jinja/filters.h"

#include <algorithm>

#include "base/printable.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace ridge::jinja {
namespace {

// What Jinja has beside the filters of the tables.
constexpr std::string_view kUnsupported[] = {"filesizeformat", "forceescape", "pprint",    "random",
                                             "striptags",      "truncate",    "urlencode", "urlize",
                                             "wordwrap",       "xmlattr"};

const FilterRow* find_filter(std::string_view name) {
    for (std::span<const FilterRow> table : {text_filters(), sequence_filters()}) {
        for (const FilterRow& row : table) {
            if (row.name == name) return &row;
        }
    }
    return nullptr;
}

}  // namespace

bool is_filter(std::string_view name) {
    return find_filter(name) != nullptr ||
           std::find(std::begin(kUnsupported), std::end(kUnsupported), name) !=
               std::end(kUnsupported);
}

Value apply_filter(Runtime& rt, const Str& name, const Value& subject, const Args& args) {
    rt.step();
    const FilterRow* row = find_filter(name.view());
    if (row != nullptr) return row->apply(rt, subject, args);
    std::string shown = printable(name.view(), 60);
    if (is_filter(name.view())) rt.fail("the filter '{}' is not supported", shown);
    rt.fail("unknown filter '{}'", shown);
}

// Tests.

namespace {

using Test = bool (*)(Runtime&, const Value&, const Value&);

bool is_even(Runtime& rt, const Value& value, const Value&) {
    return are_equal(rt, arithmetic(rt, Op::kMod, value, Value::of_int(2)), Value::of_int(0));
}

bool is_odd(Runtime& rt, const Value& value, const Value&) {
    return are_equal(rt, arithmetic(rt, Op::kMod, value, Value::of_int(2)), Value::of_int(1));
}

bool is_divisible(Runtime& rt, const Value& value, const Value& by) {
    return are_equal(rt, arithmetic(rt, Op::kMod, value, by), Value::of_int(0));
}

bool is_same(Runtime& rt, const Value& a, const Value& b) {
    if (a.kind != b.kind) return false;
    switch (a.kind) {
        case Kind::kUndefined:
            return false;  // each look-up gives one of its own
        case Kind::kList:
        case Kind::kTuple:
            return a.items.data == b.items.data && a.items.size == b.items.size;
        case Kind::kDict:
            return a.pairs.data == b.pairs.data && a.pairs.size == b.pairs.size;
        default:
            return are_equal(rt, a, b);
    }
}

template <Op op>
bool test_compare(Runtime& rt, const Value& a, const Value& b) {
    return compare(rt, op, a, b);
}

bool is_callable(const Value& value) {
    switch (value.kind) {
        case Kind::kUndefined:
        case Kind::kMacro:
        case Kind::kFunction:
        case Kind::kMethod:
        case Kind::kLoop:
        case Kind::kJoiner:
            return true;
        default:
            return false;
    }
}

bool is_sequence(const Value& value) {
    return value.is_undefined() || value.is_string() || value.is_sequence() || value.is_dict() ||
           value.is(Kind::kRange);
}

bool is_filter_name(Runtime& rt, const Value& value, const Value&) {
    check_hashable(rt, value);
    return value.is_string() && is_filter(value.text.view());
}

bool is_test_name(Runtime& rt, const Value& value, const Value&) {
    check_hashable(rt, value);
    return value.is_string() && is_test(value.text.view());
}

struct TestRow {
    std::string_view name;
    bool has_argument;
    Test test;
};

#define RIDGE_TEST(body) [](Runtime&, const Value& v, const Value&) -> bool { return body; }
constexpr TestRow kTests[] = {
    {"odd", false, is_odd},
    {"even", false, is_even},
    {"divisibleby", true, is_divisible},
    {"defined", false, RIDGE_TEST(!v.is_undefined())},
    {"undefined", false, RIDGE_TEST(v.is_undefined())},
    {"filter", false, is_filter_name},
    {"test", false, is_test_name},
    {"none", false, RIDGE_TEST(v.is_none())},
    {"boolean", false, RIDGE_TEST(v.is(Kind::kBool))},
    {"false", false, RIDGE_TEST(v.is(Kind::kBool) && v.integer == 0)},
    {"true", false, RIDGE_TEST(v.is(Kind::kBool) && v.integer != 0)},
    {"integer", false, RIDGE_TEST(v.is(Kind::kInt) || v.is(Kind::kBigInt))},
    {"float", false, RIDGE_TEST(v.is(Kind::kFloat))},
    {"lower", false,
     [](Runtime& rt, const Value& v, const Value&) {
         return is_lower_text(rt, to_text(rt, v).view());
     }},
    {"upper", false,
     [](Runtime& rt, const Value& v, const Value&) {
         return is_upper_text(rt, to_text(rt, v).view());
     }},
    {"string", false, RIDGE_TEST(v.is_string())},
    {"mapping", false, RIDGE_TEST(v.is_dict())},
    {"number", false, RIDGE_TEST(v.is_number())},
    {"sequence", false, RIDGE_TEST(is_sequence(v))},
    {"iterable", false, RIDGE_TEST(is_iterable(v) || v.is(Kind::kLoop))},
    {"callable", false, RIDGE_TEST(is_callable(v))},
    {"sameas", true, is_same},
    {"escaped", false, RIDGE_TEST(v.is_string() && v.text.markup)},
    {"in", true, test_compare<Op::kIn>},
    {"==", true, test_compare<Op::kEq>},
    {"eq", true, test_compare<Op::kEq>},
    {"equalto", true, test_compare<Op::kEq>},
    {"!=", true, test_compare<Op::kNe>},
    {"ne", true, test_compare<Op::kNe>},
    {">", true, test_compare<Op::kGt>},
    {"gt", true, test_compare<Op::kGt>},
    {"greaterthan", true, test_compare<Op::kGt>},
    {"ge", true, test_compare<Op::kGe>},
    {">=", true, test_compare<Op::kGe>},
    {"<", true, test_compare<Op::kLt>},
    {"lt", true, test_compare<Op::kLt>},
    {"lessthan", true, test_compare<Op::kLt>},
    {"<=", true, test_compare<Op::kLe>},
    {"le", true, test_compare<Op::kLe>},
};
#undef RIDGE_TEST

const TestRow* find_test(std::string_view name) {
    for (const TestRow& row : kTests) {
        if (row.name == name) return &row;
    }
    return nullptr;
}

}  // namespace

bool is_test(std::string_view name) {
    return find_test(name) != nullptr;
}

bool apply_test(Runtime& rt, const Str& name, const Value& subject, const Args& args) {
    rt.step();
    const TestRow* row = find_test(name.view());
    if (row == nullptr) rt.fail("unknown test '{}'", printable(name.view(), 60));
    size_t n_args = args.positional.size() + args.named.size();
    if (n_args != (row->has_argument ? 1 : 0)) {
        rt.fail("the test '{}' takes {} argument, got {}", row->name,
                row->has_argument ? "one" : "no", n_args);
    }
    if (!args.named.empty()) {
        // The names that Jinja gives the arguments of its tests.
        std::string_view key = args.named[0].first.view();
        bool known = (row->name == "divisibleby" && key == "num") ||
                     (row->name == "sameas" && key == "other") ||
                     (row->name == "in" && key == "seq");
        if (!known) rt.fail("the test '{}' has no argument '{}'", row->name, printable(key, 60));
        return row->test(rt, subject, args.named[0].second);
    }
    return row->test(rt, subject, row->has_argument ? args.positional[0] : Value::missing());
}

}  // namespace ridge::jinja
