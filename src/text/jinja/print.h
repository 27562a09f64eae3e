#pragma once

#include <string>

#include "text/jinja/runtime.h"

namespace ridge::jinja {

// str(value). Text keeps its origin; the quotes, brackets and escapes of a container or of repr are
// never trusted.
Str to_text(Runtime& rt, const Value& value);
Str soft_text(Runtime& rt, const Value& value);  // the same, but keeps that it is markup
void append_text(Runtime& rt, TextBuilder& out, const Value& value);
void append_repr(Runtime& rt, TextBuilder& out, const Value& value);   // repr(value)
void append_ascii(Runtime& rt, TextBuilder& out, const Value& value);  // ascii(value)
std::string scalar_text(const Value& value);  // of None, a bool or a number

// json.dumps(value, ...): what the filter tojson of a chat template does.
struct JsonStyle {
    bool ensure_ascii = false, sort_keys = false, pretty = false;
    Str indent;  // one level of it, where pretty
    Str item_separator, key_separator;
};
Str to_json(Runtime& rt, const Value& value, const JsonStyle& style);

}  // namespace ridge::jinja
