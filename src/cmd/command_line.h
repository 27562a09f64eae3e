#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ridge {

// What stands before the value in an error: "--temp", or "RIDGE_TEMP" where a variable gave it.
using Where = std::string_view;

// Spellings of options whose values came from variables ("-c", "--ctx-size"), with the variables.
using FromVariables = std::vector<std::pair<std::string, std::string>>;

// Runs `command`. An Error(kUsage) that begins with the name of an option is about its value: where
// a variable gave it, the variable's name takes that place.
int blame_variables(const FromVariables& from, const std::function<int()>& command);

// The options of one command. Each is declared once, with the function that reads its value;
// parse() then takes them from the arguments, and what is not there from the environment: RIDGE_
// and a long name in capitals (--top-k: RIDGE_TOP_K), where it is set and not empty.
class CommandLine {
  public:
    using SetValue = std::function<void(Where, const std::string&)>;

    // `example` is shown at the end of --help; `arguments` in the usage line after [OPTIONS].
    CommandLine(std::string name, std::string summary, std::string example);
    ~CommandLine();

    // Heading in --help of the options declared after it.
    void section(std::string heading);
    // Names are separated by commas, the long one last: "-sys,--system-prompt". Of several long
    // names the last one is what errors say, and its variable comes before the others'. A flag's
    // variable is 1, true, yes, on or 0, false, no, off.
    void flag(std::string_view names, std::string help, bool& target);
    void value(std::string_view names, std::string kind, std::string help, SetValue set);
    void text(std::string_view names, std::string kind, std::string help, std::string& target);
    // A text that names something: an empty one is an error, which says what was `expected`, as in
    // "one of a, b"; null: a thing of that kind. Other names are judged where they are looked up.
    using Expected = std::string (*)();
    void name(std::string_view names, std::string kind, std::string help, std::string& target,
              Expected expected = nullptr);
    // The one argument that is not an option; required.
    void positional(std::string name, std::string help, std::string& target);
    // At most one of these, by long names. A variable gives way to an argument of another of them.
    void at_most_one(std::vector<std::string> long_names);
    // The first means nothing without the second, which is declared before it: an error for an
    // argument; a variable is not looked at.
    void needs(std::string_view long_name, std::string_view other);

    bool given(std::string_view long_name) const;  // by an argument or a variable
    FromVariables from_variables() const;

    // False: --help was asked for and printed. Error(kUsage) in one line for anything wrong, with
    // the nearest option's name where one was mistyped. Values are read in the order of
    // declaration.
    bool parse(const std::vector<std::string>& arguments);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// The candidate that differs from `word` by the fewest edits, if they are few; empty otherwise.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace ridge
