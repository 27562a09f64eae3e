#include "cmd/commands.h"

#include <exception>
#include <new>

#include "base/error.h"
#include "base/printable.h"
#include "base/system.h"
#include "cmd/command_line.h"
#include "cmd/output.h"

namespace ridge {
namespace {

constexpr int kExitFailure = 1, kExitUsage = 2;

struct Command {
    const char* name;
    const char* summary;
    int (*run)(const std::vector<std::string>& arguments);
};

constexpr Command kCommands[] = {
    {"run", "answer one prompt, or continue a text", run_command},
    {"chat", "hold a conversation", chat_command},
    {"tokenize", "turn text into token ids, and back", tokenize_command},
    {"template", "show the exact prompt that a chat template makes", template_command},
    {"eval", "measure how well a model predicts a text", eval_command},
    {"inspect", "show what is in a model file", inspect_command},
    {"bench", "time prompts and generation", bench_command},
    {"trace", "show which kernel ran for each node of a step, and how long", trace_command},
    {"roofline", "measure the machine's ceilings, and how near a model's kernels come",
     roofline_command},
    {"tune", "find how this machine runs a model's operators fastest, and keep it", tune_command},
    {"verify", "hold every kernel against its equation", verify_command},
    {"synth", "write a model of real shape with random weights", synth_command},
    {"devices", "list the devices that can run a model", devices_command},
    {"version", "show the version and what the machine has", version_command},
};

std::string usage() {
    std::string text =
        "Ridge runs Llama and Qwen language models.\n"
        "Usage: ridge COMMAND [OPTIONS]\n\nCommands:\n";
    for (const Command& command : kCommands)
        text += fmt::format("  {:<12}{}\n", command.name, command.summary);
    return text +
           "\nridge COMMAND --help tells more.\n\nExample:\n"
           "  ridge run -m model.gguf -p \"In two sentences: why do rivers bend?\"\n";
}

void print(const std::string& text) {
    Output output;
    output.write(text);
    output.flush();
}

int dispatch(std::vector<std::string> arguments) {
    if (arguments.empty()) {
        write_error(usage());
        return kExitUsage;
    }
    std::string name = arguments.front();
    arguments.erase(arguments.begin());
    if (name == "--version") name = "version";
    if (name == "-h" || name == "--help" || name == "help") {
        if (arguments.empty()) {
            print(usage());
            return 0;
        }
        name = arguments.front();
        arguments = {"--help"};
    }
    std::vector<std::string> names;
    for (const Command& command : kCommands) {
        if (name == command.name) return command.run(arguments);
        names.emplace_back(command.name);
    }
    std::string guess = nearest(name, names);
    throw Error(ErrorKind::kUsage, "unknown {} \"{}\"; {}",
                name.rfind('-', 0) == 0 ? "option" : "command", printable(name),
                guess.empty() ? "ridge --help lists the commands" : "did you mean " + guess + "?");
}

}  // namespace

int run_program(const std::vector<std::string>& arguments) {
    prepare_process();
    try {
        return dispatch(arguments);
    } catch (const ClosedPipe&) {
        return 0;
    } catch (const Interrupted&) {
        return interrupt_status();
    } catch (const Error& e) {
        say(e.what());
        return e.kind() == ErrorKind::kUsage ? kExitUsage : kExitFailure;
    } catch (const std::bad_alloc&) {
        say("out of memory");
    } catch (const std::exception& e) {
        say(printable(e.what()));
    }
    return kExitFailure;
}

}  // namespace ridge
