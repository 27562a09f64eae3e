#include "cmd/input.h"

#include "base/files.h"
#include "base/system.h"

namespace ridge {

std::string read_text(const std::string& path) {
    return read_file(path, kMaxTextBytes);
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
