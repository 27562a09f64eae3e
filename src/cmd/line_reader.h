#pragma once

#include <memory>
#include <string>

namespace ridge {

// Lines that a user types, with editing and history where standard input and standard error are a
// terminal (prompts go to standard error); the lines of standard input otherwise.
class LineReader {
  public:
    enum class Result {
        kLine,
        kEnd,          // end of the input: Ctrl-D on an empty line
        kInterrupted,  // Ctrl-C, or another signal to end: the line that was begun is dropped
    };

    // `quiet`: nothing is said of a history that cannot be written.
    explicit LineReader(bool quiet);
    ~LineReader();

    bool interactive() const;
    // Error for a line longer than kMaxLineBytes.
    Result read(const std::string& prompt, std::string& line);
    // Keeps a line for the arrow keys and for later sessions, in state_folder()/history (mode
    // 0600), unless there is no home folder to keep it in. A history that cannot be read is no
    // error; one that cannot be written is told once.
    void remember(const std::string& line);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ridge
