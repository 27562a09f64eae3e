#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ridge {

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;  // of a text that is read whole

// The text in a file, or on standard input where `path` is "-".
std::string read_text(const std::string& path);

// Without the newline that editors and echo put at the end of a text; at most one.
std::string without_last_newline(std::string text);

bool stdin_is_terminal();
bool stderr_is_terminal();

}  // namespace ridge
