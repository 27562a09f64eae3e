#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "base/system.h"
#include "base/timer.h"
#include "cmd/answer.h"
#include "cmd/command_line.h"
#include "cmd/commands.h"
#include "cmd/machine_json.h"
#include "cmd/options.h"
#include "cmd/output.h"
#include "cmd/plot.h"
#include "cmd/roofline_kernels.h"
#include "cmd/roofline_plot.h"
#include "cmd/roofline_report.h"
#include "cmd/step_profile.h"
#include "cmd/values.h"
#include "engine/bench_session.h"
#include "engine/device_ceilings.h"
#include "format/format.h"
#include "model/step_trace.h"

namespace ridge {
namespace {

// In each turn, decode steps go on for so long, but there are no more than so many of them.
constexpr double kDecodeMs = 100;
constexpr int kMaxDecodeSteps = 20;
// Of prompt steps, which may take seconds, all together.
constexpr int kMinPromptSteps = 3;
constexpr double kPromptMs = 3000;

struct RooflineOptions {
    OpenOptions open;
    int64_t n_prompt = 512, n_depth = 128, n_parallel = 1;
    std::string plot;
    bool json = false, quiet = false;
    FromVariables from_variables;
};

bool parse(const std::vector<std::string>& arguments, RooflineOptions& options) {
    CommandLine line("roofline",
                     "Measures the machine's own ceilings, and how near a model's kernels come.",
                     "ridge roofline -m model.gguf --plot roofline.png");
    line.section("Model (without one the ceilings alone are measured)");
    add_model_option(line, options.open.model);
    add_threads_option(line, options.open);
    add_cache_type_options(line, options.open);
    line.name("--checkpoint", "NAME", "stop at this entry of the device's list of kernels",
              options.open.checkpoint, [] { return "one of " + known_checkpoints(); });
    add_device_options(line, options.open);
    line.section("Steps");
    add_step_options(line, options.n_prompt, options.n_depth, options.n_parallel);
    line.section("Output");
    add_plot_option(line, "draw it, by gnuplot, to a file that ends in .svg or .png", options.plot);
    line.flag("--json", "print one JSON object", options.json);
    line.flag("-q,--quiet", "nothing on standard error but errors", options.quiet);
    for (const char* name : {"--checkpoint", "--n-prompt", "--n-depth", "--n-parallel"}) {
        line.needs(name, "--model");
    }
    if (!line.parse(arguments)) return false;
    options.from_variables = line.from_variables();
    return true;
}

// A kind of step while it is measured.
struct Sampled {
    RooflineStep step;
    StepProfile profile;
};

class Roofline {
  public:
    explicit Roofline(const RooflineOptions& options)
        : options_(options), status_(!options.quiet) {}

    RooflineResult run() {
        result_.time_s = now_s();
        if (options_.open.model.empty()) {
            measure_device();
        } else {
            measure_model();
        }
        status_.clear();
        check_measured();
        return std::move(result_);
    }

  private:
    CeilingEvents events() {
        return {.progress =
                    [this](double share) {
                        stop_if_interrupted();
                        status_.show("measuring", share);
                    },
                .between = {}};
    }

    void measure_device() {
        DeviceCeilings device = measure_device_ceilings(options_.open, events());
        result_.model = std::move(device.device);
        result_.ceilings = std::move(device.ceilings);
    }

    void measure_model() {
        auto progress = [&](std::string_view what, double share) {
            stop_if_interrupted();
            status_.show(what, share);
        };
        std::vector<int64_t> positions(static_cast<size_t>(options_.n_parallel),
                                       options_.n_depth + kStepsInARow);
        positions.front() = std::max(options_.n_depth + kStepsInARow, options_.n_prompt);
        session_ = BenchSession::open(options_.open, std::move(positions),
                                      static_cast<int>(options_.n_prompt), progress,
                                      [](double) { stop_if_interrupted(); });
        result_.model = session_->info();
        session_->fill(static_cast<int>(options_.n_parallel), options_.n_depth, progress);
        decode_.step.n_parallel = static_cast<int>(options_.n_parallel);
        decode_.step.n_depth = options_.n_depth;
        prompt_.step.n_prompt = options_.n_prompt;
        n_in_a_row_ = result_.model.device == "cpu" ? 1 : kStepsInARow;
        time_step(decode_, n_in_a_row_);  // warms up
        const double prompt_ms = options_.n_prompt > 0 ? time_step(prompt_, 1) : 0;
        CeilingEvents turns = events();
        turns.between = [&](double share) { take_turn(share, prompt_ms); };
        result_.ceilings = session_->measure_ceilings(turns);
        if (result_.ceilings.list.empty()) return;
        finish(decode_);
        if (options_.n_prompt > 0) finish(prompt_);
    }

    // Every step runs once traced, and once whole.
    void take_turn(double share, double prompt_ms) {
        stop_if_interrupted();
        result_.read_walls_gbps.push_back(session_->measure_read_gbps());
        const Timer timer;
        for (int i = 0; i < kMaxDecodeSteps && (i == 0 || timer.elapsed_ms() < kDecodeMs); i++) {
            sample(decode_);
        }
        if (options_.n_prompt == 0) return;
        const double n_wanted = std::max<double>(kMinPromptSteps, kPromptMs / (2 * prompt_ms));
        while (static_cast<double>(prompt_.profile.n_samples()) < n_wanted * share ||
               prompt_.profile.n_samples() == 0) {
            sample(prompt_);
        }
    }

    void sample(Sampled& sampled) {
        session_->set_trace(&trace_);
        time_step(sampled, 1);
        sampled.profile.add(trace_);
        session_->set_trace(nullptr);
        sampled.step.samples_ns.push_back(1e6 * time_step(sampled, n_in_a_row_));
    }

    // Milliseconds of a step; of decode steps there may be several in a row.
    double time_step(const Sampled& sampled, int64_t n_steps) {
        const Timer timer;
        if (sampled.step.n_prompt > 0) {
            session_->prompt(0, sampled.step.n_prompt);
        } else {
            session_->decode(sampled.step.n_parallel, sampled.step.n_depth, n_steps);
            return timer.elapsed_ms() / static_cast<double>(n_steps);
        }
        return timer.elapsed_ms();
    }

    // On a device: kernels alone, as a captured step starts them.
    void time_alone(Sampled& sampled) {
        if (!sampled.profile.is_on_device()) return;
        session_->set_trace(&trace_);
        sampled.profile.time_on_device(
            trace_, [&] { time_step(sampled, 1); }, sampled.step.samples_ns);
        session_->set_trace(nullptr);
        sampled.step.on_device = true;
    }

    void finish(Sampled& sampled) {
        time_alone(sampled);
        const Roof roof(result_.ceilings);
        RooflineStep& step = sampled.step;
        const StepProfile& profile = sampled.profile;
        step.work = profile.work();
        step.traced_us = 1e-3 * profile.median_ns();
        step.between_us = 1e-3 * profile.between_ns();
        const int64_t step_bytes = step.work.weight_bytes + step.work.kv_bytes;
        step.read_gbps = std::max(result_.read_wall_gbps(), roof.level_of(step_bytes).read_gbps);
        for (const NodeGroup& group : profile.groups()) {
            const bool is_prompt = step.n_prompt > 0 && group.stage != "head";
            const Format* format =
                group.matrices.empty() ? nullptr : find_format(group.matrices[0].format);
            const std::string_view arithmetic =
                session_->arithmetic_of(group.node, group.checkpoint, format,
                                        is_prompt ? RowClass::kPrompt : RowClass::kDecode);
            step.kernels.push_back(place_kernel(group, step_bytes, arithmetic, roof));
        }
        result_.steps.push_back(std::move(step));
    }

    void check_measured() const {
        const ModelInfo& model = result_.model;
        if (result_.ceilings.list.empty()) {
            throw Error(ErrorKind::kUsage, "roofline: {} does not measure its ceilings",
                        model.device);
        }
        if (options_.quiet) return;
        for (const std::string& line : lines_of_device(model)) say(line);
        constexpr double kUndisturbed = 0.95;
        if (result_.ceilings.share_run >= kUndisturbed) return;
        const int n_cpus = n_allowed_cpus();
        const std::string why =
            model.n_threads > n_cpus
                ? fmt::format("{} take turns on {}", counted(model.n_threads, "thread"),
                              counted(n_cpus, "CPU"))
                : "other programs ran meanwhile";
        say(
            fmt::format("{}: threads had their CPUs for {:.0f} % of the time, so that ceilings are "
                        "too low",
                        why, 100 * result_.ceilings.share_run));
    }

    const RooflineOptions& options_;
    StatusLine status_;
    std::unique_ptr<BenchSession> session_;
    int64_t n_in_a_row_ = 1;
    StepTrace trace_;
    Sampled decode_, prompt_;
    RooflineResult result_;
};

}  // namespace

int roofline_command(const std::vector<std::string>& arguments) {
    RooflineOptions options;
    if (!parse(arguments, options)) return 0;
    return blame_variables(options.from_variables, [&] {
        catch_interrupts();
        const RooflineResult result = Roofline(options).run();
        Output output;
        if (options.json) {
            output.write_json(roofline_json(result));
        } else {
            output.write_untrusted(roofline_text(result));
        }
        output.flush();
        if (!options.plot.empty()) {
            draw_plot(roofline_plot(result), options.plot);
            if (!options.quiet) say("wrote " + printable(options.plot));
        }
        return 0;
    });
}

}  // namespace ridge
