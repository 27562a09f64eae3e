#include "text/jinja/string_methods.h"

#include <algorithm>
#include <cstring>

#include "text/jinja/format.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace ridge::jinja {
namespace {

using Names1 = std::array<std::string_view, 1>;
using Names2 = std::array<std::string_view, 2>;
using Names3 = std::array<std::string_view, 3>;

template <size_t N>
std::array<Value, N> bind_positional(Runtime& rt, std::string_view callee, const Args& args,
                                     const std::array<std::string_view, N>& names,
                                     size_t n_required) {
    if (!args.named.empty()) rt.fail("{} takes no named arguments", callee);
    return bind(rt, callee, args, names, n_required);
}

Value list_of(Runtime& rt, const std::vector<Str>& parts, Kind kind = Kind::kList) {
    rt.step(parts.size());
    Value* data = rt.create<Value>(parts.size());
    for (size_t i = 0; i < parts.size(); i++) data[i] = Value::of(parts[i]);
    return Value::list(data, parts.size(), kind);
}

Value call_strip(Runtime& rt, const Method& method, const Args& args, Side side) {
    auto [chars] = bind_positional(rt, method.name.view(), args, Names1{"chars"}, 0);
    return Value::of(strip(rt, method.self.text, chars, side));
}

Value call_split(Runtime& rt, const Method& method, const Args& args) {
    auto [separator, max_value] = bind(rt, method.name.view(), args, Names2{"sep", "maxsplit"}, 0);
    int64_t max_splits = max_value.is_missing() ? -1 : expect_int(rt, max_value, "split: maxsplit");
    bool right = method.name.view() == "rsplit";
    const Str& text = method.self.text;
    if (separator.is_missing() || separator.is_none()) {
        return list_of(
            rt, right ? rsplit_space(rt, text, max_splits) : split_space(rt, text, max_splits));
    }
    Str by = expect_string(rt, separator, "split: the separator");
    return list_of(rt, right ? rsplit(rt, text, by, max_splits) : split(rt, text, by, max_splits));
}

Value call_partition(Runtime& rt, const Method& method, const Args& args) {
    auto [separator] = bind_positional(rt, method.name.view(), args, Names1{"sep"}, 1);
    Str by = expect_string(rt, separator, "partition: the separator");
    const Str& text = method.self.text;
    if (by.empty()) rt.fail("partition: empty separator");
    rt.touch(text.size);
    bool right = method.name.view() == "rpartition";
    size_t at = right ? rfind_text(rt, text.view(), by.view()) : find_text(text.view(), by.view());
    Str none = text.slice(0, 0);
    if (at == std::string_view::npos) {
        return right ? list_of(rt, {none, none, text}, Kind::kTuple)
                     : list_of(rt, {text, none, none}, Kind::kTuple);
    }
    // The separator as the text has it, with the text's origin.
    size_t end = at + by.size;
    return list_of(rt, {text.slice(0, at), text.slice(at, end), text.slice(end, text.size)},
                   Kind::kTuple);
}

// The part of the text that find, count and startswith look at.
struct Window {
    Str text;
    int64_t start;  // in characters
    bool exists;    // false: it begins behind the end, so that not even "" is found
};

Window window_of(Runtime& rt, const Str& text, const Value& start_value, const Value& end_value) {
    if (start_value.is_missing() && end_value.is_missing()) return {text, 0, true};
    int64_t n = count_chars(text.view());
    auto place = [&](const Value& value, int64_t fallback) {
        if (value.is_missing() || value.is_none()) return fallback;
        int64_t at = expect_int(rt, value, "a bound");
        return at < 0 ? std::max<int64_t>(at + n, 0) : at;
    };
    int64_t start = place(start_value, 0), end = std::min(place(end_value, n), n);
    if (start > n || start > end) return {text.slice(0, 0), start, false};
    size_t from = byte_of_char(text.view(), start);
    size_t size = byte_of_char(text.view().substr(from), end - start);
    return {text.slice(from, from + size), start, true};
}

Value call_starts_or_ends(Runtime& rt, const Method& method, const Args& args) {
    std::string_view name = method.name.view();
    auto [affix, start, end] = bind_positional(rt, name, args, Names3{"prefix", "start", "end"}, 1);
    Window window = window_of(rt, method.self.text, start, end);
    auto fits = [&](const Value& value) {
        std::string_view part = expect_string(rt, value, name).view();
        std::string_view text = window.text.view();
        if (!window.exists || part.size() > text.size()) return false;
        rt.touch(part.size());
        return name == "startswith" ? text.substr(0, part.size()) == part
                                    : text.substr(text.size() - part.size()) == part;
    };
    if (!affix.is(Kind::kTuple)) return Value::of(fits(affix));
    return Value::of(std::any_of(affix.items.begin(), affix.items.end(), fits));
}

Value call_find(Runtime& rt, const Method& method, const Args& args) {
    std::string_view name = method.name.view();
    auto [needle_value, start, end] =
        bind_positional(rt, name, args, Names3{"sub", "start", "end"}, 1);
    Str needle = expect_string(rt, needle_value, name);
    Window window = window_of(rt, method.self.text, start, end);
    rt.touch(window.text.size);
    if (name == "count") {
        return Value::of_int(window.exists ? count_text(rt, window.text.view(), needle.view()) : 0);
    }
    size_t at = std::string_view::npos;
    if (window.exists) {
        bool right = name == "rfind" || name == "rindex";
        at = right ? rfind_text(rt, window.text.view(), needle.view())
                   : find_text(window.text.view(), needle.view());
    }
    if (at != std::string_view::npos) {
        return Value::of_int(window.start + count_chars(window.text.view().substr(0, at)));
    }
    if (name == "index" || name == "rindex") rt.fail("{}: the text is not there", name);
    return Value::of_int(-1);
}

Value call_replace(Runtime& rt, const Method& method, const Args& args) {
    auto [from, to, count] = bind_positional(rt, "replace", args, Names3{"old", "new", "count"}, 2);
    int64_t max_times = count.is_missing() ? -1 : expect_int(rt, count, "replace: count");
    return Value::of(replace(rt, method.self.text, expect_string(rt, from, "replace: old"),
                             expect_string(rt, to, "replace: new"), max_times));
}

Value call_join(Runtime& rt, const Method& method, const Args& args) {
    auto [iterable] = bind_positional(rt, "join", args, Names1{"iterable"}, 1);
    Items items = items_of(rt, iterable);
    for (const Value& item : items) expect_string(rt, item, "join: an item");
    return Value::of(join(rt, method.self.text, items));
}

Value call_pad(Runtime& rt, const Method& method, const Args& args) {
    std::string_view name = method.name.view();
    auto [width_value, fill_value] =
        bind_positional(rt, name, args, Names2{"width", "fillchar"}, 1);
    int64_t width = expect_int(rt, width_value, "the width");
    const Str& text = method.self.text;
    if (name == "zfill") {
        if (!fill_value.is_missing()) rt.fail("zfill takes one argument");
        return Value::of(zero_fill(rt, text, width));
    }
    Str fill = Str::of(" ", false);
    if (!fill_value.is_missing()) fill = expect_string(rt, fill_value, "the fill character");
    if (count_chars(fill.view()) != 1) rt.fail("{}: the fill is not one character", name);
    if (name == "center") return Value::of(center(rt, text, width, fill));
    return Value::of(pad(rt, text, width, fill, name == "ljust" ? Side::kLeft : Side::kRight));
}

Value call_remove_affix(Runtime& rt, const Method& method, const Args& args) {
    std::string_view name = method.name.view();
    auto [value] = bind_positional(rt, name, args, Names1{"affix"}, 1);
    Str affix = expect_string(rt, value, name);
    const Str& text = method.self.text;
    if (affix.size > text.size) return method.self;
    size_t rest = text.size - affix.size;
    if (name == "removeprefix") {
        bool there = text.slice(0, affix.size).view() == affix.view();
        return there ? Value::of(text.slice(affix.size, text.size)) : method.self;
    }
    bool there = text.slice(rest, text.size).view() == affix.view();
    return there ? Value::of(text.slice(0, rest)) : method.self;
}

Value call_split_lines(Runtime& rt, const Method& method, const Args& args) {
    auto [keep] = bind(rt, "splitlines", args, Names1{"keepends"}, 0);
    bool keep_ends = !keep.is_missing() && expect_int(rt, keep, "keepends") != 0;
    return list_of(rt, split_lines(rt, method.self.text, keep_ends));
}

Value call_expand_tabs(Runtime& rt, const Method& method, const Args& args) {
    auto [size] = bind(rt, "expandtabs", args, Names1{"tabsize"}, 0);
    int64_t n = size.is_missing() ? 8 : expect_int(rt, size, "tabsize");
    return Value::of(expand_tabs(rt, method.self.text, n));
}

template <Str (*Map)(Runtime&, const Str&)>
Value call_map(Runtime& rt, const Method& method, const Args& args) {
    expect_no_args(rt, method.name.view(), args);
    return Value::of(Map(rt, method.self.text));
}

template <CharClass Class>
Value call_class(Runtime& rt, const Method& method, const Args& args) {
    expect_no_args(rt, method.name.view(), args);
    return Value::of(all_chars(rt, method.self.text.view(), Class));
}

template <bool (*Test)(Runtime&, std::string_view)>
Value call_case_test(Runtime& rt, const Method& method, const Args& args) {
    expect_no_args(rt, method.name.view(), args);
    return Value::of(Test(rt, method.self.text.view()));
}

template <Side Where>
Value call_strip_side(Runtime& rt, const Method& method, const Args& args) {
    return call_strip(rt, method, args, Where);
}

Value call_format(Runtime& rt, const Method& method, const Args& args) {
    return Value::of(format_braces(rt, method.self.text, args));
}

struct StringMethod {
    std::string_view name;
    Value (*call)(Runtime&, const Method&, const Args&);  // null: not supported
};

constexpr StringMethod kMethods[] = {
    {"capitalize", call_map<capitalize>},
    {"casefold", call_map<casefold>},
    {"center", call_pad},
    {"count", call_find},
    {"encode", nullptr},
    {"endswith", call_starts_or_ends},
    {"expandtabs", call_expand_tabs},
    {"find", call_find},
    {"format", call_format},
    {"format_map", nullptr},
    {"index", call_find},
    {"isalnum", call_class<CharClass::kAlnum>},
    {"isalpha", call_class<CharClass::kAlpha>},
    {"isascii", call_class<CharClass::kAscii>},
    {"isdecimal", call_class<CharClass::kDecimal>},
    {"isdigit", call_class<CharClass::kDigit>},
    {"isidentifier", nullptr},
    {"islower", call_case_test<is_lower_text>},
    {"isnumeric", call_class<CharClass::kNumeric>},
    {"isprintable", call_class<CharClass::kPrintable>},
    {"isspace", call_class<CharClass::kSpace>},
    {"istitle", call_case_test<is_title_text>},
    {"isupper", call_case_test<is_upper_text>},
    {"join", call_join},
    {"ljust", call_pad},
    {"lower", call_map<lower>},
    {"lstrip", call_strip_side<Side::kLeft>},
    {"maketrans", nullptr},
    {"partition", call_partition},
    {"removeprefix", call_remove_affix},
    {"removesuffix", call_remove_affix},
    {"replace", call_replace},
    {"rfind", call_find},
    {"rindex", call_find},
    {"rjust", call_pad},
    {"rpartition", call_partition},
    {"rsplit", call_split},
    {"rstrip", call_strip_side<Side::kRight>},
    {"split", call_split},
    {"splitlines", call_split_lines},
    {"startswith", call_starts_or_ends},
    {"strip", call_strip_side<Side::kBoth>},
    {"swapcase", call_map<swap_case>},
    {"title", call_map<title>},
    {"translate", nullptr},
    {"upper", call_map<upper>},
    {"zfill", call_pad},
};

const StringMethod* find_method(std::string_view name) {
    for (const StringMethod& row : kMethods) {
        if (row.name == name) return &row;
    }
    return nullptr;
}

}  // namespace

bool is_string_method(Runtime& rt, std::string_view name) {
    const StringMethod* row = find_method(name);
    if (row == nullptr) return false;
    if (row->call == nullptr) rt.fail("the str method '{}' is not supported", name);
    return true;
}

Value call_string_method(Runtime& rt, const Method& method, const Args& args) {
    rt.step();
    return find_method(method.name.view())->call(rt, method, args);
}

}  // namespace ridge::jinja
