#include "cmd/chat.h"

#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "base/system.h"
#include "cmd/answer.h"
#include "cmd/commands.h"
#include "cmd/input.h"
#include "cmd/line_reader.h"
#include "cmd/values.h"

namespace ridge {
namespace {

constexpr const char* kHelp =
    "  /help             this\n"
    "  /system [TEXT]    set the system message; alone: show it; \"\": none\n"
    "  /reset            forget the conversation, keep the system message\n"
    "  /regen            another answer to the last message\n"
    "  /set [NAME VALUE] temp, top-k, top-p, min-p, repeat-penalty, repeat-last-n,\n"
    "                    presence-penalty, frequency-penalty, seed, n-predict,\n"
    "                    logit-bias ID(+/-)BIAS|none, think on|off|default;\n"
    "                    alone: show them\n"
    "  /save FILE        write the conversation to a new file\n"
    "  /load FILE        go on with a saved conversation\n"
    "  /stats            numbers of the last answer\n"
    "  /exit             leave; so does Ctrl-D\n"
    "A line that ends in \\ goes on in the next; \"\"\" begins and ends a text of many lines.\n"
    "Ctrl-C stops an answer.\n";

std::string_view trim(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

// Puts one message together from the lines that are typed.
class MessageReader {
  public:
    explicit MessageReader(LineReader& lines) : lines_(lines) {}

    // `quoted`: it stood between """ and is no command, whatever it begins with.
    LineReader::Result read(std::string& message, bool& quoted) {
        std::string line;
        LineReader::Result result = next("> ", line);
        if (result != LineReader::Result::kLine) return result;
        constexpr std::string_view kQuotes = "\"\"\"";
        quoted = line.rfind(kQuotes, 0) == 0;
        if (quoted) return read_quoted(line.substr(kQuotes.size()), message);
        message.clear();
        while (!line.empty() && line.back() == '\\') {
            line.back() = '\n';
            append(message, line);
            result = next(". ", line);
            if (result == LineReader::Result::kInterrupted) return result;
            if (result == LineReader::Result::kEnd) line.clear();
        }
        append(message, line);
        return LineReader::Result::kLine;
    }

  private:
    static void append(std::string& message, const std::string& line) {
        if (message.size() + line.size() > kMaxLineBytes)
            throw Error("the message is longer than {} bytes", kMaxLineBytes);
        message += line;
    }

    LineReader::Result next(const std::string& prompt, std::string& line) {
        LineReader::Result result = lines_.read(prompt, line);
        if (result == LineReader::Result::kLine) lines_.remember(line);
        return result;
    }

    // After the opening quotes: lines up to those that close it, or the end of the input.
    LineReader::Result read_quoted(std::string line, std::string& message) {
        message.clear();
        for (bool first = true;; first = false) {
            size_t end = line.rfind("\"\"\"");
            bool closed = end != std::string::npos && end + 3 == line.size();
            if (closed) line.resize(end);
            // Quotes on lines of their own add no empty lines.
            if (!message.empty() && !(closed && line.empty())) message += '\n';
            if (!first && message.empty() && line.empty() && !closed) message += '\n';
            append(message, line);
            if (closed) return LineReader::Result::kLine;
            LineReader::Result result = next(". ", line);
            if (result == LineReader::Result::kInterrupted) return result;
            if (result == LineReader::Result::kEnd) return LineReader::Result::kLine;
        }
    }

    LineReader& lines_;
};

class Chat {
  public:
    Chat(const ChatSettings& settings, Engine& engine)
        : settings_(settings),
          engine_(engine),
          sequence_(engine.new_sequence()),
          sampling_(sampling_of(engine, settings.sampling)),
          answer_(settings.answer),
          status_(!settings.quiet),
          lines_(settings.quiet) {
        if (answer_.has_system_prompt) conversation_.set_system(answer_.system_prompt);
    }

    int go() {
        chat_prompt_check();
        if (lines_.interactive() && !settings_.quiet) {
            write_error(fmt::format(
                "{} ({}), context {}, seed {}; /help lists the commands\n",
                printable(engine_.info().name.empty() ? engine_.info().path : engine_.info().name),
                engine_.info().format, engine_.info().n_ctx, sampling_.seed));
        }
        MessageReader reader(lines_);
        std::string message;
        bool quoted = false;
        while (!leaving_) {
            LineReader::Result result = LineReader::Result::kEnd;
            try {
                result = reader.read(message, quoted);
            } catch (const Error& e) {
                // Where nobody types, what was not read of the line may have no end.
                if (!lines_.interactive()) throw;
                say(e.what());
                continue;
            }
            if (result == LineReader::Result::kEnd) break;
            if (result == LineReader::Result::kInterrupted) {
                clear_interrupt();
                if (interrupted() || !lines_.interactive()) return interrupt_status();
                write_error("(Ctrl-D or /exit leaves)\n");
                continue;
            }
            if (!take(message, quoted)) return interrupt_status();
        }
        return failed_ && !lines_.interactive() ? 1 : 0;
    }

  private:
    // A template that is missing is said before the first message is typed.
    void chat_prompt_check() const {
        Conversation probe;
        probe.add("user", "hi");
        if (engine_.chat_template() == nullptr) chat_prompt(engine_, probe, answer_);
    }

    // One message or command; false where a signal is to end the program.
    bool take(const std::string& message, bool quoted) {
        if (trim(message).empty()) return true;
        try {
            if (message[0] == '/' && !quoted) {
                command(message.substr(1));
            } else {
                Conversation before = conversation_;
                conversation_.add("user", message);
                take_turn(before);
            }
        } catch (const Error& e) {
            status_.clear();
            if (e.kind() == ErrorKind::kLost) throw;  // no other message would be answered
            say(e.what());
            failed_ = true;
        }
        if (!interrupted()) return true;
        clear_interrupt();
        return !interrupted() && lines_.interactive();
    }

    // Answers the conversation, which ends with the user's message. Without an answer it becomes
    // `before` again.
    void take_turn(const Conversation& before) {
        try {
            Request request;
            request.prompt = chat_prompt(engine_, conversation_, answer_);
            if (request.prompt.size() > static_cast<size_t>(engine_.info().n_ctx)) {
                throw Error(
                    "the conversation would be {} tokens and the context holds {}: the message was "
                    "not taken; /reset begins anew",
                    request.prompt.size(), engine_.info().n_ctx);
            }
            answer_request(request);
        } catch (const Error&) {
            conversation_ = before;
            throw;
        }
        if (last_->tokens.empty() && last_->reason == StopReason::kCancelled) {
            conversation_ = before;
            say("stopped before the answer began: the conversation is as it was");
            return;
        }
        conversation_.add("assistant", last_->text);
        say_why_cut();
    }

    void answer_request(Request& request) {
        request.sampling = sampling_;
        request.n_predict = answer_.n_predict;
        request.stops = answer_.stops;
        request.ignore_eos = answer_.ignore_eos;
        request.show_special = answer_.special;
        AnswerWriter writer(output_, status_, engine_);
        last_ = answer(engine_, sequence_, request, status_,
                       [&](const TokenEvent& event) { writer.write(event); });
        last_sampling_ = sampling_;
        writer.finish(true);
    }

    void say_why_cut() const {
        if (last_->reason == StopReason::kContextFull) {
            say(
                fmt::format("the context of {} positions is full and the answer was cut; /reset "
                            "begins anew",
                            engine_.info().n_ctx));
        }
        if (settings_.quiet) return;
        if (last_->reason == StopReason::kCancelled) say("the answer was stopped");
        if (last_->reason == StopReason::kLength)
            say(fmt::format("the answer was cut at {} token{} (n-predict)", answer_.n_predict,
                            answer_.n_predict == 1 ? "" : "s"));
    }

    void command(const std::string& text) {
        size_t space = text.find_first_of(" \t\n");
        std::string name = text.substr(0, space);
        std::string_view argument;
        if (space != std::string::npos) argument = trim(std::string_view(text).substr(space + 1));
        if (name == "help") {
            write_error(kHelp);
        } else if (name == "system") {
            system(argument);
        } else if (name == "reset") {
            conversation_.reset();
            sequence_.clear();
        } else if (name == "regen") {
            regenerate();
        } else if (name == "set") {
            set(argument);
        } else if (name == "save") {
            conversation_.save(path_of(argument, "/save"));
        } else if (name == "load") {
            conversation_.load(path_of(argument, "/load"));
            if (!settings_.quiet) say_loaded();
        } else if (name == "stats") {
            stats();
        } else if (name == "exit" || name == "quit") {
            leaving_ = true;
        } else {
            throw Error(
                "unknown command /{}; /help lists them (a message that begins with / goes "
                "between \"\"\")",
                printable(name, 40));
        }
    }

    void say_loaded() const {
        size_t n = conversation_.size();
        say(fmt::format("{} message{} loaded", n, n == 1 ? "" : "s"));
    }

    // Quotes around the name are not part of it, and ~/ is the user's home, as in a shell.
    static std::string path_of(std::string_view argument, std::string_view command) {
        if (argument.size() >= 2 && (argument[0] == '"' || argument[0] == '\'') &&
            argument.back() == argument[0]) {
            argument = argument.substr(1, argument.size() - 2);
        }
        if (argument.empty()) throw Error("{} needs the name of a file", command);
        const char* home = std::getenv("HOME");
        if (argument.rfind("~/", 0) == 0 && home != nullptr && home[0] != 0)
            return home + std::string(argument.substr(1));
        return std::string(argument);
    }

    void system(std::string_view argument) {
        if (argument.empty()) {
            std::string text = conversation_.system();
            write_error(text.empty() ? "(no system message)\n" : printable(text, 0, true) + "\n");
            return;
        }
        conversation_.set_system(argument == "\"\"" ? std::string_view() : argument);
    }

    void regenerate() {
        if (!conversation_.ends_with("assistant")) throw Error("/regen: there is no answer yet");
        Conversation before = conversation_;
        conversation_.drop_last();
        sampling_.seed++;  // the same seed would draw the same answer
        take_turn(before);
    }

    void set(std::string_view argument) {
        if (argument.empty()) {
            for (const std::string& line : list_sampling(sampling_)) write_error(line + "\n");
            write_error(fmt::format("n-predict {}\n", answer_.n_predict));
            std::optional<bool> thinking = answer_.thinking();
            write_error(fmt::format("think {}\n", !thinking   ? "default"
                                                  : *thinking ? "on"
                                                              : "off"));
            return;
        }
        size_t space = argument.find_first_of(" \t");
        if (space == std::string_view::npos) throw Error("/set needs a name and a value");
        std::string name(argument.substr(0, space)), value(trim(argument.substr(space)));
        std::string where = "/set " + printable(name, 40);
        SamplingOptions change;
        if (name == "think") {
            std::string choice = parse_choice(where, value, {"on", "off", "default"});
            answer_.think = choice == "on", answer_.no_think = choice == "off";
        } else if (name == "n-predict") {
            answer_.n_predict = parse_integer(where, value, -1, INT32_MAX);
        } else if (name == "logit-bias" && value == "none") {
            sampling_.logit_bias.clear();
        } else if (change.set(name, where, value)) {
            change.apply(sampling_, engine_.config().n_vocab, where);
            if (name == "seed" && value == "-1") sampling_.seed = random_seed();
        } else {
            throw Error("{}: no such setting; /set lists them", where);
        }
    }

    void stats() {
        if (!last_) throw Error("/stats: there is no answer yet");
        write_error(stats_line(engine_.info(), *last_, measure(engine_, *last_), last_sampling_) +
                    fmt::format("\ncontext: {} of {} positions\n", sequence_.tokens().size(),
                                engine_.info().n_ctx));
    }

    const ChatSettings& settings_;
    Engine& engine_;
    Sequence sequence_;
    SampleParams sampling_, last_sampling_;
    AnswerOptions answer_;
    Output output_;
    StatusLine status_;
    LineReader lines_;
    Conversation conversation_;
    std::optional<Generation> last_;
    bool leaving_ = false, failed_ = false;
};

}  // namespace

int hold_conversation(const ChatSettings& settings) {
    std::unique_ptr<Engine> engine = open_engine(settings.open, settings.quiet);
    return Chat(settings, *engine).go();
}

int chat_command(const std::vector<std::string>& arguments) {
    CommandLine line("chat",
                     "Holds a conversation: lines are messages, /help lists the commands in it.",
                     "ridge chat -m model.gguf -sys \"You are terse.\" --temp 0.7");
    ChatSettings settings;
    add_model_options(line, settings.open);
    add_chat_options(line, settings.answer);
    add_template_options(line, settings.open.chat_template, settings.open.chat_template_file);
    add_sampling_options(line, settings.sampling);
    add_stop_options(line, settings.answer);
    line.section("Output");
    line.flag("--special", "show control tokens in answers", settings.answer.special);
    line.flag("-q,--quiet", "nothing on standard error but errors and prompts", settings.quiet);
    if (!line.parse(arguments)) return 0;
    settings.from_variables = line.from_variables();
    need_model("chat", settings.open.model);
    return blame_variables(settings.from_variables, [&] { return hold_conversation(settings); });
}

}  // namespace ridge
