#include <cmath>

#include "text/jinja/attributes.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace ridge::jinja {
namespace {

template <Str (*Map)(Runtime&, const Str&)>
Value filter_map_text(Runtime& rt, const Value& subject, const Args& args) {
    expect_no_args(rt, "the filter", args);
    return Value::of(Map(rt, soft_text(rt, subject)));
}

Value filter_trim(Runtime& rt, const Value& subject, const Args& args) {
    auto [chars] = bind(rt, "trim", args, Names<1>{"chars"});
    return Value::of(strip(rt, soft_text(rt, subject), chars, Side::kBoth));
}

Value filter_string(Runtime& rt, const Value& subject, const Args& args) {
    expect_no_args(rt, "string", args);
    return Value::of(soft_text(rt, subject));
}

Value filter_safe(Runtime& rt, const Value& subject, const Args& args) {
    expect_no_args(rt, "safe", args);
    Str text = soft_text(rt, subject);
    text.markup = true;
    return Value::of(text);
}

Value filter_escape(Runtime& rt, const Value& subject, const Args& args) {
    expect_no_args(rt, "escape", args);
    return Value::of(escape_html(rt, soft_text(rt, subject)));
}

Value filter_replace(Runtime& rt, const Value& subject, const Args& args) {
    auto [from, to, count] = bind(rt, "replace", args, Names<3>{"old", "new", "count"}, 2);
    int64_t max_times =
        count.is_missing() || count.is_none() ? -1 : expect_int(rt, count, "replace: count");
    return Value::of(
        replace(rt, to_text(rt, subject), to_text(rt, from), to_text(rt, to), max_times));
}

Value filter_center(Runtime& rt, const Value& subject, const Args& args) {
    auto [width] = bind(rt, "center", args, Names<1>{"width"});
    int64_t n = width.is_missing() ? 80 : expect_int(rt, width, "center: width");
    return Value::of(center(rt, soft_text(rt, subject), n, Str::of(" ", false)));
}

Value filter_indent(Runtime& rt, const Value& subject, const Args& args) {
    auto [width, first, blank] = bind(rt, "indent", args, Names<3>{"width", "first", "blank"});
    if (subject.is_undefined()) fail_undefined(rt, subject);
    Str text = expect_string(rt, subject, "indent: the value");
    Str indent = Str::of("    ", false);
    if (width.is_string()) {
        indent = width.text;
    } else if (!width.is_missing()) {
        Value space = Value::of(Str::of(" ", false));
        int64_t n = expect_int(rt, width, "indent: width");
        indent = arithmetic(rt, Op::kMul, space, Value::of_int(n)).text;
    }
    // Jinja adds a newline before it splits, so that the last line counts when it is empty.
    std::vector<Str> lines = split_lines(rt, rt.concat(text, Str::of("\n", false)), false);
    TextBuilder out(rt);
    if (flag(first)) out.append(indent);
    for (size_t i = 0; i < lines.size(); i++) {
        rt.step();
        if (i > 0) {
            out.append("\n", false);
            if (flag(blank) || !lines[i].empty()) out.append(indent);
        }
        out.append(lines[i]);
    }
    Str result = out.finish();
    result.markup = text.markup;
    return Value::of(result);
}

Value filter_word_count(Runtime& rt, const Value& subject, const Args& args) {
    expect_no_args(rt, "wordcount", args);
    Str text = soft_text(rt, subject);
    rt.touch(text.size);
    int64_t count = 0;
    bool in_word = false;
    for (size_t at = 0; at < text.size; at += utf8_length(text.data[at])) {
        std::string_view one = text.view().substr(at, utf8_length(text.data[at]));
        bool part = one == "_" || all_chars(rt, one, CharClass::kAlnum);
        count += part && !in_word ? 1 : 0;
        in_word = part;
    }
    return Value::of_int(count);
}

Value filter_format(Runtime& rt, const Value& subject, const Args& args) {
    if (!args.positional.empty() && !args.named.empty()) {
        rt.fail("format takes values by order or by name, not both");
    }
    Str format = soft_text(rt, subject);
    if (args.named.empty()) {
        return Value::of(format_percent(rt, format, rt.make_list(args.positional, Kind::kTuple)));
    }
    DictBuilder dict(rt);
    for (const auto& [name, value] : args.named) dict.set(Value::of(name), value);
    return Value::of(format_percent(rt, format, dict.finish()));
}

Value filter_to_json(Runtime& rt, const Value& subject, const Args& args) {
    auto [ensure_ascii, indent, separators, sort_keys] =
        bind(rt, "tojson", args, Names<4>{"ensure_ascii", "indent", "separators", "sort_keys"});
    JsonStyle style;
    style.ensure_ascii = flag(ensure_ascii);
    style.sort_keys = flag(sort_keys);
    style.pretty = !indent.is_missing() && !indent.is_none();
    style.item_separator = Str::of(style.pretty ? "," : ", ", false);
    style.key_separator = Str::of(": ", false);
    if (style.pretty && indent.is_string()) {
        style.indent = indent.text;
    } else if (style.pretty) {
        Value n = Value::of_int(expect_int(rt, indent, "tojson: indent"));
        style.indent = arithmetic(rt, Op::kMul, Value::of(Str::of(" ", false)), n).text;
    }
    if (!separators.is_missing() && !separators.is_none()) {
        Items pair = items_of(rt, separators);
        if (pair.size != 2) rt.fail("tojson: separators are {} values, expected 2", pair.size);
        style.item_separator = expect_string(rt, pair.data[0], "tojson: a separator");
        style.key_separator = expect_string(rt, pair.data[1], "tojson: a separator");
    }
    return Value::of(to_json(rt, subject, style));
}

Value filter_default(Runtime& rt, const Value& subject, const Args& args) {
    auto [fallback, boolean] = bind(rt, "default", args, Names<2>{"default_value", "boolean"});
    bool missing = subject.is_undefined() || (flag(boolean) && !is_true(subject));
    if (!missing) return subject;
    return fallback.is_missing() ? Value::literal("") : fallback;
}

Value filter_attr(Runtime& rt, const Value& subject, const Args& args) {
    auto [name_value] = bind(rt, "attr", args, Names<1>{"name"}, 1);
    if (subject.is_undefined()) fail_undefined(rt, subject);
    Str name = expect_string(rt, name_value, "attr: name");
    Value found = find_attribute(rt, subject, name);
    return found.is_missing() ? Value::undefined(name, Absent::kAttribute) : found;
}

// Numbers.

bool text_trusted(const Value& value) {
    return value.is_string() ? value.text.all_trusted() : value.trusted;
}

Value whole_part(Runtime& rt, double real, bool trusted) {
    if (std::isinf(real)) rt.fail("int: infinity is no integer");
    if (!(std::fabs(real) < 9223372036854775808.0)) {
        rt.fail("int: {} does not fit a 64-bit integer", real);
    }
    return Value::of_int(static_cast<int64_t>(real), trusted);
}

Value filter_int(Runtime& rt, const Value& subject, const Args& args) {
    auto [fallback_value, base_value] = bind(rt, "int", args, Names<2>{"default", "base"});
    Value fallback = fallback_value.is_missing() ? Value::of_int(0) : fallback_value;
    if (subject.is_undefined()) fail_undefined(rt, subject);
    if (subject.is_integral()) return Value::of_int(subject.integer, subject.trusted);
    if (subject.is(Kind::kBigInt)) return subject;
    if (subject.is(Kind::kFloat)) {
        return std::isnan(subject.real) ? fallback : whole_part(rt, subject.real, subject.trusted);
    }
    if (!subject.is_string()) return fallback;
    int64_t base = base_value.is_missing() ? 10 : expect_int(rt, base_value, "int: base");
    rt.touch(subject.text.size);
    bool trusted = text_trusted(subject);
    if (base == 0 || (base >= 2 && base <= 36)) {
        std::optional<ParsedInt> parsed = parse_int(subject.text.view(), static_cast<int>(base));
        if (parsed && !parsed->fits) rt.fail("int: the number does not fit a 64-bit integer");
        if (parsed) return Value::of_int(parsed->value, trusted);
    }
    std::optional<double> real = parse_real(subject.text.view());
    if (!real || !std::isfinite(*real)) return fallback;
    return whole_part(rt, *real, trusted);
}

Value filter_float(Runtime& rt, const Value& subject, const Args& args) {
    auto [fallback] = bind(rt, "float", args, Names<1>{"default"});
    if (subject.is_undefined()) fail_undefined(rt, subject);
    if (subject.is_number()) return Value::of_real(to_real(subject), subject.trusted);
    if (subject.is_string()) {
        rt.touch(subject.text.size);
        std::optional<double> real = parse_real(subject.text.view());
        if (real) return Value::of_real(*real, text_trusted(subject));
    }
    return fallback.is_missing() ? Value::of_real(0) : fallback;
}

Value filter_abs(Runtime& rt, const Value& subject, const Args& args) {
    expect_no_args(rt, "abs", args);
    if (subject.is_undefined()) fail_undefined(rt, subject);
    if (!subject.is_number()) rt.fail("abs: a {} is not a number", type_name(subject));
    if (subject.is(Kind::kFloat)) return Value::of_real(std::fabs(subject.real), subject.trusted);
    if (subject.is_integral() && subject.integer < 0) return negate(rt, subject);
    return plus(rt, subject);
}

Value round_int(Runtime& rt, const Value& value, int64_t n_digits) {
    if (n_digits >= 0 || value.is(Kind::kBigInt)) return plus(rt, value);
    int64_t unit = 1;
    for (int64_t i = n_digits; i < 0; i++) {
        if (__builtin_mul_overflow(unit, int64_t{10}, &unit)) return Value::of_int(0);
    }
    int64_t rest = value.integer % unit, low = value.integer - rest;
    if (rest < 0) rest += unit, low -= unit;
    bool up = rest > unit - rest || (rest == unit - rest && (low / unit) % 2 != 0);
    return up ? add(rt, Value::of_int(low), Value::of_int(unit)) : Value::of_int(low);
}

Value filter_round(Runtime& rt, const Value& subject, const Args& args) {
    auto [precision, method] = bind(rt, "round", args, Names<2>{"precision", "method"});
    std::string_view how = "common";
    if (!method.is_missing()) how = expect_string(rt, method, "round: method").view();
    if (how != "common" && how != "ceil" && how != "floor") {
        rt.fail("round: the method is not common, ceil or floor");
    }
    int64_t n = precision.is_missing() ? 0 : expect_int(rt, precision, "round: precision");
    if (!subject.is_number()) rt.fail("round: a {} is not a number", type_name(subject));
    Value result;
    if (how != "common") {
        double unit = std::pow(10.0, static_cast<double>(n));
        double scaled = to_real(subject) * unit;
        if (!std::isfinite(scaled) || unit == 0) rt.fail("round: the number is out of range");
        result = Value::of_real((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
    } else if (subject.is(Kind::kFloat)) {
        result = Value::of_real(round_decimal(subject.real, n));
    } else {
        result = round_int(rt, subject, n);
    }
    result.trusted = subject.trusted;
    return result;
}

constexpr FilterRow kFilters[] = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"capitalize", filter_map_text<capitalize>},
    {"center", filter_center},
    {"d", filter_default},
    {"default", filter_default},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"float", filter_float},
    {"format", filter_format},
    {"indent", filter_indent},
    {"int", filter_int},
    {"lower", filter_map_text<lower>},
    {"replace", filter_replace},
    {"round", filter_round},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", filter_map_text<title_filter>},
    {"tojson", filter_to_json},
    {"trim", filter_trim},
    {"upper", filter_map_text<upper>},
    {"wordcount", filter_word_count},
};

}  // namespace

std::span<const FilterRow> text_filters() {
    return kFilters;
}

}  // namespace ridge::jinja
