#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ridge {

// Thrown where the reader of standard output has gone (`ridge ... | head -1`): the program ends
// without a word, exit status 0.
struct ClosedPipe {};

// Thrown where a signal ended what the program was doing: exit status interrupt_status().
struct Interrupted {};
void stop_if_interrupted();  // Interrupted where one has come

// Standard output. Every write is checked: ClosedPipe where the reader has gone, Error for anything
// else (a full disk). A signal does not cut one short.
class Output {
  public:
    Output();
    ~Output();
    Output(const Output&) = delete;
    Output& operator=(const Output&) = delete;
    bool is_terminal() const { return is_terminal_; }

    void write(std::string_view bytes);  // as they are
    // Text of a model or a file: on a terminal, whatever could steer it is made visible; otherwise
    // exactly its bytes. Characters must not be cut between calls.
    void write_untrusted(std::string_view text);
    // The value on one line. Bytes that are not UTF-8 become U+FFFD; on a terminal, control
    // characters that JSON lets stand are escaped too.
    void write_json(const nlohmann::ordered_json& value);
    void flush();  // a command that has not called this after its last write has not succeeded

  private:
    bool is_terminal_;
    std::string pending_;
};

// Standard error: what the program has to say beside its results. Never fails.
void say(std::string_view line);          // "ridge: " and the line
void write_error(std::string_view text);  // the text as it is

// The value on one line. Bytes that are not UTF-8 become U+FFFD. `ascii_controls`: DEL and the C1
// controls are written as \u00NN, as JSON has the C0 controls in any case.
std::string dump_json(const nlohmann::ordered_json& value, bool ascii_controls = false);

// A line on standard error that is written over again: what is being done, and how far it is.
// Nothing is shown unless `enabled` and standard error is a terminal.
class StatusLine {
  public:
    explicit StatusLine(bool enabled);
    ~StatusLine() { clear(); }
    StatusLine(const StatusLine&) = delete;
    StatusLine& operator=(const StatusLine&) = delete;

    void show(std::string_view what, double share);  // share 0..1
    void clear();

  private:
    bool enabled_;
    std::string shown_;
};

}  // namespace ridge
