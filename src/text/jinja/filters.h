#pragma once

#include <array>
#include <span>
#include <string_view>

#include "text/jinja/operators.h"
#include "text/jinja/runtime.h"

namespace ridge::jinja {

// The filters and tests of Jinja by name. A name that Jinja has and this interpreter has not is
// known, and an error when it is used.
bool is_filter(std::string_view name);
bool is_test(std::string_view name);
Value apply_filter(Runtime& rt, const Str& name, const Value& subject, const Args& args);
bool apply_test(Runtime& rt, const Str& name, const Value& subject, const Args& args);

// One row of a table of filters.
struct FilterRow {
    std::string_view name;
    Value (*apply)(Runtime& rt, const Value& subject, const Args& args);
};
std::span<const FilterRow> text_filters();      // text_filters.cpp
std::span<const FilterRow> sequence_filters();  // sequence_filters.cpp

// What both files of filters read arguments with.
template <size_t N>
using Names = std::array<std::string_view, N>;

inline bool flag(const Value& value) {
    return !value.is_missing() && is_true(value);
}

}  // namespace ridge::jinja
