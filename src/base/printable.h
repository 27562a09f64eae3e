#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ridge {

// The text with every byte that could steer a terminal made visible: ESC and the C0 controls as
// \xNN (newline and tab stay when `multi_line`), DEL, the C1 controls (U+0080..U+009F) as \u00NN,
// bytes that are not UTF-8 as \xNN. `max_bytes` > 0 cuts long text and ends it in "...".
std::string printable(std::string_view text, size_t max_bytes = 200, bool multi_line = false);

// "1 token", "2 tokens".
std::string counted(int64_t n, std::string_view noun);

}  // namespace ridge
