#include "cmd/output.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/system.h"
#include "base/utf8.h"

namespace ridge {
namespace {

constexpr int kStdoutFd = 1, kStderrFd = 2;

[[noreturn]] void fail(int error) {
    if (error == EPIPE) throw ClosedPipe();
    throw Error("standard output: cannot write: {}", strerror(error));
}

}  // namespace

Output::Output() : is_terminal_(ridge::is_terminal(kStdoutFd)) {}

Output::~Output() {
    write_bytes(kStdoutFd, pending_);  // where something else has failed: what there is of it
}

void Output::write(std::string_view bytes) {
    constexpr size_t kMostPending = size_t{64} << 10;
    pending_ += bytes;
    if (pending_.size() >= kMostPending) flush();
}

void Output::write_untrusted(std::string_view text) {
    if (is_terminal_) {
        write(printable(text, 0, true));
    } else {
        write(text);
    }
}

void Output::write_json(const nlohmann::ordered_json& value) {
    write(dump_json(value, is_terminal_) + "\n");
}

void Output::flush() {
    const int error = write_bytes(kStdoutFd, std::exchange(pending_, {}));
    if (error != 0) fail(error);
}

void stop_if_interrupted() {
    if (interrupted()) throw Interrupted();
}

void say(std::string_view line) {
    write_error("ridge: " + std::string(line) + "\n");
}

void write_error(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
}

std::string dump_json(const nlohmann::ordered_json& value, bool ascii_controls) {
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (!ascii_controls) return text;
    std::string out;
    for (size_t at = 0; at < text.size();) {
        Utf8Char c = decode_utf8(std::string_view(text).substr(at));
        if (c.code >= 0x7f && c.code < 0xa0) {
            out += fmt::format("\\u{:04x}", c.code);
        } else {
            out.append(text, at, c.n_bytes);
        }
        at += c.n_bytes;
    }
    return out;
}

StatusLine::StatusLine(bool enabled) : enabled_(enabled && ridge::is_terminal(kStderrFd)) {}

void StatusLine::show(std::string_view what, double share) {
    if (!enabled_) return;
    int percent = static_cast<int>(std::lround(100 * share));
    std::string line = fmt::format("{} {}%", printable(what, 60), percent);
    if (line == shown_) return;  // at most 101 writes
    write_error("\r" + line + "\x1b[K");
    shown_ = line;
}

void StatusLine::clear() {
    if (shown_.empty()) return;
    write_error("\r\x1b[K");
    shown_.clear();
}

}  // namespace ridge
