#include "text/jinja/format.h"

#include <cmath>

#include "base/printable.h"
#include "base/utf8.h"
#include "text/jinja/attributes.h"
#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace ridge::jinja {
namespace {

constexpr int64_t kMaxWidth = 100'000, kMaxPrecision = 1'000;

// What stands between % or : and the type letter.
struct Spec {
    Str fill = Str::of(" ", false);
    char align = '\0';  // < > ^ =
    char sign = '-';    // - + space
    bool sign_given = false, alternate = false, zero = false, has_precision = false;
    char group = '\0';  // , or _
    int64_t width = 0, precision = 0;
    char type = '\0';
};

std::string digits_of(uint64_t value, int base, bool upper) {
    const char* all = upper ? "0123456789ABCDEF" : "0123456789abcdef";
    std::string digits;
    do {
        digits.insert(digits.begin(), all[value % static_cast<uint64_t>(base)]);
        value /= static_cast<uint64_t>(base);
    } while (value > 0);
    return digits;
}

void group_digits(std::string& number, char separator, size_t step) {
    size_t end = number.find_first_not_of("0123456789abcdefABCDEF");
    if (end == std::string::npos) end = number.size();
    for (size_t at = end; at > step; at -= step) number.insert(at - step, 1, separator);
}

// A number's sign, prefix and digits, put into its field.
void append_number(Runtime& rt, TextBuilder& out, const Spec& spec, bool negative,
                   std::string prefix, const std::string& digits, bool trusted) {
    std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
    prefix = sign + prefix;
    int64_t missing = spec.width - static_cast<int64_t>(prefix.size() + digits.size());
    char align = spec.align != '\0' ? spec.align : '>';
    auto fill = [&](int64_t n) {
        for (int64_t i = 0; i < n; i++) {
            rt.step();
            out.append(spec.fill);
        }
    };
    int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
    fill(left);
    out.append(prefix, trusted);
    if (align == '=') fill(missing);
    out.append(digits, trusted);
    if (align == '<' || align == '^') fill(missing - left);
}

void append_int(Runtime& rt, TextBuilder& out, const Spec& spec, const Value& value) {
    bool negative = !value.is(Kind::kBigInt) && value.integer < 0;
    uint64_t size = value.is(Kind::kBigInt) ? value.big
                    : negative              ? ~static_cast<uint64_t>(value.integer) + 1
                                            : static_cast<uint64_t>(value.integer);
    std::string prefix, digits;
    switch (spec.type) {
        case 'x':
        case 'X':
            prefix = spec.type == 'x' ? "0x" : "0X";
            digits = digits_of(size, 16, spec.type == 'X');
            break;
        case 'o':
            prefix = "0o";
            digits = digits_of(size, 8, false);
            break;
        case 'b':
            prefix = "0b";
            digits = digits_of(size, 2, false);
            break;
        default:
            digits = std::to_string(size);
    }
    if (!spec.alternate) prefix.clear();
    if (spec.has_precision && static_cast<int64_t>(digits.size()) < spec.precision) {
        digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
    }
    if (spec.group != '\0') group_digits(digits, spec.group, prefix.empty() ? 3 : 4);
    append_number(rt, out, spec, negative, prefix, digits, value.trusted);
}

void append_real(Runtime& rt, TextBuilder& out, const Spec& spec, const Value& value) {
    double real = to_real(value);
    bool negative = std::signbit(real) && !std::isnan(real);
    std::string digits;
    if (!std::isfinite(real)) {
        bool upper = spec.type == 'F' || spec.type == 'E' || spec.type == 'G';
        digits = std::isnan(real) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
    } else if (spec.type == '\0' && !spec.has_precision) {
        digits = real_text(std::fabs(real));
    } else {
        double shown = std::fabs(real) * (spec.type == '%' ? 100 : 1);
        char style = spec.type == '%'                        ? 'f'
                     : spec.type == '\0' || spec.type == 'n' ? 'g'
                                                             : spec.type;
        int precision = spec.has_precision ? static_cast<int>(spec.precision) : 6;
        digits = printf_real(shown, style, precision, spec.alternate);
        if (spec.type == '\0' && digits.find_first_of(".e") == std::string::npos) digits += ".0";
    }
    if (spec.group != '\0') group_digits(digits, spec.group, 3);
    if (spec.type == '%') digits += '%';
    append_number(rt, out, spec, negative, "", digits, value.trusted);
}

void append_string(Runtime& rt, TextBuilder& out, const Spec& spec, Str text) {
    if (spec.has_precision) {
        text = text.slice(0, byte_of_char(text.view(), spec.precision));
    }
    if (spec.align == '^') {
        int64_t missing = spec.width - count_chars(text.view());
        Str left = pad(rt, text, spec.width - (missing - missing / 2), spec.fill, Side::kRight);
        out.append(missing > 0 ? pad(rt, left, spec.width, spec.fill, Side::kLeft) : text);
        return;
    }
    out.append(
        pad(rt, text, spec.width, spec.fill, spec.align == '>' ? Side::kRight : Side::kLeft));
}

void append_char(Runtime& rt, TextBuilder& out, Spec spec, const Value& value) {
    spec.has_precision = false;
    if (value.is_string() && count_chars(value.text.view()) == 1) {
        return append_string(rt, out, spec, value.text);
    }
    int64_t code = expect_int(rt, value, "%c");
    if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
        rt.fail("%c: {} is not a character", code);
    }
    std::string text;
    append_utf8(text, static_cast<uint32_t>(code));
    append_string(rt, out, spec, rt.copy(text, value.trusted));
}

int64_t read_digits(std::string_view text, size_t& at, int64_t bound, Runtime& rt) {
    int64_t value = 0;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
        value = value * 10 + (text[at++] - '0');
        if (value > bound) rt.fail("format: a width or precision above {}", bound);
    }
    return value;
}

// The values that a % format takes in turn.
class PercentArgs {
  public:
    PercentArgs(Runtime& rt, const Value& args) : rt_(rt), args_(args) {}

    const Value& next() {
        if (args_.is(Kind::kTuple)) {
            if (used_ >= args_.items.size) rt_.fail("%: not enough values for the format");
            return args_.items.data[used_++];
        }
        if (used_ > 0) rt_.fail("%: not enough values for the format");
        used_++;
        return args_;
    }
    const Value& named(const Str& name) {
        if (!args_.is_dict()) rt_.fail("%: the format needs a dict");
        by_name_ = true;
        const Value* value = find_key(args_.pairs, name.view());
        if (value == nullptr) rt_.fail("%: no value '{}'", printable(name.view(), 60));
        return *value;
    }
    void check_all_used() const {
        bool unused = args_.is(Kind::kTuple) ? used_ < args_.items.size
                                             : used_ == 0 && !args_.is_dict() && !is_list_like();
        if (unused && !by_name_) rt_.fail("%: not all values were used by the format");
    }

  private:
    // CPython takes anything with __getitem__ that is neither a tuple nor a str for a mapping.
    bool is_list_like() const {
        return args_.is(Kind::kList) || args_.is(Kind::kRange) || args_.is_undefined();
    }

    Runtime& rt_;
    const Value& args_;
    size_t used_ = 0;
    bool by_name_ = false;
};

void append_percent(Runtime& rt, TextBuilder& out, Spec spec, const Value& value) {
    switch (spec.type) {
        case 's':
            return append_string(rt, out, spec, to_text(rt, value));
        case 'r':
        case 'a': {
            TextBuilder repr(rt);
            if (spec.type == 'r') append_repr(rt, repr, value);
            if (spec.type == 'a') append_ascii(rt, repr, value);
            return append_string(rt, out, spec, repr.finish());
        }
        case 'c':
            return append_char(rt, out, spec, value);
        default:
            break;
    }
    if (value.is_undefined()) fail_undefined(rt, value);
    if (!value.is_number()) rt.fail("%{}: a {} is not a number", spec.type, type_name(value));
    if (spec.zero && spec.align != '<') spec.fill = Str::of("0", false), spec.align = '=';
    switch (spec.type) {
        case 'd':
        case 'i':
        case 'u': {
            spec.alternate = false;
            if (!value.is(Kind::kFloat)) return append_int(rt, out, spec, value);
            double whole = std::trunc(value.real);
            if (!(std::fabs(whole) < 9.2e18)) rt.fail("%d: {} is no 64-bit integer", value.real);
            return append_int(rt, out, spec,
                              Value::of_int(static_cast<int64_t>(whole), value.trusted));
        }
        case 'x':
        case 'X':
        case 'o':
            if (value.is(Kind::kFloat)) rt.fail("%{}: a float is not an integer", spec.type);
            return append_int(rt, out, spec, value);
        case 'e':
        case 'E':
        case 'f':
        case 'F':
        case 'g':
        case 'G':
            return append_real(rt, out, spec, value);
        default:
            rt.fail("%: unknown type '{}'", printable({&spec.type, 1}));
    }
}

}  // namespace

Str format_percent(Runtime& rt, const Str& format, const Value& args_value) {
    PercentArgs args(rt, args_value);
    TextBuilder out(rt);
    std::string_view text = format.view();
    size_t plain = 0;
    for (size_t at = text.find('%'); at != std::string_view::npos; at = text.find('%', plain)) {
        rt.step();
        out.append(format.slice(plain, at++));
        Spec spec;
        const Value* value = nullptr;
        if (at < text.size() && text[at] == '(') {
            size_t end = text.find(')', at);
            if (end == std::string_view::npos) rt.fail("%: a '(' without its ')'");
            value = &args.named(format.slice(at + 1, end));
            at = end + 1;
        }
        for (;
             at < text.size() && std::string_view("-+ #0").find(text[at]) != std::string_view::npos;
             at++) {
            if (text[at] == '-') spec.align = '<';
            if (text[at] == '+') spec.sign = '+';
            if (text[at] == ' ' && spec.sign == '-') spec.sign = ' ';
            if (text[at] == '#') spec.alternate = true;
            if (text[at] == '0') spec.zero = true;
        }
        if (spec.align == '\0') spec.align = '>';
        auto size = [&](int64_t bound) {
            if (at >= text.size() || text[at] != '*') return read_digits(text, at, bound, rt);
            at++;
            int64_t n = expect_int(rt, args.next(), "%: a width");
            if (n > bound || n < -bound) rt.fail("format: a width or precision above {}", bound);
            return n;
        };
        spec.width = size(kMaxWidth);
        if (spec.width < 0) spec.align = '<', spec.width = -spec.width;
        if (at < text.size() && text[at] == '.') {
            at++;
            spec.has_precision = true;
            spec.precision = std::max<int64_t>(size(kMaxPrecision), 0);
        }
        while (at < text.size() && (text[at] == 'l' || text[at] == 'h' || text[at] == 'L')) at++;
        if (at >= text.size()) rt.fail("%: the format ends in the middle");
        spec.type = text[at];
        plain = at + 1;
        if (spec.type == '%') {
            out.append(format.slice(at, at + 1));
        } else {
            append_percent(rt, out, spec, value != nullptr ? *value : args.next());
        }
    }
    args.check_all_used();
    out.append(format.slice(plain, format.size));
    Str result = out.finish();
    result.markup = format.markup;
    return result;
}

// str.format.

namespace {

bool is_align(char c) {
    return c == '<' || c == '>' || c == '^' || c == '=';
}

Spec parse_spec(Runtime& rt, const Str& text) {
    Spec spec;
    std::string_view view = text.view();
    size_t at = 0;
    size_t first = view.empty() ? 0 : utf8_length(view[0]);
    if (first < view.size() && is_align(view[first])) {
        spec.fill = text.slice(0, first);
        spec.align = view[first];
        at = first + 1;
    } else if (!view.empty() && is_align(view[0])) {
        spec.align = view[0];
        at = 1;
    }
    auto take = [&](std::string_view set) {
        return at < view.size() && set.find(view[at]) != std::string_view::npos ? view[at++] : '\0';
    };
    if (char sign = take("+- ")) spec.sign = sign, spec.sign_given = true;
    spec.alternate = take("#") != '\0';
    spec.zero = take("0") != '\0' && spec.align == '\0';
    if (spec.zero) spec.fill = Str::of("0", false);
    spec.width = read_digits(view, at, kMaxWidth, rt);
    spec.group = take(",_");
    if (take(".") != '\0') {
        spec.has_precision = true;
        size_t start = at;
        spec.precision = read_digits(view, at, kMaxPrecision, rt);
        if (at == start) rt.fail("format: a '.' without a precision");
    }
    if (at < view.size()) spec.type = view[at++];
    if (at < view.size()) rt.fail("format: bad specification '{}'", printable(view, 40));
    return spec;
}

void append_field(Runtime& rt, TextBuilder& out, const Value& value, const Str& spec_text) {
    if (spec_text.empty()) return append_text(rt, out, value);
    Spec spec = parse_spec(rt, spec_text);
    constexpr std::string_view kIntTypes = "bcdoxX", kRealTypes = "eEfFgG%";
    auto is_one_of = [&](std::string_view set) {
        return spec.type != '\0' && set.find(spec.type) != std::string_view::npos;
    };
    bool numeric_only =
        spec.align == '=' || spec.sign_given || spec.alternate || spec.group != '\0';
    if (value.is_string() && (spec.type == '\0' || spec.type == 's') && !numeric_only) {
        return append_string(rt, out, spec, value.text);
    }
    if (spec.zero) spec.align = '=';
    bool real = value.is_number() &&
                (is_one_of(kRealTypes) || (value.is(Kind::kFloat) && spec.type == '\0'));
    if (real) {
        if (spec.align == '\0') spec.align = '>';
        return append_real(rt, out, spec, value);
    }
    bool integer = value.is_number() && !value.is(Kind::kFloat) && !spec.has_precision &&
                   (spec.type == '\0' || is_one_of(kIntTypes));
    if (integer && spec.type == 'c') return append_char(rt, out, spec, value);
    if (integer) return append_int(rt, out, spec, value);
    rt.fail("format: bad specification '{}' for a {}", printable(spec_text.view(), 40),
            type_name(value));
}

class BraceFormatter {
  public:
    BraceFormatter(Runtime& rt, const Args& args) : rt_(rt), args_(args) {}

    Str format(const Str& text, int levels_left) {
        if (levels_left == 0) rt_.fail("format: fields nested too deep");
        TextBuilder out(rt_);
        std::string_view view = text.view();
        size_t plain = 0;
        for (size_t at = view.find_first_of("{}"); at != std::string_view::npos;
             at = view.find_first_of("{}", plain)) {
            rt_.step();
            out.append(text.slice(plain, at));
            if (at + 1 < view.size() && view[at + 1] == view[at]) {
                out.append(text.slice(at, at + 1));
                plain = at + 2;
                continue;
            }
            if (view[at] == '}') rt_.fail("format: a single '}}'");
            size_t end = field_end(view, at + 1);
            append(out, text.slice(at + 1, end), levels_left);
            plain = end + 1;
        }
        out.append(text.slice(plain, text.size));
        return out.finish();
    }

  private:
    size_t field_end(std::string_view view, size_t at) const {
        int open = 1;
        for (; at < view.size(); at++) {
            if (view[at] == '{') open++;
            if (view[at] == '}' && --open == 0) return at;
        }
        rt_.fail("format: a '{{' without its '}}'");
    }

    void append(TextBuilder& out, const Str& field, int levels_left) {
        std::string_view view = field.view();
        size_t name_end = std::min(view.find_first_of("!:"), view.size());
        Value value = look_up(field.slice(0, name_end));
        size_t at = name_end;
        if (at < view.size() && view[at] == '!') {
            char kind = at + 1 < view.size() ? view[at + 1] : '\0';
            if (kind != 'r' && kind != 's' && kind != 'a') rt_.fail("format: bad conversion");
            TextBuilder converted(rt_);
            if (kind == 's') append_text(rt_, converted, value);
            if (kind == 'r') append_repr(rt_, converted, value);
            if (kind == 'a') append_ascii(rt_, converted, value);
            value = Value::of(converted.finish());
            at += 2;
            if (at < view.size() && view[at] != ':') rt_.fail("format: bad conversion");
        }
        Str spec = at < view.size() ? field.slice(at + 1, field.size) : Str{};
        if (spec.view().find('{') != std::string_view::npos) spec = format(spec, levels_left - 1);
        append_field(rt_, out, value, spec);
    }

    Value look_up(const Str& name) {
        std::string_view view = name.view();
        size_t end = std::min(view.find_first_of(".["), view.size());
        Value value = first(view.substr(0, end));
        for (size_t at = end; at < view.size();) {
            rt_.step();
            if (view[at] == '.') {
                size_t stop = std::min(view.find_first_of(".[", at + 1), view.size());
                if (stop == at + 1) rt_.fail("format: an empty attribute");
                value = get_attribute(rt_, value, name.slice(at + 1, stop));
                at = stop;
                continue;
            }
            size_t stop = view.find(']', at);
            if (view[at] != '[' || stop == std::string_view::npos || stop == at + 1) {
                rt_.fail("format: bad field '{}'", printable(view, 40));
            }
            Str key = name.slice(at + 1, stop);
            std::optional<int64_t> index = as_index(key.view());
            value = get_item(rt_, value, index ? Value::of_int(*index) : Value::of(key));
            at = stop + 1;
        }
        return value;
    }

    static std::optional<int64_t> as_index(std::string_view text) {
        if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) {
            return std::nullopt;
        }
        std::optional<ParsedInt> parsed = parse_int(text, 10);
        return parsed && parsed->fits ? std::optional<int64_t>(parsed->value) : std::nullopt;
    }

    const Value& first(std::string_view name) {
        std::optional<int64_t> index = as_index(name);
        if (name.empty() || index) {
            if (name.empty() == numbered_ && started_) {
                rt_.fail("format: numbered and unnumbered fields together");
            }
            started_ = true;
            numbered_ = !name.empty();
            size_t at = index ? static_cast<size_t>(*index) : next_++;
            if (at >= args_.positional.size()) rt_.fail("format: no value for field {}", at);
            return args_.positional[at];
        }
        for (const auto& [key, value] : args_.named) {
            if (key.view() == name) return value;
        }
        rt_.fail("format: no value '{}'", printable(name, 60));
    }

    Runtime& rt_;
    const Args& args_;
    size_t next_ = 0;
    bool started_ = false, numbered_ = false;
};

}  // namespace

Str format_braces(Runtime& rt, const Str& format, const Args& args) {
    return BraceFormatter(rt, args).format(format, 3);
}

}  // namespace ridge::jinja
