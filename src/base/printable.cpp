#include "base/printable.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace ridge {

std::string printable(std::string_view text, size_t max_bytes, bool multi_line) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        if (max_bytes > 0 && out.size() >= max_bytes) return out + "...";
        Utf8Char c = decode_utf8(text.substr(at));
        if (!c.valid) {
            for (char byte : text.substr(at, c.n_bytes))
                out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
        } else if (multi_line && (c.code == '\n' || c.code == '\t')) {
            out += static_cast<char>(c.code);
        } else if (c.code < 0x20 || c.code == 0x7f) {
            out += fmt::format("\\x{:02x}", c.code);
        } else if (c.code >= 0x80 && c.code < 0xa0) {
            out += fmt::format("\\u{:04x}", c.code);
        } else {
            out += text.substr(at, c.n_bytes);
        }
        at += c.n_bytes;
    }
    return out;
}

std::string counted(int64_t n, std::string_view noun) {
    return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

}  // namespace ridge
