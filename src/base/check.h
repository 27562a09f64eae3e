#pragma once

namespace ridge {

// Prints the failed condition with its place and aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace ridge

// A programmer's error, checked in every build. Never used on what a user or a file can cause: that
// is Error.
#define CHECK(condition) \
    ((condition) ? static_cast<void>(0) : ::ridge::check_failed(#condition, __FILE__, __LINE__))
