#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ridge {

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;  // of a text that is read whole
constexpr size_t kMaxLineBytes = size_t{16} << 20;     // of a line that is read by itself

// The text in a file, or on standard input where `path` is "-".
std::string read_text(const std::string& path);

// The next line of standard input, without its end ("\n" or "\r\n"); false where there is none.
// Error, with `number`, where it is longer than kMaxLineBytes: what follows is not read.
bool read_line(std::string& line, int64_t number);

// Error, with the place, where the text is not UTF-8; `what` names it.
void check_utf8(std::string_view text, std::string_view what);

// "standard input" for "-"; of another path what can be printed.
std::string name_of_file(const std::string& path);

// Without the newline that editors and echo put at the end of a text; at most one.
std::string without_last_newline(std::string text);

bool stdin_is_terminal();
bool stderr_is_terminal();

}  // namespace ridge
