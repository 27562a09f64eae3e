#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/printable.h"
#include "base/system.h"
#include "base/timer.h"
#include "cmd/answer.h"
#include "cmd/command_line.h"
#include "cmd/commands.h"
#include "cmd/options.h"
#include "cmd/output.h"
#include "cmd/step_dump.h"
#include "cmd/trace_report.h"
#include "cmd/trace_timeline.h"
#include "cmd/values.h"
#include "engine/bench_session.h"
#include "engine/model_source.h"
#include "model/config.h"
#include "model/weights.h"

namespace ridge {
namespace {

constexpr int kTimelineSteps = 4;  // of each kind

// A kind of step is sampled so often, where -r does not say: at least a few times, and no longer
// than about this.
constexpr int64_t kMinSamples = 3, kMaxSamples = 50;
constexpr double kSamplingMs = 2000;

struct TraceOptions {
    OpenOptions open;
    std::vector<std::string> checkpoints;  // empty: the last
    int64_t n_prompt = 512, n_depth = 128, n_parallel = 1;
    int64_t n_repetitions = 0;  // 0: as kSamplingMs allows
    std::vector<std::string> replay;
    std::string timeline, dump;
    bool json = false, quiet = false;
    FromVariables from_variables;
};

bool parse(const std::vector<std::string>& arguments, TraceOptions& options) {
    CommandLine line("trace",
                     "Shows which kernel ran for each node of a step, how long, and how near "
                     "memory's limit.",
                     "ridge trace -m model.gguf --timeline step.json");
    line.section("Model");
    add_model_option(line, options.open.model);
    add_threads_option(line, options.open);
    add_cache_type_options(line, options.open);
    line.value("--checkpoint", "NAMES",
               "entries of the device's list of kernels to stop at, compared group by group; all: "
               "each (default: the last)",
               [&](Where where, const std::string& text) {
                   options.checkpoints =
                       parse_words(where, text, "all, or some of " + known_checkpoints());
               });
    add_device_options(line, options.open);
    line.section("Steps");
    add_step_options(line, options.n_prompt, options.n_depth, options.n_parallel);
    add_integer_option(line, "-r,--repetitions",
                       "samples of each step (default: 3 to 50, as 2 seconds allow)",
                       options.n_repetitions, 1, 1000);
    line.value("--replay", "NODES",
               "time these stages or ops (or layer) alone too, as they follow on one another",
               [&](Where where, const std::string& text) {
                   for (const std::string& name : parse_words(where, text, "names of nodes")) {
                       options.replay.push_back(parse_choice(where, name, replayable_nodes()));
                   }
               });
    line.section("Output");
    line.name("--timeline", "FILE", "write a timeline for Perfetto or chrome://tracing",
              options.timeline);
    line.name("--dump", "FOLDER", "write what every node computes, as .npy files", options.dump);
    line.flag("--json", "print one JSON object", options.json);
    add_quiet_option(line, options.quiet);
    if (!line.parse(arguments)) return false;
    options.from_variables = line.from_variables();
    need_model("trace", options.open.model);
    return true;
}

// What can be refused is refused before the model is opened.
void check_early(TraceOptions& options) {
    if (options.checkpoints.empty()) options.checkpoints.emplace_back();
    options.checkpoints = expanded_checkpoints(options.checkpoints, options.open.device);
    if (options.timeline == "-") {
        throw Error(ErrorKind::kUsage, "--timeline -: expected the name of a file");
    }
    if (options.checkpoints.size() == 1) return;
    for (auto [given, name] : {std::pair(!options.dump.empty(), "--dump"),
                               std::pair(!options.timeline.empty(), "--timeline"),
                               std::pair(!options.replay.empty(), "--replay")}) {
        if (!given) continue;
        throw Error(ErrorKind::kUsage, "{}: expected one --checkpoint, {} were given", name,
                    options.checkpoints.size());
    }
}

class Tracer {
  public:
    // Files that cannot be written are errors before anything is timed.
    explicit Tracer(const TraceOptions& options) : options_(options), status_(!options.quiet) {
        if (!options.timeline.empty()) timeline_file_.emplace(options.timeline, true);
        if (options.dump.empty()) return;
        decode_dump_.emplace(options.dump + "/decode");
        if (options.n_prompt > 0) prompt_dump_.emplace(options.dump + "/prompt");
    }

    void run() {
        for (const std::string& checkpoint : options_.checkpoints) run_checkpoint(checkpoint);
        status_.clear();
        Output output;
        if (options_.json) {
            output.write_json(trace_json(results_));
        } else {
            output.write_untrusted(text());
        }
        output.flush();
    }

  private:
    void run_checkpoint(const std::string& checkpoint) {
        OpenOptions open = options_.open;
        open.checkpoint = checkpoint;
        auto progress = [&](std::string_view what, double share) {
            stop_if_interrupted();
            status_.show(what, share);
        };
        const int64_t n_positions = std::max(options_.n_depth + kStepsInARow, options_.n_prompt);
        std::vector<int64_t> positions(static_cast<size_t>(options_.n_parallel),
                                       options_.n_depth + kStepsInARow);
        positions.front() = n_positions;
        auto session =
            BenchSession::open(open, std::move(positions), static_cast<int>(options_.n_prompt),
                               progress, [](double) { stop_if_interrupted(); });
        if (!options_.quiet && results_.empty()) {
            status_.clear();
            for (const std::string& line : lines_of_device(session->info())) say(line);
        }
        trace_ = StepTrace();
        TracedCheckpoint result;
        result.model = session->info();
        result.read_gbps = session->measure_read_gbps();
        session->fill(static_cast<int>(options_.n_parallel), options_.n_depth, progress);
        session->set_trace(&trace_);
        TracedStepKind decode;
        decode.n_parallel = static_cast<int>(options_.n_parallel);
        decode.n_depth = options_.n_depth;
        result.steps.push_back(trace_kind(*session, decode));
        if (options_.n_prompt > 0) {
            TracedStepKind prompt;
            prompt.n_prompt = options_.n_prompt;
            result.steps.push_back(trace_kind(*session, prompt));
        }
        if (!options_.timeline.empty()) write_timeline();
        results_.push_back(std::move(result));
    }

    // Of decode steps there may be several in a row.
    void step(BenchSession& session, const TracedStepKind& kind, int64_t n_in_a_row = 1) {
        if (kind.n_prompt > 0) {
            session.prompt(0, kind.n_prompt);
        } else {
            session.decode(kind.n_parallel, kind.n_depth, n_in_a_row);
        }
    }

    TracedStepKind trace_kind(BenchSession& session, TracedStepKind kind) {
        if (!options_.replay.empty()) {  // first, since it may be refused
            step(session, kind);         // whole: the trace learns what calls what
            check_replay(options_.replay, trace_.spans(), kind.name());
            trace_.only = options_.replay;
            sample(session, kind, kind.alone, 0);
            trace_.only.clear();
        }
        sample(session, kind, kind.profile, kTimelineSteps);
        auto& files = kind.n_prompt > 0 ? prompt_dump_ : decode_dump_;
        if (files) dump(session, kind, *files);
        return kind;
    }

    // Nanoseconds of steps as they run without a trace: for decode, of each of several in a row.
    std::vector<double> time_runs(BenchSession& session, const TracedStepKind& kind) {
        constexpr int kRuns = 7;
        const int64_t n_in_a_row = kind.n_prompt > 0 ? 1 : kStepsInARow;
        session.set_trace(nullptr);
        std::vector<double> ns;
        for (int i = -1; i < kRuns; i++) {  // the first warms up
            const Timer timer;
            step(session, kind, n_in_a_row);
            const auto elapsed_ns = static_cast<double>(timer.elapsed_ns());
            if (i >= 0) ns.push_back(elapsed_ns / static_cast<double>(n_in_a_row));
        }
        session.set_trace(&trace_);
        return ns;
    }

    // Traced steps, and on a device that works behind the host what each kernel takes alone.
    void sample(BenchSession& session, const TracedStepKind& kind, StepProfile& profile,
                int n_on_timeline) {
        sample_traced(session, kind, profile, n_on_timeline);
        if (!profile.is_on_device()) return;
        status_.show("timing the kernels of a " + kind.name(), 0);
        const bool is_whole = trace_.only.empty();
        profile.time_on_device(
            trace_, [&] { step(session, kind); },
            is_whole ? time_runs(session, kind) : profile.samples_ns());
    }

    void sample_traced(BenchSession& session, const TracedStepKind& kind, StepProfile& profile,
                       int n_on_timeline) {
        const std::string name = kind.name();
        step(session, kind);  // warms up
        const Timer timer;
        const int64_t asked = options_.n_repetitions;
        for (int64_t i = 0;; i++) {
            const bool enough = asked > 0 ? i >= asked
                                          : i >= kMaxSamples || (i >= kMinSamples &&
                                                                 timer.elapsed_ms() > kSamplingMs);
            if (enough) return;
            const double share =
                asked > 0 ? static_cast<double>(i) / static_cast<double>(asked)
                          : std::max(static_cast<double>(i) / static_cast<double>(kMaxSamples),
                                     std::min(timer.elapsed_ms() / kSamplingMs, 1.0));
            status_.show("tracing a " + name, share);
            step(session, kind);
            profile.add(trace_);
            if (!options_.timeline.empty() && i < n_on_timeline) {
                if (!timeline_) timeline_.emplace("ridge " + session.info().name);
                timeline_->add(name, trace_);
            }
        }
    }

    void dump(BenchSession& session, const TracedStepKind& kind, StepDump& files) {
        const bool is_prompt = kind.n_prompt > 0;
        trace_.on_end = [&](const NodeSpan& span) {
            StepTrace::HostCopy room;
            files.add(span, stage_of(trace_.spans(), span), trace_.on_host(span.work.out, room));
            stop_if_interrupted();
        };
        step(session, kind);
        trace_.on_end = {};
        const int64_t first = is_prompt ? 0 : kind.n_depth;
        std::vector<Token> tokens;
        for (int64_t i = 0; i < first + (is_prompt ? kind.n_prompt : 1); i++) {
            tokens.push_back(session.token_at(0, i));
        }
        files.finish(kind.name(), tokens, first, is_prompt ? 1 : kind.n_parallel);
        status_.clear();
        if (!options_.quiet) {
            say(fmt::format("wrote {} files of a {} to {}", files.n_files(), kind.name(),
                            printable(options_.dump)));
        }
    }

    void write_timeline() {
        timeline_file_->append(timeline_->text());
        timeline_file_->commit();
        status_.clear();
        if (!options_.quiet) say("wrote " + printable(options_.timeline));
    }

    std::string text() const {
        std::string text;
        for (size_t i = 0; i < results_.front().steps.size(); i++) {
            if (i > 0) text += "\n";
            if (results_.size() > 1) {
                text += attribution_table(results_, i);
                continue;
            }
            const TracedCheckpoint& one = results_.front();
            text += step_table(one.steps[i], one.read_gbps);
            if (one.steps[i].alone.n_samples() > 0) {
                text += "\n" + replay_table(one.steps[i], one.read_gbps);
            }
        }
        return text;
    }

    const TraceOptions& options_;
    StatusLine status_;
    StepTrace trace_;
    std::optional<Timeline> timeline_;
    std::optional<FileWriter> timeline_file_;
    std::optional<StepDump> decode_dump_, prompt_dump_;
    std::vector<TracedCheckpoint> results_;
};

}  // namespace

int trace_command(const std::vector<std::string>& arguments) {
    TraceOptions options;
    if (!parse(arguments, options)) return 0;
    return blame_variables(options.from_variables, [&] {
        catch_interrupts();
        check_early(options);
        Tracer(options).run();
        return 0;
    });
}

}  // namespace ridge
