#pragma once

#include "text/jinja/runtime.h"

namespace ridge::jinja {

// Whether str has this method; an Error for one that Python has and this interpreter has not.
bool is_string_method(Runtime& rt, std::string_view name);
Value call_string_method(Runtime& rt, const Method& method, const Args& args);

}  // namespace ridge::jinja
