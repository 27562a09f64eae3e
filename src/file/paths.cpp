#include "file/paths.h"

namespace ridge {

std::string join_path(const std::string& folder, std::string_view name) {
    std::string path = folder;
    if (!path.ends_with('/')) path += '/';
    return path += name;
}

std::string folder_of(const std::string& path) {
    size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

std::string base_name(const std::string& path) {
    size_t slash = path.rfind('/');
    return slash == std::string::npos ? path : path.substr(slash + 1);
}

bool is_plain_name(std::string_view name) {
    return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos &&
           name.find('\0') == name.npos;
}

std::optional<SplitName> parse_split_name(const std::string& path) {
    constexpr size_t kDigits = 5, kLength = 1 + kDigits + 4 + kDigits;  // -00002-of-00003
    size_t name_begin = path.size() - base_name(path).size();
    auto number_at = [&](size_t at) -> std::optional<uint32_t> {
        uint32_t value = 0;
        for (size_t i = at; i < at + kDigits; i++) {
            if (path[i] < '0' || path[i] > '9') return std::nullopt;
            value = value * 10 + static_cast<uint32_t>(path[i] - '0');
        }
        return value;
    };
    for (size_t at = path.size() < kLength ? 0 : path.size() - kLength + 1; at-- > name_begin;) {
        if (path[at] != '-' || path.compare(at + 1 + kDigits, 4, "-of-") != 0) continue;
        auto number = number_at(at + 1), count = number_at(at + 1 + kDigits + 4);
        if (!number || !count) continue;
        return SplitName{path.substr(0, at), path.substr(at + kLength), *number, *count};
    }
    return std::nullopt;
}

}  // namespace ridge
