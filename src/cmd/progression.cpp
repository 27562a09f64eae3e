#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/child_process.h"
#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/system.h"
#include "cmd/command_line.h"
#include "cmd/commands.h"
#include "cmd/options.h"
#include "cmd/output.h"
#include "cmd/progression_plot.h"
#include "cmd/progression_report.h"
#include "cmd/values.h"
#include "engine/model_source.h"
#include "model/config.h"
#include "model/weights.h"

namespace ridge {
namespace {

constexpr size_t kMaxOutputBytes = size_t{64} << 20;  // of a process that is started
constexpr int64_t kMaxTokens = 65536;
constexpr std::string_view kOracle = "ref";  // slow on purpose: it runs where it is asked for
constexpr int kVerifyThin = 40;              // of its cases, each so many-th is tried

struct ProgressionOptions {
    OpenOptions open;
    std::vector<std::string> checkpoints;
    int64_t n_prompt = 128, n_gen = 16, n_depth = 0, n_rounds = 5;
    std::string plot;
    bool no_verify = false, json = false, quiet = false;
    FromVariables from_variables;
};

bool parse(const std::vector<std::string>& arguments, ProgressionOptions& options) {
    CommandLine line("bench progression",
                     "Times a model's checkpoints in turns, and tells what each one gained and "
                     "whether it is worth keeping.",
                     "ridge bench progression -m model.gguf -p 128 -n 16 -r 5");
    line.section("Model");
    add_model_option(line, options.open.model);
    add_threads_option(line, options.open);
    add_cache_type_options(line, options.open);
    line.value("--checkpoint", "NAMES",
               "entries of the device's list of kernels, in its order, each compared with the one "
               "before; all: each (default: all but ref, which is slow on purpose)",
               [&](Where where, const std::string& text) {
                   options.checkpoints =
                       parse_words(where, text, "all, or some of " + known_checkpoints());
               });
    add_device_options(line, options.open);
    line.section("Tests");
    add_integer_option(line, "-p,--n-prompt", "tokens of a prompt; 0: none (default: 128)",
                       options.n_prompt, 0, kMaxTokens);
    add_integer_option(line, "-n,--n-gen", "tokens to generate; 0: none (default: 16)",
                       options.n_gen, 0, kMaxTokens);
    add_integer_option(line, "-d,--n-depth", "positions that the cache holds before (default: 0)",
                       options.n_depth, 0, kMaxTokens);
    add_integer_option(
        line, "-r,--rounds",
        "rounds; each runs every checkpoint once, in a process of its own, in order and then "
        "backwards (default: 5)",
        options.n_rounds, 1, 1000);
    line.flag("--no-verify", "do not hold the checkpoints' kernels against the reference first",
              options.no_verify);
    line.section("Output");
    line.flag("--json", "print one JSON object, with every sample", options.json);
    add_plot_option(line, "draw the gains: a .svg or a .png", options.plot);
    add_quiet_option(line, options.quiet);
    if (!line.parse(arguments)) return false;
    options.from_variables = line.from_variables();
    need_model("bench progression", options.open.model);
    if (options.n_prompt == 0 && options.n_gen == 0) {
        throw Error(ErrorKind::kUsage,
                    "bench progression: nothing to time: give -p or -n of more than 0");
    }
    return true;
}

// In the order of the device's list, whatever order was asked for.
std::vector<std::string> chosen_checkpoints(const ProgressionOptions& options) {
    const std::vector<std::string> known = checkpoint_names(options.open.device);
    std::vector<std::string> chosen;
    const auto& asked = options.checkpoints;
    const bool all = std::find(asked.begin(), asked.end(), "all") != asked.end();
    for (const std::string& name : asked) {
        if (name != "all") parse_choice("--checkpoint", name, known);
    }
    for (const std::string& name : known) {
        const bool wanted = asked.empty()
                                ? name != kOracle
                                : all || std::find(asked.begin(), asked.end(), name) != asked.end();
        if (wanted) chosen.push_back(name);
    }
    if (chosen.size() > 1) return chosen;
    throw Error(ErrorKind::kUsage, "--checkpoint {}: expected two or more, to be compared",
                chosen.front());
}

// What is passed on to every process.
std::vector<std::string> device_arguments(const OpenOptions& open) {
    std::vector<std::string> arguments = {"--device", open.device};
    if (!open.cpu_isa.empty()) arguments.insert(arguments.end(), {"--cpu-isa", open.cpu_isa});
    return arguments;
}

std::vector<std::string> model_arguments(const OpenOptions& open) {
    std::vector<std::string> arguments = device_arguments(open);
    arguments.insert(arguments.end(),
                     {"-m", open.model, "-ctk", open.cache_type_k, "-ctv", open.cache_type_v});
    if (open.n_threads > 0) {
        arguments.insert(arguments.end(), {"-t", std::to_string(open.n_threads)});
    }
    if (open.pin) arguments.emplace_back("--pin");
    if (open.no_repack) arguments.emplace_back("--no-repack");
    if (open.no_tuning) arguments.emplace_back("--no-tuning");
    if (open.stream_weights) arguments.emplace_back("--stream-weights");
    if (open.memory_bytes > 0) {
        arguments.insert(arguments.end(),
                         {"--device-memory",
                          fmt::format("{:.9f}", 1e-9 * static_cast<double>(open.memory_bytes))});
    }
    return arguments;
}

class Progression {
  public:
    explicit Progression(const ProgressionOptions& options)
        : options_(options), status_(!options.quiet), checkpoints_(chosen_checkpoints(options)) {}

    void run() {
        for (const std::string& checkpoint : checkpoints_) {
            entries_.push_back({checkpoint, {}, {}, false});
        }
        try {
            measure();
        } catch (...) {  // what has been measured stays, and can be read
            status_.clear();
            if (n_rounds_of(entries_.front()) > 0) report();
            throw;
        }
        status_.clear();
        report();
        if (options_.plot.empty()) return;
        draw_plot(plot_of(progression_plot(entries_, about_)), options_.plot);
        if (!options_.quiet) say("wrote " + printable(options_.plot));
    }

  private:
    void measure() {
        for (ProgressionEntry& entry : entries_) {
            if (!options_.no_verify) verify(entry);
        }
        for (int64_t round = 0; round < options_.n_rounds; round++) {
            for (size_t i = 0; i < entries_.size(); i++) {
                ProgressionEntry& entry = entries_[round % 2 == 0 ? i : entries_.size() - 1 - i];
                time_once(entry, round);
                trace(entry);
            }
        }
    }

    void report() const {
        Output output;
        if (options_.json) {
            output.write_json(progression_json(entries_, about_, options_.n_rounds));
        } else {
            output.write_untrusted(progression_table(entries_, options_.n_rounds));
        }
        output.flush();
    }

    // Runs this very program; where it fails, its own words are the error.
    ChildResult child(std::vector<std::string> arguments, bool may_fail) {
        stop_if_interrupted();
        arguments.insert(arguments.begin(), program_path());
        std::optional<ChildResult> result =
            run_child(arguments, "", kMaxOutputBytes, kNoTimeLimit, stop_if_interrupted);
        stop_if_interrupted();
        if (!result) throw Error("bench progression: cannot start {}", printable(arguments[0]));
        const bool was_killed = result->status > 128;
        if (result->status == 0 || (may_fail && !was_killed)) return std::move(*result);
        std::string why = result->errors.substr(0, result->errors.find('\n'));
        constexpr std::string_view kPrefix = "ridge: ";
        if (why.starts_with(kPrefix)) why.erase(0, kPrefix.size());
        throw Error("--checkpoint {}: {}", arguments_checkpoint_,
                    why.empty() ? fmt::format("ended with status {}", result->status) : why);
    }

    Json json_of(std::vector<std::string> arguments, const std::string& checkpoint) {
        arguments_checkpoint_ = checkpoint;
        arguments.insert(arguments.end(), {"--checkpoint", checkpoint, "-q"});
        return parse_json(child(std::move(arguments), false).output, "the measurement");
    }

    void show(std::string_view what, const std::string& checkpoint) {
        const size_t n_all = entries_.size() * (static_cast<size_t>(options_.n_rounds) +
                                                (options_.no_verify ? 0 : 1));
        status_.show(fmt::format("{} {},", what, checkpoint),
                     static_cast<double>(n_done_++) / static_cast<double>(n_all));
    }

    void verify(ProgressionEntry& entry) {
        show("verifying", entry.checkpoint);
        std::vector<std::string> arguments = device_arguments(options_.open);
        arguments.insert(arguments.begin(), {"verify", "--checkpoint", entry.checkpoint, "--thin",
                                             std::to_string(kVerifyThin), "-q", "--json"});
        arguments_checkpoint_ = entry.checkpoint;
        const ChildResult result = child(std::move(arguments), true);
        entry.verified = true;
        if (result.status == 0) return;
        entry.fault = result.errors.substr(0, result.errors.find('\n'));
        if (entry.fault.empty()) entry.fault = "its kernels do not agree with the reference";
    }

    void time_once(ProgressionEntry& entry, int64_t round) {
        show(fmt::format("round {} of {}:", round + 1, options_.n_rounds), entry.checkpoint);
        std::vector<std::string> arguments = model_arguments(options_.open);
        arguments.insert(arguments.begin(),
                         {"bench", "-B", "1", "-p", std::to_string(options_.n_prompt), "-n",
                          std::to_string(options_.n_gen), "-d", std::to_string(options_.n_depth),
                          "-r", "1", "-o", "json"});
        const Json results = json_of(std::move(arguments), entry.checkpoint);
        for (size_t i = 0; i < results.size(); i++) {
            const Json& result = results[i];
            if (entry.tests.size() <= i) entry.tests.push_back({test_name_of(result), {}, {}});
            entry.tests[i].samples_ts.push_back(result.at("samples_ts").at(0).get<double>());
        }
        if (!about_.empty()) return;
        for (const char* key :
             {"build_commit", "build_version", "machine", "device", "isa", "model_filename",
              "model_type", "n_threads", "type_k", "type_v", "date"}) {
            about_[key] = results.at(0).at(key);
        }
        about_["n_rounds"] = options_.n_rounds;
    }

    static std::string test_name_of(const Json& result) {
        const int64_t n_prompt = result.at("n_prompt"), n_gen = result.at("n_gen"),
                      n_depth = result.at("n_depth");
        std::string name =
            n_prompt > 0 ? fmt::format("pp{}", n_prompt) : fmt::format("tg{}", n_gen);
        if (n_depth > 0) name += fmt::format(" @ d{}", n_depth);
        return name;
    }

    // Times, dispatches, waiting and rows of a step of each test. A step of a prompt is traced from
    // position 0 on.
    void trace(ProgressionEntry& entry) {
        std::vector<std::string> arguments = model_arguments(options_.open);
        arguments.insert(
            arguments.begin(),
            {"trace", "-B", "1", "-p", std::to_string(options_.n_prompt), "-d",
             std::to_string(options_.n_depth + options_.n_gen / 2), "-r", "3", "--json"});
        const Json json = json_of(std::move(arguments), entry.checkpoint);
        for (const Json& step : json.at("checkpoints").at(0).at("steps")) {
            const bool is_prompt = step.at("n_prompt") != 0;
            for (ProgressionTest& test : entry.tests) {
                if (test.name.starts_with(is_prompt ? "pp" : "tg")) {
                    test.facts.push_back(facts_of(step));
                }
            }
        }
    }

    static StepFacts facts_of(const Json& traced) {
        const Json& step = traced.at("step");
        StepFacts facts;
        facts.n_dispatches = step.at("n_dispatches");
        facts.idle_share = step.at("idle_share");
        facts.on_device = step.at("on_device");
        if (facts.on_device) facts.whole = step.at("whole");
        facts.activation_bytes = step.at("bytes").at("activations");
        for (const Json& node : step.at("nodes")) {
            facts.groups.push_back(
                {node.at("stage"), node.at("node"), node.at("checkpoint"), node.at("median_ns")});
        }
        return facts;
    }

    const ProgressionOptions& options_;
    StatusLine status_;
    const std::vector<std::string> checkpoints_;
    std::vector<ProgressionEntry> entries_;
    std::string arguments_checkpoint_;  // of the process that runs
    Json about_ = Json::object();
    size_t n_done_ = 0;
};

}  // namespace

int progression_command(const std::vector<std::string>& arguments) {
    ProgressionOptions options;
    if (!parse(arguments, options)) return 0;
    return blame_variables(options.from_variables, [&] {
        catch_interrupts();
        const ModelFile file = open_model_header(options.open.model);
        read_weights(file, read_config(file));
        Progression(options).run();
        return 0;
    });
}

}  // namespace ridge
