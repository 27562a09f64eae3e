#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

struct ChildResult {
    int status = 0;      // of exit; 128 + the number of a signal that ended it
    std::string output;  // what it wrote to standard output
    std::string errors;  // and to standard error
};

// Runs another program to its end. arguments[0] is its name, which is looked for as a shell does;
// `input` is what it reads on standard input; prepare_process() (base/system.h) has been called, so
// that one which does not read it is no signal. None where there is no such program. Error where
// the system does not start it, or it writes more than `max_bytes` to either stream.
std::optional<ChildResult> run_child(const std::vector<std::string>& arguments,
                                     std::string_view input, size_t max_bytes);

}  // namespace ridge
