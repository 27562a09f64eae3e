#pragma once

#include "text/jinja/runtime.h"

namespace ridge::jinja {

// format % args, as Python's str does it: one value, a tuple of values, or a dict for %(name)s.
Str format_percent(Runtime& rt, const Str& format, const Value& args);

// format.format(*args, **kwargs): fields by order, number or name, with attributes and items,
// !r and !s, and the common format specifications.
Str format_braces(Runtime& rt, const Str& format, const Args& args);

}  // namespace ridge::jinja
