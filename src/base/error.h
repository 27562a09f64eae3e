#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace ridge {

// What kind of fault an Error reports; commands map it to their exit code.
enum class ErrorKind {
    kFailure,  // a file, a request or a device is not what it should be (exit 1)
    kUsage,    // an option or its value is not what it should be (exit 2)
    kLost,     // a device has failed, and with it all that it may be asked for (exit 1)
};

// The one exception of the project, for files, options, requests and device failures. The message
// is one line that names the thing, the offending value and what was expected. Text that comes from
// a file is passed through printable() (base/printable.h) before it is put into a message.
class Error : public std::runtime_error {
  public:
    template <class... Args>
    explicit Error(fmt::format_string<Args...> format, Args&&... args)
        : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}

    template <class... Args>
    Error(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args)
        : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)), kind_(kind) {}

    ErrorKind kind() const { return kind_; }

  private:
    ErrorKind kind_ = ErrorKind::kFailure;
};

}  // namespace ridge
