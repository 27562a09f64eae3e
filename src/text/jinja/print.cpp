#include "text/jinja/print.h"

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace ridge::jinja {
namespace {

void append_string_repr(TextBuilder& out, const Str& text, bool ascii) {
    bool has_single = text.view().find('\'') != std::string_view::npos;
    bool has_double = text.view().find('"') != std::string_view::npos;
    char quote = has_single && !has_double ? '"' : '\'';
    out.append({&quote, 1}, false);
    size_t plain = 0;  // start of what is copied as it is
    for (size_t at = 0; at < text.size;) {
        Utf8Char c = decode_utf8(text.view().substr(at));
        std::string escape;
        if (c.code == '\\' || c.code == static_cast<uint32_t>(quote)) {
            escape = {'\\', static_cast<char>(c.code)};
        } else if (c.code == '\n' || c.code == '\r' || c.code == '\t') {
            escape = c.code == '\n' ? "\\n" : c.code == '\r' ? "\\r" : "\\t";
        } else if (!is_printable(c.code) || (ascii && c.code >= 0x80)) {
            escape = c.code < 0x100     ? fmt::format("\\x{:02x}", c.code)
                     : c.code < 0x10000 ? fmt::format("\\u{:04x}", c.code)
                                        : fmt::format("\\U{:08x}", c.code);
        }
        if (!escape.empty()) {
            out.append(text.slice(plain, at));
            out.append(escape, false);
            plain = at + c.n_bytes;
        }
        at += c.n_bytes;
    }
    out.append(text.slice(plain, text.size));
    out.append({&quote, 1}, false);
}

class Repr {
  public:
    Repr(Runtime& rt, TextBuilder& out, bool ascii) : rt_(rt), out_(out), ascii_(ascii) {}

    void append(const Value& value) {
        Nested nested(rt_);
        rt_.step();
        switch (value.kind) {
            case Kind::kMissing:
            case Kind::kUndefined:
                out_.append("Undefined", false);
                return;
            case Kind::kNone:
            case Kind::kBool:
            case Kind::kInt:
            case Kind::kBigInt:
            case Kind::kFloat:
                out_.append(scalar_text(value), value.trusted);
                return;
            case Kind::kString:
                append_string(value.text);
                return;
            case Kind::kList:
                append_items(value.items, "[", "]", false);
                return;
            case Kind::kTuple:
                append_items(value.items, "(", ")", true);
                return;
            case Kind::kDict:
                append_dict(value.pairs);
                return;
            case Kind::kView:
                append_view(value);
                return;
            case Kind::kRange:
                append_range(value.range);
                return;
            case Kind::kNamespace: {
                out_.append("<Namespace ", false);
                append_dict({value.space->data, value.space->size});
                out_.append(">", false);
                return;
            }
            default:
                rt_.fail("a value of type {} cannot be printed", type_name(value));
        }
    }

  private:
    void append_string(const Str& text) {
        if (!text.markup) return append_string_repr(out_, text, ascii_);
        out_.append("Markup(", false);
        append_string_repr(out_, text, ascii_);
        out_.append(")", false);
    }

    void append_items(Items items, std::string_view open, std::string_view close, bool tuple) {
        out_.append(open, false);
        for (size_t i = 0; i < items.size; i++) {
            if (i > 0) out_.append(", ", false);
            append(items.data[i]);
        }
        if (tuple && items.size == 1) out_.append(",", false);
        out_.append(close, false);
    }

    void append_dict(Pairs pairs) {
        out_.append("{", false);
        for (size_t i = 0; i < pairs.size; i++) {
            if (i > 0) out_.append(", ", false);
            append(pairs.data[i].key);
            out_.append(": ", false);
            append(pairs.data[i].value);
        }
        out_.append("}", false);
    }

    void append_view(const Value& view) {
        constexpr std::string_view kNames[] = {"dict_keys(", "dict_values(", "dict_items("};
        out_.append(kNames[view.detail], false);
        append_items(items_of(rt_, view), "[", "]", false);
        out_.append(")", false);
    }

    void append_range(const Range& range) {
        std::string text = fmt::format("range({}, {}", range.start, range.stop);
        if (range.step != 1) text += fmt::format(", {}", range.step);
        out_.append(text + ")", false);
    }

    Runtime& rt_;
    TextBuilder& out_;
    bool ascii_;
};

// json.dumps.
class JsonWriter {
  public:
    JsonWriter(Runtime& rt, const JsonStyle& style) : rt_(rt), style_(style), out_(rt) {}

    Str write(const Value& value) {
        append(value, 1);
        return out_.finish();
    }

  private:
    void append(const Value& value, int level) {
        Nested nested(rt_);
        rt_.step();
        switch (value.kind) {
            case Kind::kNone:
                out_.append("null", value.trusted);
                return;
            case Kind::kBool:
                out_.append(value.integer != 0 ? "true" : "false", value.trusted);
                return;
            case Kind::kInt:
            case Kind::kBigInt:
                out_.append(scalar_text(value), value.trusted);
                return;
            case Kind::kFloat:
                out_.append(real_json(value.real), value.trusted);
                return;
            case Kind::kString:
                append_string(value.text);
                return;
            case Kind::kList:
            case Kind::kTuple:
                append_list(value.items, level);
                return;
            case Kind::kDict:
                append_dict(value.pairs, level);
                return;
            default:
                rt_.fail("tojson: a value of type {} has no JSON", type_name(value));
        }
    }

    static std::string real_json(double value) {
        if (std::isnan(value)) return "NaN";
        if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
        return real_text(value);
    }

    void new_line(int level) {
        if (!style_.pretty) return;
        out_.append("\n", false);
        for (int i = 0; i < level; i++) {
            rt_.step();
            out_.append(style_.indent);
        }
    }

    void append_list(Items items, int level) {
        if (items.size == 0) return out_.append("[]", false);
        out_.append("[", false);
        for (size_t i = 0; i < items.size; i++) {
            if (i > 0) out_.append(style_.item_separator);
            new_line(level);
            append(items.data[i], level + 1);
        }
        new_line(level - 1);
        out_.append("]", false);
    }

    void append_dict(Pairs pairs, int level) {
        if (pairs.size == 0) return out_.append("{}", false);
        std::vector<const Pair*> order;
        rt_.charge(pairs.size * sizeof(Pair*));
        for (const Pair& pair : pairs) order.push_back(&pair);
        if (style_.sort_keys) {
            stable_sort_by(rt_, order, [&](const Pair* a, const Pair* b) {
                return is_less(rt_, a->key, b->key);
            });
        }
        out_.append("{", false);
        for (size_t i = 0; i < order.size(); i++) {
            if (i > 0) out_.append(style_.item_separator);
            new_line(level);
            append_key(order[i]->key);
            out_.append(style_.key_separator);
            append(order[i]->value, level + 1);
        }
        new_line(level - 1);
        out_.append("}", false);
    }

    void append_key(const Value& key) {
        if (key.is_string()) return append_string(key.text);
        if (!key.is_none() && !key.is_number()) {
            rt_.fail("tojson: a key is a {}, expected str, int, float, bool or None",
                     type_name(key));
        }
        out_.append("\"", false);
        append(key, 0);
        out_.append("\"", false);
    }

    void append_string(const Str& text) {
        out_.append("\"", false);
        size_t plain = 0;
        for (size_t at = 0; at < text.size;) {
            size_t start = at;
            std::string escape = escape_at(text.view(), at);
            if (escape.empty()) continue;
            out_.append(text.slice(plain, start));
            out_.append(escape, false);
            plain = at;
        }
        out_.append(text.slice(plain, text.size));
        out_.append("\"", false);
    }

    // Moves behind one character; gives its escape, or "" where it stands for itself.
    std::string escape_at(std::string_view text, size_t& at) const {
        constexpr std::string_view kSpecial = "\"\\\n\r\t\f\b";
        constexpr std::string_view kEscapes[] = {"\\\"", "\\\\", "\\n", "\\r", "\\t", "\\f", "\\b"};
        auto byte = static_cast<unsigned char>(text[at]);
        if (byte < 0x80) {
            at++;
            size_t special = kSpecial.find(static_cast<char>(byte));
            if (special != std::string_view::npos) return std::string(kEscapes[special]);
            bool hidden = byte < 0x20;
            return hidden ? fmt::format("\\u{:04x}", byte) : "";
        }
        Utf8Char c = decode_utf8(text.substr(at));
        at += c.n_bytes;
        if (!style_.ensure_ascii) return "";
        if (c.code < 0x10000) return fmt::format("\\u{:04x}", c.code);
        uint32_t rest = c.code - 0x10000;
        return fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
    }

    Runtime& rt_;
    const JsonStyle& style_;
    TextBuilder out_;
};

}  // namespace

std::string scalar_text(const Value& value) {
    switch (value.kind) {
        case Kind::kNone:
            return "None";
        case Kind::kBool:
            return value.integer != 0 ? "True" : "False";
        case Kind::kInt:
            return std::to_string(value.integer);
        case Kind::kBigInt:
            return std::to_string(value.big);
        case Kind::kFloat:
            return real_text(value.real);
        default:
            return "";
    }
}

void append_repr(Runtime& rt, TextBuilder& out, const Value& value) {
    Repr(rt, out, false).append(value);
}

void append_ascii(Runtime& rt, TextBuilder& out, const Value& value) {
    Repr(rt, out, true).append(value);
}

void append_text(Runtime& rt, TextBuilder& out, const Value& value) {
    switch (value.kind) {
        case Kind::kString:
            out.append(value.text);
            return;
        case Kind::kUndefined:
            return;
        default:
            append_repr(rt, out, value);
    }
}

Str to_text(Runtime& rt, const Value& value) {
    if (value.is_string()) {
        Str plain = value.text;
        plain.markup = false;
        return plain;
    }
    if (value.is_undefined()) return Str{};
    if (value.is_number() || value.is_none()) return rt.copy(scalar_text(value), value.trusted);
    TextBuilder out(rt);
    append_repr(rt, out, value);
    return out.finish();
}

Str soft_text(Runtime& rt, const Value& value) {
    return value.is_string() ? value.text : to_text(rt, value);
}

Str to_json(Runtime& rt, const Value& value, const JsonStyle& style) {
    return JsonWriter(rt, style).write(value);
}

}  // namespace ridge::jinja
