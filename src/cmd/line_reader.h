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
        kInterrupted,  // Ctrl-C: the line that was begun is dropped
    };

    LineReader();
    ~LineReader();

    bool interactive() const;
    Result read(const std::string& prompt, std::string& line);
    // Keeps a line for the arrow keys and for later sessions, in state_folder()/history (mode
    // 0600). A history that cannot be read or written is no error.
    void remember(const std::string& line);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ridge
