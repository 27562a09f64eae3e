#pragma once

#include <functional>
#include <limits>
#include <memory>
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

constexpr double kNoTimeLimit = std::numeric_limits<double>::infinity();

// Runs another program to its end. arguments[0] is its name, which is looked for as a shell does;
// `input` is what it reads on standard input; prepare_process() (base/system.h) has been called, so
// that one which does not read it is no signal. None where there is no such program. Error where
// the system does not start it, it takes longer than `seconds`, or it writes more than `max_bytes`
// to either stream. `idle` is called at least ten times a second meanwhile, and may throw. After an
// exception it has been ended.
std::optional<ChildResult> run_child(const std::vector<std::string>& arguments,
                                     std::string_view input, size_t max_bytes,
                                     double seconds = kNoTimeLimit,
                                     const std::function<void()>& idle = {});

// Another program that stays, and is talked to in lines.
class ChildTalk {
  public:
    // Starts it as run_child does, in a process group of its own, so that Ctrl-C on a terminal is
    // this program's alone. `name` is what errors call it. Null where there is no such program.
    static std::unique_ptr<ChildTalk> start(std::string name,
                                            const std::vector<std::string>& arguments);
    // Its input ends; where it has not ended a second later, or has failed, it is ended with its
    // children.
    ~ChildTalk();
    ChildTalk(const ChildTalk&) = delete;

    // Sends a line, and returns the next one that it writes, both without their ends. Error where
    // it ends before (with the last line of its standard error), takes longer than `seconds`, or
    // writes more than `max_bytes`. `idle` is called at least ten times a second meanwhile, and may
    // throw. After an exception nothing more may be asked.
    std::string ask(std::string_view line, double seconds, size_t max_bytes,
                    const std::function<void()>& idle = {});

  private:
    struct State;
    explicit ChildTalk(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace ridge
