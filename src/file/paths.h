#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ridge {

std::string join_path(const std::string& folder, std::string_view name);
std::string folder_of(const std::string& path);  // "." where the path names none
std::string base_name(const std::string& path);
// A name in a folder and nothing else: no '/', not "." or "..", not empty, no zero byte.
bool is_plain_name(std::string_view name);

// The name of one part of a split GGUF model, NAME-00002-of-00003.gguf.
struct SplitName {
    std::string prefix, suffix;  // "NAME", ".gguf" (or another)
    uint32_t number, count;      // 2, 3
};
std::optional<SplitName> parse_split_name(const std::string& path);

}  // namespace ridge
