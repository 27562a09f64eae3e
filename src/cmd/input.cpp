#include "cmd/input.h"

#include <cstdio>

#include "base/error.h"
#include "base/files.h"
#include "base/printable.h"
#include "base/system.h"
#include "base/utf8.h"

namespace ridge {

std::string read_text(const std::string& path) {
    return read_file(path, kMaxTextBytes);
}

bool read_line(std::string& line, int64_t number) {
    line.clear();
    int c = std::getc(stdin);
    if (c == EOF) return false;
    for (; c != EOF && c != '\n'; c = std::getc(stdin)) {
        if (line.size() == kMaxLineBytes) {
            throw Error("standard input: line {} is longer than {} bytes", number, kMaxLineBytes);
        }
        line += static_cast<char>(c);
    }
    if (!line.empty() && line.back() == '\r') line.pop_back();
    return true;
}

void check_utf8(std::string_view text, std::string_view what) {
    for (size_t at = 0; at < text.size();) {
        Utf8Char c = decode_utf8(text.substr(at));
        if (!c.valid) throw Error("{}: the text is not UTF-8 at byte {}", what, at);
        at += c.n_bytes;
    }
}

std::string name_of_file(const std::string& path) {
    return path == "-" ? "standard input" : printable(path);
}

std::string without_last_newline(std::string text) {
    if (!text.empty() && text.back() == '\n') {
        text.pop_back();
        if (!text.empty() && text.back() == '\r') text.pop_back();
    }
    return text;
}

bool stdin_is_terminal() {
    return is_terminal(0);
}
bool stderr_is_terminal() {
    return is_terminal(2);
}

}  // namespace ridge
