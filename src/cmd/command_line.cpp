#include "cmd/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "cmd/output.h"

namespace ridge {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (size_t begin = 0; begin <= text.size();) {
        size_t end = std::min(text.find(separator, begin), text.size());
        parts.emplace_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

std::string variable_of(const std::string& long_name) {
    std::string name = "RIDGE_";
    for (char c : long_name.substr(2)) {
        name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    }
    return name;
}

std::string lower_case(std::string text) {
    for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return text;
}

bool read_switch(Where where, const std::string& text) {
    const std::string lower = lower_case(text);
    for (const char* on : {"1", "true", "yes", "on"}) {
        if (lower == on) return true;
    }
    for (const char* off : {"0", "false", "no", "off"}) {
        if (lower == off) return false;
    }
    throw Error(ErrorKind::kUsage, "{} \"{}\": expected 1, true, yes or on, or 0, false, no or off",
                where, printable(text));
}

// CLI11 puts two empty lines between groups of options.
std::string without_empty_pairs(std::string text) {
    for (size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
    return text;
}

size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= a.size(); i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.size(); j++) {
            size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
        }
    }
    return row.back();
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
    if (word.size() > 64) return {};
    std::string best;
    size_t best_distance = 1 + word.size() / 3;  // more edits than this make another word
    for (const std::string& candidate : candidates) {
        size_t distance = edit_distance(word, candidate);
        // A word cut short is a better guess than its number of edits says.
        if (word.size() >= 4 && candidate.rfind(word, 0) == 0) distance = 1;
        if (distance < best_distance) best = candidate, best_distance = distance;
    }
    return best;
}

int blame_variables(const FromVariables& from, const std::function<int()>& command) {
    try {
        return command();
    } catch (const Error& e) {
        if (e.kind() != ErrorKind::kUsage) throw;
        std::string_view message = e.what();
        size_t end = std::min(message.find_first_of(" :"), message.size());
        for (const auto& [spelling, variable] : from) {
            if (message.substr(0, end) != spelling) continue;
            throw Error(ErrorKind::kUsage, "{}{}", variable, message.substr(end));
        }
        throw;
    }
}

struct CommandLine::Impl {
    struct Declared {
        std::string long_name;  // with its dashes
        std::string kind;       // of the value; empty for a flag
        SetValue set;
        CLI::Option* option = nullptr;
        std::string needed = {};  // long name of the option without which this one means nothing
        std::vector<std::string> variables = {};  // of all its long names, its own first
        bool given = false;
        std::string variable = {};  // that gave it; empty: none

        bool is_flag() const { return kind.empty(); }
    };

    std::string name, group = "Options";
    CLI::App app;
    std::vector<Declared> declared;
    std::map<std::string, size_t, std::less<>> by_name;  // every spelling, dashes included
    std::string* positional = nullptr;
    std::string positional_name;
    CLI::Option* positional_option = nullptr;
    std::vector<std::vector<std::string>> exclusive;

    void declare(std::string_view names, std::string kind, std::string help, SetValue set) {
        std::vector<std::string> spellings = split(names, ',');
        std::vector<std::string> variables;
        std::string for_cli, extra;
        for (const std::string& spelling : spellings) {
            CHECK(by_name.emplace(spelling, declared.size()).second);
            if (spelling[1] == '-') variables.insert(variables.begin(), variable_of(spelling));
            // CLI11 takes one letter after a single dash.
            if (spelling[1] != '-' && spelling.size() > 2) {
                extra += " (or " + spelling + ")";
            } else {
                for_cli += (for_cli.empty() ? "" : ",") + spelling;
            }
        }
        CLI::Option* option;
        if (kind.empty()) {
            option = app.add_flag(for_cli)->description(help + extra);
        } else {
            // Values stay strings here: CLI11's own conversions accept and change too much.
            option = app.add_option(for_cli, CLI::callback_t(), help + extra);
            option->type_name(kind)->expected(1)->allow_extra_args(false);
            option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
        }
        option->group(group);
        declared.push_back({spellings.back(), std::move(kind), std::move(set), option});
        declared.back().variables = std::move(variables);
    }

    // The arguments in the form in which CLI11 takes each value as it was given: "-sys" becomes
    // "--system-prompt", "--name=value" becomes two arguments.
    std::vector<std::string> normalise(const std::vector<std::string>& arguments) const {
        std::vector<std::string> out;
        for (size_t i = 0; i < arguments.size(); i++) {
            const std::string& argument = arguments[i];
            if (argument == "--") {
                out.insert(out.end(), arguments.begin() + static_cast<ptrdiff_t>(i),
                           arguments.end());
                break;
            }
            size_t equals = argument.rfind("--", 0) == 0 ? argument.find('=') : std::string::npos;
            auto found = by_name.find(argument.substr(0, equals));
            if (found == by_name.end()) {
                out.push_back(argument);
                continue;
            }
            const Declared& known = declared[found->second];
            out.push_back(known.long_name);
            if (equals != std::string::npos) {
                if (known.is_flag())
                    throw Error(ErrorKind::kUsage, "{}: {} takes no value", name, known.long_name);
                out.push_back(argument.substr(equals + 1));
            } else if (!known.is_flag()) {
                if (++i == arguments.size()) {
                    throw Error(ErrorKind::kUsage, "{}: {} needs a value: {}", name, argument,
                                known.kind);
                }
                out.push_back(arguments[i]);
            }
        }
        return out;
    }

    std::string guess(const std::string& word) const {
        std::vector<std::string> names;
        for (const auto& [spelling, index] : by_name) names.push_back(spelling);
        return nearest(word, names);
    }

    std::string guess_glued(const std::string& word) const {
        std::string found = guess("-" + word);
        return found.empty() ? guess(word) : found;
    }

    // "-thread 3" reads as "-t hread" and a word too many: the word before it is named too.
    [[noreturn]] void fail_on_extra(const std::string& extra,
                                    const std::vector<std::string>& arguments) const {
        if (extra.size() > 1 && extra[0] == '-') {
            std::string word = extra.substr(0, extra.find('='));
            throw Error(ErrorKind::kUsage, "{}: unknown option {}; {}", name, printable(word),
                        hint(guess(word)));
        }
        auto at = std::find(arguments.begin(), arguments.end(), extra);
        if (at != arguments.begin() && at != arguments.end() && is_glued(at[-1])) {
            const std::string& before = at[-1];
            bool word = (before[2] | 0x20) >= 'a' && (before[2] | 0x20) <= 'z';
            throw Error(ErrorKind::kUsage, "{}: unexpected argument \"{}\" after {}; {}", name,
                        printable(extra), printable(before),
                        hint(word ? guess_glued(before) : std::string()));
        }
        throw Error(ErrorKind::kUsage, "{}: unexpected argument \"{}\"; {}", name, printable(extra),
                    hint(""));
    }

    std::string hint(const std::string& guessed) const {
        return guessed.empty() ? "see ridge " + name + " --help" : "did you mean " + guessed + "?";
    }

    // Whether it is an option of one letter with its value behind it, as "-n5".
    bool is_glued(const std::string& argument) const {
        return argument.size() > 2 && argument[0] == '-' && argument[1] != '-' &&
               by_name.count(argument) == 0 && by_name.count(argument.substr(0, 2)) > 0;
    }

    bool on_line(std::string_view long_name) const {
        return declared[by_name.find(long_name)->second].option->count() > 0;
    }

    void check_exclusive() const {
        for (const std::vector<std::string>& group : exclusive) {
            std::string first;
            for (const std::string& long_name : group) {
                if (!on_line(long_name)) continue;
                if (!first.empty()) {
                    throw Error(ErrorKind::kUsage, "{}: {} and {} exclude each other", name, first,
                                long_name);
                }
                first = long_name;
            }
        }
    }

    void check_needed() const {
        for (const Declared& d : declared) {
            if (d.needed.empty() || d.option->count() == 0) continue;
            if (!declared[by_name.find(d.needed)->second].given)
                throw Error(ErrorKind::kUsage, "{}: {} needs {}", name, d.long_name, d.needed);
        }
    }

    bool is_useless(const Declared& d) const {
        return !d.needed.empty() && !declared[by_name.find(d.needed)->second].given;
    }

    // Whether a variable must give way to an argument that says otherwise.
    bool overruled(const std::string& long_name) const {
        for (const std::vector<std::string>& group : exclusive) {
            if (std::find(group.begin(), group.end(), long_name) == group.end()) continue;
            if (std::any_of(group.begin(), group.end(),
                            [&](const std::string& other) { return on_line(other); }))
                return true;
        }
        return false;
    }

    void read_values() {
        for (Declared& d : declared) {
            if (d.option->count() > 0) {
                d.given = true;
                if (d.is_flag()) {
                    d.set(d.long_name, "1");
                } else {
                    for (const std::string& value : d.option->results()) d.set(d.long_name, value);
                }
                continue;
            }
            if (!overruled(d.long_name) && !is_useless(d)) read_variable(d);
        }
    }

    // The first that is set decides.
    static void read_variable(Declared& d) {
        for (const std::string& variable : d.variables) {
            const char* value = std::getenv(variable.c_str());
            if (value == nullptr || value[0] == 0) continue;
            if (d.is_flag() && !read_switch(variable, value)) return;
            d.given = true, d.variable = variable;
            return d.set(variable, value);
        }
    }
};

CommandLine::CommandLine(std::string name, std::string summary, std::string example)
    : impl_(std::make_unique<Impl>()) {
    impl_->name = name;
    impl_->app.name("ridge " + name);
    impl_->app.description(std::move(summary));
    impl_->app.footer("\nExample:\n  " + example);
    impl_->app.set_help_flag();  // parse() adds it, below the command's own options
    impl_->app.allow_extras();
    impl_->app.get_formatter()->column_width(34);
}

CommandLine::~CommandLine() = default;

void CommandLine::section(std::string heading) {
    impl_->group = std::move(heading);
}

void CommandLine::flag(std::string_view names, std::string help, bool& target) {
    impl_->declare(names, "", std::move(help),
                   [&target](Where, const std::string&) { target = true; });
}

void CommandLine::value(std::string_view names, std::string kind, std::string help, SetValue set) {
    impl_->declare(names, std::move(kind), std::move(help), std::move(set));
}

void CommandLine::text(std::string_view names, std::string kind, std::string help,
                       std::string& target) {
    value(names, std::move(kind), std::move(help),
          [&target](Where, const std::string& text) { target = text; });
}

void CommandLine::name(std::string_view names, std::string kind, std::string help,
                       std::string& target, Expected expected) {
    const std::string thing = "a " + lower_case(kind);
    value(names, std::move(kind), std::move(help),
          [&target, expected, thing](Where where, const std::string& text) {
              if (text.empty()) {
                  throw Error(ErrorKind::kUsage, "{} \"\": expected {}", where,
                              expected == nullptr ? thing : expected());
              }
              target = text;
          });
}

void CommandLine::positional(std::string name, std::string help, std::string& target) {
    impl_->positional = &target;
    impl_->positional_name = name;
    impl_->positional_option = impl_->app.add_option(name, CLI::callback_t(), std::move(help));
    impl_->positional_option->expected(1)->allow_extra_args(false);
}

void CommandLine::at_most_one(std::vector<std::string> long_names) {
    for (const std::string& name : long_names) CHECK(impl_->by_name.count(name) == 1);
    impl_->exclusive.push_back(std::move(long_names));
}

void CommandLine::needs(std::string_view long_name, std::string_view other) {
    auto one = impl_->by_name.find(long_name), two = impl_->by_name.find(other);
    CHECK(one != impl_->by_name.end() && two != impl_->by_name.end());
    CHECK(two->second < one->second);
    impl_->declared[one->second].needed = other;
}

FromVariables CommandLine::from_variables() const {
    FromVariables from;
    for (const auto& [spelling, index] : impl_->by_name) {
        const Impl::Declared& d = impl_->declared[index];
        if (!d.variable.empty()) from.emplace_back(spelling, d.variable);
    }
    return from;
}

bool CommandLine::given(std::string_view long_name) const {
    auto found = impl_->by_name.find(long_name);
    CHECK(found != impl_->by_name.end());
    return impl_->declared[found->second].given;
}

bool CommandLine::parse(const std::vector<std::string>& arguments) {
    Impl& impl = *impl_;
    impl.app.set_help_flag("-h,--help", "show this and exit")->group(impl.group);
    const std::vector<std::string> normal = impl.normalise(arguments);
    std::vector<std::string> reversed = normal;
    std::reverse(reversed.begin(), reversed.end());
    try {
        impl.app.parse(std::move(reversed));
    } catch (const CLI::CallForHelp&) {
        Output output;
        output.write(without_empty_pairs(impl.app.help()));
        output.flush();
        return false;
    } catch (const CLI::ParseError& e) {
        throw Error(ErrorKind::kUsage, "{}: {}", impl.name, printable(e.what()));
    }
    std::vector<std::string> extras = impl.app.remaining();
    if (!extras.empty()) impl.fail_on_extra(extras.front(), normal);
    impl.check_exclusive();
    impl.read_values();
    impl.check_needed();
    if (impl.positional != nullptr && impl.positional_option->count() > 0)
        *impl.positional = impl.positional_option->results().back();
    return true;
}

}  // namespace ridge
