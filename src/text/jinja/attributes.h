#pragma once

#include "text/jinja/runtime.h"

namespace ridge::jinja {

// value.name and value[key] of a template: an attribute (a method), else an item, and the other way
// round; what is neither is undefined. Names that Jinja's sandbox hides, and methods that would
// change a list or a dict, are undefined too.
Value get_attribute(Runtime& rt, const Value& value, const Str& name);
Value get_item(Runtime& rt, const Value& value, const Value& key);

// The attribute alone, without items; kMissing where there is none.
Value find_attribute(Runtime& rt, const Value& value, const Str& name);

// The path of a filter's `attribute`: "a.b.0", or a number.
Value get_path(Runtime& rt, Value value, const Value& path, const Value& fallback);

// Calls a method that get_attribute gave.
Value call_method(Runtime& rt, const Method& method, const Args& args);

// How a loop shows its state to the template; kept by the interpreter.
Value loop_attribute(Runtime& rt, Loop& loop, const Str& name);
Value loop_method(Runtime& rt, Loop& loop, std::string_view name, const Args& args);
Value macro_attribute(Runtime& rt, const Macro& macro, std::string_view name);

}  // namespace ridge::jinja
