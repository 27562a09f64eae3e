#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace ridge::cli {

// Runs the built program as a user's shell would.

using Arguments = std::vector<std::string>;

struct Setting {
    std::string input;                               // of standard input, then its end
    std::map<std::string, std::string> environment;  // beside PATH, HOME and XDG_STATE_HOME
    std::string output_path;         // standard output goes there; empty: it is kept
    bool close_output = false;       // standard output is closed
    size_t read_at_most = SIZE_MAX;  // then the reader of standard output goes away
    // `signal` is sent once: when this has come on standard output, or when this is true, which is
    // asked again and again. Both empty: never.
    std::string interrupt_after;
    std::function<bool()> interrupt_when;
    int signal = SIGINT;
    uint64_t max_file_bytes = 0;  // of a file that is written, as ulimit -f has it; 0: no limit
};

struct Result {
    int status = -1;  // of exit; 1000 + number where a signal ended it
    std::string out, err;
};

Result run(const Arguments& arguments, const Setting& setting = {});

// A folder that lives as long as the test program.
const std::string& scratch_folder();
// A model of random weights, made once: d_model 256, 4,096 tokens, the tokenizer of its family.
const std::string& tiny_model();
std::string write_scratch(const std::string& name, const std::string& bytes);

// The program on a terminal of its own: standard input, output and error.
class Terminal {
  public:
    static bool available();  // a bare container may have no pseudo-terminals
    explicit Terminal(const Arguments& arguments,
                      const std::map<std::string, std::string>& environment = {});
    ~Terminal();

    void send(const std::string& keys);
    // Waits until `text` has come after what was waited for before; false after `seconds`, which
    // are many, so that a machine that is busy does not decide.
    bool wait_for(const std::string& text, double seconds = 300);
    int finish();  // the status, as Result has it
    const std::string& seen() const { return seen_; }

  private:
    bool read_some(double seconds);

    pid_t child_ = -1;
    int fd_ = -1;
    std::string seen_;
    size_t waited_ = 0;
};

}  // namespace ridge::cli
