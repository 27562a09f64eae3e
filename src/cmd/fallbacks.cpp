#include "cmd/fallbacks.h"

#include <fmt/format.h>

#include "base/json.h"

namespace ridge {

std::string fallbacks_text(std::span<const Fallback> fallbacks) {
    std::string text;
    for (size_t i = 0; i < fallbacks.size(); i++) {
        const Fallback& one = fallbacks[i];
        const bool goes_on = i + 1 < fallbacks.size() && fallbacks[i + 1].reason == one.reason;
        text += fmt::format("{} by {}", one.node, one.ran);
        if (!goes_on) text += fmt::format(": {}", one.reason);
        if (i + 1 < fallbacks.size()) text += goes_on ? ", " : "; ";
    }
    return text;
}

nlohmann::ordered_json fallbacks_json(std::span<const Fallback> fallbacks) {
    Json list = Json::array();
    for (const Fallback& one : fallbacks) {
        Json json;
        json["op"] = std::string(one.node);
        json["ran"] = std::string(one.ran);
        json["skipped"] = std::string(one.skipped);
        json["reason"] = std::string(one.reason);
        list.push_back(std::move(json));
    }
    return list;
}

}  // namespace ridge
