#pragma once

#include <span>
#include <string_view>

namespace ridge {

// Chat templates for models whose file has none, in the formats that the models were trained on.
struct NamedTemplate {
    std::string_view name;
    std::string_view source;  // Jinja
};

std::span<const NamedTemplate> named_templates();

}  // namespace ridge
