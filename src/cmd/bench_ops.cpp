#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/system.h"
#include "base/timer.h"
#include "cases/case_run.h"
#include "cases/model_cases.h"
#include "cases/subject.h"
#include "cmd/bench_ops_report.h"
#include "cmd/build_info.h"
#include "cmd/case_copies.h"
#include "cmd/command_line.h"
#include "cmd/commands.h"
#include "cmd/machine_json.h"
#include "cmd/options.h"
#include "cmd/output.h"
#include "cmd/peers.h"
#include "cmd/step_profile.h"
#include "cmd/tuning_info.h"
#include "cmd/values.h"
#include "engine/case_session.h"
#include "engine/model_source.h"
#include "engine/tuning_cache.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/weights.h"

namespace ridge {
namespace {

constexpr int64_t kMaxRows = 4096, kMaxDepth = int64_t{1} << 20;
constexpr int64_t kMaxParallel = 256;
constexpr std::string_view kOracle = "ref", kUntuned = ", untuned";

// A sample runs an operator over and over for about so long, and looks at the clock in runs of so
// long: many calls of the fastest.
constexpr double kSampleMs = 20;
constexpr int64_t kRunNs = 20'000;
// Where calls are long, not every copy has one: so much and a call more.
constexpr double kLongSampleMs = 300;

// Of a peer's result from the equation's: 16-bit operands and sums are as far off as 0.01.
constexpr double kPeerError = 0.05;

// Rows behind so many positions, of --sweep.
constexpr int64_t kSweepRows[] = {1, 4, 16, 64, 256}, kSweepDepths[] = {0, 512, 2048, 8192};

struct OpsOptions {
    OpenOptions open;
    std::vector<std::string> ops, checkpoints;
    std::vector<int64_t> n_depth, n_prompt;
    int64_t n_parallel = 1, n_repetitions = 5;
    bool sweep = false, controls = false, untuned = false, json = false, quiet = false;
    PeerOptions peers;
    FromVariables from_variables;
};

bool parse(const std::vector<std::string>& arguments, OpsOptions& options) {
    CommandLine line(
        "bench ops",
        "Times every operator of a model's steps at its real shapes, each checkpoint's "
        "kernel beside the plain one.",
        "ridge bench ops -m model.gguf --op matmul,attention -d 128,4096");
    line.section("Model (shapes and formats; weights are random)");
    add_model_option(line, options.open.model);
    add_cache_type_options(line, options.open);
    line.section("Operators (LIST: words or numbers with commas between)");
    auto words = [&](std::string_view name, std::string help, std::vector<std::string>& list) {
        line.value(name, "LIST", std::move(help), [&list](Where where, const std::string& text) {
            for (std::string& word : parse_words(where, text)) list.push_back(std::move(word));
        });
    };
    words("--op", "operators (default: all)", options.ops);
    words(
        "--checkpoint",
        "entries of the device's list of kernels (default: all but ref, which is slow on purpose)",
        options.checkpoints);
    add_integers_option(line, "-d,--n-depth", "positions before a decode step's own (default: 128)",
                        options.n_depth, 0, kMaxDepth);
    add_integers_option(line, "-p,--n-prompt",
                        "rows of a prompt's step, from position 0 on; 0: none (default: 128)",
                        options.n_prompt, 0, kMaxRows);
    add_integer_option(line, "-B,--n-parallel",
                       "sequences of a decode step; 0: no decode steps (default: 1)",
                       options.n_parallel, 0, kMaxParallel);
    add_integer_option(line, "-r,--repetitions", "samples of each, in turns (default: 5)",
                       options.n_repetitions, 1, 1000);
    line.flag("--sweep",
              "attention alone: each of -p rows behind each of -d positions (default: 1 to 256 "
              "rows, 0 to 8192 positions)",
              options.sweep);
    line.flag("--controls",
              "beside each kernel of the CPU the same one on every lesser instruction set",
              options.controls);
    add_peer_options(line, options.peers, PeerWork::kOps);
    line.section("Where");
    line.name("--device", "NAME", "device whose kernels run: auto (default), cpu, cuda:N",
              options.open.device, expected_devices);
    line.name("--cpu-isa", "NAME", "instruction set of the CPU's kernels (default: the best)",
              options.open.cpu_isa, [] { return "one of " + known_cpu_isas(); });
    add_threads_option(line, options.open);
    add_tuning_option(line, options.open);
    line.flag("--untuned",
              "beside the kernels that ridge tune has chosen for the same ones without that choice",
              options.untuned);
    line.section("Output");
    line.flag("--json", "print one JSON object, with every sample", options.json);
    add_quiet_option(line, options.quiet);
    if (!line.parse(arguments)) return false;
    options.from_variables = line.from_variables();
    need_model("bench ops", options.open.model);
    return true;
}

bool reads_memory(Op op) {
    return op == Op::kMatmul || op == Op::kAttention || op == Op::kEmbedRows;
}

void set_defaults(OpsOptions& options) {
    auto& depths = options.n_depth;
    auto& rows = options.n_prompt;
    if (!options.sweep) {
        if (depths.empty()) depths = {128};
        if (rows.empty()) rows = {128};
        return;
    }
    if (depths.empty()) depths.assign(std::begin(kSweepDepths), std::end(kSweepDepths));
    if (rows.empty()) rows.assign(std::begin(kSweepRows), std::end(kSweepRows));
    const std::string attention(op_name(Op::kAttention));
    if (!options.ops.empty() && options.ops != std::vector{attention}) {
        throw Error(ErrorKind::kUsage, "--sweep: it is of attention alone, expected no other --op");
    }
    options.ops = {attention};
}

// `step`: with the types of the cache.
std::vector<StepShape> wanted_steps(const OpsOptions& options, StepShape step) {
    std::vector<StepShape> steps;
    for (int64_t n_depth : options.n_depth) {
        if (options.n_parallel == 0 || options.sweep) break;
        step.n_rows = static_cast<int32_t>(options.n_parallel), step.n_ctx = n_depth + 1;
        steps.push_back(step);
    }
    for (int64_t n_prompt : options.n_prompt) {
        if (n_prompt == 0) continue;
        const std::vector<int64_t> from_start = {0};
        for (int64_t n_depth : options.sweep ? options.n_depth : from_start) {
            // A row of a sweep is one of a decode step.
            const bool decodes = options.sweep && n_prompt == 1;
            step.row_class = decodes ? RowClass::kDecode : RowClass::kPrompt;
            step.n_rows = static_cast<int32_t>(n_prompt), step.n_ctx = n_depth + n_prompt;
            steps.push_back(step);
        }
    }
    return steps;
}

// The steps' calls, each once, in the order of ops.
std::vector<Case> wanted_cases(const OpsOptions& options) {
    const ModelFile file = open_model_header(options.open.model);
    const Config config = read_config(file);
    const Weights weights = read_weights(file, config);
    StepShape step;
    step.k_dtype = read_cache_type("-ctk", options.open.cache_type_k);
    step.v_dtype = read_cache_type("-ctv", options.open.cache_type_v);
    check_kv_types(config, step.k_dtype, step.v_dtype);
    std::vector<Case> cases;
    for (const StepShape& shape : wanted_steps(options, step)) {
        for (Case& c : model_cases(config, weights, shape)) {
            const auto& ops = options.ops;
            const bool wanted =
                ops.empty() || std::find(ops.begin(), ops.end(), op_name(c.op)) != ops.end();
            const bool known = std::any_of(cases.begin(), cases.end(),
                                           [&](const Case& other) { return other.name == c.name; });
            if (wanted && !known) cases.push_back(std::move(c));
        }
    }
    std::stable_sort(cases.begin(), cases.end(),
                     [](const Case& a, const Case& b) { return a.op < b.op; });
    return cases;
}

class OpBench {
  public:
    explicit OpBench(const OpsOptions& options)
        : options_(options),
          status_(!options.quiet),
          isa_(options.open.cpu_isa.empty() ? cpu_isa_names().back() : options.open.cpu_isa),
          peers_(start_peers(options.peers, PeerWork::kOps, {n_threads(options), false},
                             stop_if_interrupted)),
          session_(CaseSession::open(
              with_isa(options.open, options.controls ? options.open.cpu_isa : isa_))),
          pool_(n_threads(options)),
          cases_(wanted_cases(options)),
          last_cache_bytes_(last_cache_bytes(session_->case_device())) {
        check_names();
        read_tuning();
    }

    void run() {
        for (size_t i = 0; i < cases_.size(); i++) results_.push_back(time_case(i));
        status_.clear();
        Output output;
        if (options_.json) {
            output.write_json(json());
        } else {
            output.write_untrusted(ops_table(results_));
            output.write_untrusted(peer_notes());
        }
        output.flush();
    }

  private:
    static int n_threads(const OpsOptions& options) {
        return options.open.n_threads > 0 ? options.open.n_threads : default_n_threads();
    }

    static OpenOptions with_isa(OpenOptions open, const std::string& isa) {
        open.cpu_isa = isa;
        return open;
    }

    void read_tuning() {
        if (options_.open.no_tuning) return;
        LoadedTuning loaded =
            load_tuning(options_.open.tuning_folder,
                        tuning_key(session_->gpu(), isa_, pool_.size(), options_.open.build));
        if (!loaded.ignored.empty() && !options_.quiet) say(loaded.ignored);
        if (!loaded.cache) return;
        tuning_ = loaded.cache->tuning();
        tuned_ = tuning_info(loaded);
    }

    // With what was chosen for this instruction set, and without it where that is asked for.
    std::vector<Subject> tuned(std::vector<Subject> subjects) const {
        if (tuned_.n_choices == 0) return subjects;
        std::vector<Subject> all;
        for (Subject& subject : subjects) {
            const bool is_for_it = subject.isa.empty() || subject.isa == isa_;
            std::optional<Subject> untuned;
            if (options_.untuned && is_for_it && subject.tables.kernels != nullptr) {
                untuned = subject;
                untuned->checkpoint += kUntuned;
            }
            if (is_for_it) subject.tables.tuning = &tuning_;
            all.push_back(std::move(subject));
            if (untuned) all.push_back(std::move(*untuned));
        }
        return all;
    }

    void check_names() const {
        std::vector<std::string> known;
        for (const Checkpoint& checkpoint : session_->checkpoints()) {
            known.emplace_back(checkpoint.name);
        }
        for (const std::string& name : options_.checkpoints) {
            parse_choice("--checkpoint", name, known);
        }
        std::vector<std::string> ops;
        for (int i = 0; i < kNumOps; i++) ops.emplace_back(op_name(static_cast<Op>(i)));
        for (const std::string& name : options_.ops) parse_choice("--op", name, ops);
    }

    // On the CPU of one instruction set alone, where no controls are asked for.
    std::vector<Subject> subjects_of_op(Op op) const {
        std::vector<Subject> subjects = session_->subjects(op);
        std::erase_if(subjects, [&](const Subject& subject) {
            if (!options_.controls && !subject.isa.empty() && subject.isa != isa_) return true;
            const auto& asked = options_.checkpoints;
            if (asked.empty()) return subject.checkpoint == kOracle;
            return std::find(asked.begin(), asked.end(), subject.checkpoint) == asked.end();
        });
        return tuned(std::move(subjects));
    }

    CaseResult time_case(size_t number) {
        const Case& c = cases_[number];
        CaseResult result{c, {}, {}};
        const std::vector<Subject> subjects = subjects_of_op(c.op);
        for (const Subject& subject : subjects) {
            result.results.push_back(
                {subject.checkpoint, subject.isa == isa_ ? "" : subject.isa, {}});
        }
        if (subjects.empty()) return result;  // none of the checkpoints that were asked for
        std::deque<CaseRun> copies = copies_of(
            c, last_cache_bytes_, reads_memory(c.op) ? kMostCopies : 1, stop_if_interrupted);
        for (Peer& peer : peers_) {
            stop_if_interrupted();
            status_.show(fmt::format("{} in {},", c.name, peer.name()), done_of(number, 0));
            result.peers.push_back(open_in_peer(peer, c, static_cast<int64_t>(copies.size())));
        }
        for (int64_t r = 0; r < options_.n_repetitions; r++) {
            // In order and backwards in turns, since neighbours in time have a machine alike.
            const size_t n_subjects = subjects.size(), n = n_subjects + peers_.size();
            for (size_t i = 0; i < n; i++) {
                const size_t s = r % 2 == 0 ? i : n - 1 - i;
                stop_if_interrupted();
                const double round_done = static_cast<double>(i) / static_cast<double>(n);
                status_.show(fmt::format("timing {},", c.name),
                             done_of(number, (static_cast<double>(r) + round_done) /
                                                 static_cast<double>(options_.n_repetitions)));
                if (s >= n_subjects) {
                    time_peer(peers_[s - n_subjects], result.peers[s - n_subjects]);
                    continue;
                }
                const Timer warming;
                for (CaseRun& copy : copies) {
                    copy.bind(subjects[s].tables, pool_, session_->case_device());
                    copy.reset();
                    if (warming.elapsed_ms() < kLongSampleMs) copy.run_op();
                }
                result.results[s].samples_ns.push_back(sample(c, copies));
            }
        }
        return result;
    }

    double done_of(size_t number, double of_case) const {
        return (static_cast<double>(number) + of_case) / static_cast<double>(cases_.size());
    }

    // The same operator in a peer, held against the equation there. Error where it is another one.
    PeerOpResult open_in_peer(Peer& peer, const Case& c, int64_t n_copies) const {
        Json request;
        request["request"] = "op";
        request["op"] = std::string(op_name(c.op));
        request["shape"] = shape_json(c);
        request["device"] = session_->case_device() == nullptr ? "cpu" : "cuda";
        request["copies_bytes"] = n_copies * c.bytes;
        const Json answer = peer.ask(request);
        PeerOpResult result;
        result.name = peer.name();
        const auto has = [&](const char* field, bool (Json::*is)() const, const char* expected) {
            const auto found = answer.find(field);
            if (found == answer.end() || ((*found).*is)()) return found != answer.end();
            throw Error("--peer {}: {}: its {} is {}, expected {}", peer.name(), c.name, field,
                        printable(dump_json(*found), 80), expected);
        };
        if (has("unfit", &Json::is_string, "a string")) result.unfit = answer["unfit"];
        if (!result.unfit.empty()) return result;
        if (has("variant", &Json::is_string, "a string")) result.variant = answer["variant"];
        if (has("bytes", &Json::is_number, "a number")) result.n_bytes = answer["bytes"];
        if (!has("relative_l2", &Json::is_number, "a number")) {
            throw Error(
                "--peer {}: {}: it does not say relative_l2, how far its result is from the "
                "equation's",
                peer.name(), c.name);
        }
        result.relative_l2 = answer["relative_l2"];
        if (result.relative_l2 >= 0 && result.relative_l2 <= kPeerError) return result;
        throw Error("--peer {}: {}: its result is off by {:.2g} (relative L2), expected {} or less",
                    peer.name(), c.name, result.relative_l2, kPeerError);
    }

    static void time_peer(Peer& peer, PeerOpResult& result) {
        if (!result.unfit.empty()) return;
        Json request;
        request["request"] = "sample";
        request["sample_ms"] = kSampleMs;
        request["run_ns"] = kRunNs;
        result.samples_ns.push_back(peer.ask_ns(request));
    }

    // What they are, and what they did not do.
    std::string peer_notes() const {
        std::string text;
        if (!peers_.empty()) {
            text +=
                "\nRidge is: how many times as fast its fastest kernel is, the median of the "
                "rounds' ratios ± their median distance from it.\n";
        }
        for (const Peer& peer : peers_) {
            text += fmt::format("\n{}: {}; {}.\n", peer.name(), peer_title(peer.about()),
                                peer.about().value("note", "its own layouts"));
            std::set<std::string> unfit;
            for (const CaseResult& result : results_) {
                for (const PeerOpResult& one : result.peers) {
                    if (one.name != peer.name() || one.unfit.empty()) continue;
                    if (!unfit.insert(one.unfit).second) continue;
                    text += fmt::format("{} did not run {}: {}\n", peer.name(), result.c.name,
                                        one.unfit);
                }
            }
        }
        return printable(text, 0, true);
    }

    void wait() const {
        if (session_->case_device() != nullptr) session_->case_device()->wait();
    }

    // Time of a call, in ns. On the CPU the median over runs of calls: a mean over the sample would
    // hold whatever else the system ran meanwhile. A GPU's calls are waited for all together.
    double sample(const Case& c, std::deque<CaseRun>& copies) {
        wait();
        // A sampler writes over its logits: each call gets new ones, outside of the clock.
        const bool needs_reset = c.op == Op::kSample;
        const bool waits_at_end = session_->case_device() != nullptr && !needs_reset;
        std::vector<double> runs_ns;  // a call of each, on average
        int64_t n_calls = 0, n_of_run = 0, run_ns = 0;
        const Timer all;
        const auto goes_on = [&](size_t n_done) {
            const double ms = all.elapsed_ms();
            return n_done == 0 || ms < kSampleMs || (n_done < copies.size() && ms < kLongSampleMs);
        };
        for (size_t i = 0; goes_on(i); i++) {
            CaseRun& copy = copies[i % copies.size()];
            if (needs_reset) {
                copy.reset();
                wait();
            }
            const Timer timer;
            copy.run_op();
            if (needs_reset) wait();
            run_ns += timer.elapsed_ns();
            n_calls++, n_of_run++;
            if (run_ns < kRunNs) continue;
            runs_ns.push_back(static_cast<double>(run_ns) / static_cast<double>(n_of_run));
            n_of_run = run_ns = 0;
        }
        wait();
        if (waits_at_end) {
            return static_cast<double>(all.elapsed_ns()) / static_cast<double>(n_calls);
        }
        if (runs_ns.empty()) return static_cast<double>(run_ns) / static_cast<double>(n_of_run);
        return median_of(std::move(runs_ns));
    }

    Json json() const {
        Json json;
        json["build_commit"] = std::string(build_info().commit);
        json["build_version"] = std::string(build_info().version);
        json["machine"] = machine_json();
        json["device"] = session_->device();
        if (!session_->gpu().empty()) json["gpu"] = session_->gpu();
        json["isa"] = session_->case_device() == nullptr ? isa_ : "";
        json["n_threads"] = pool_.size();
        json["tuning"] = tuning_json(tuned_);
        json["model_filename"] = options_.open.model;
        if (!peers_.empty()) json["peers"] = Json::object();
        for (const Peer& peer : peers_) json["peers"][peer.name()] = peer.about();
        json["operators"] = ops_json(results_);
        return json;
    }

    const OpsOptions& options_;
    StatusLine status_;
    const std::string isa_;  // of the CPU's kernels
    Tuning tuning_;          // for it
    TuningInfo tuned_;
    std::vector<Peer> peers_;
    std::unique_ptr<CaseSession> session_;
    ThreadPool pool_;
    std::vector<Case> cases_;
    const int64_t last_cache_bytes_;
    std::vector<CaseResult> results_;
};

}  // namespace

int bench_ops_command(const std::vector<std::string>& arguments) {
    OpsOptions options;
    if (!parse(arguments, options)) return 0;
    return blame_variables(options.from_variables, [&] {
        check_peers(options.peers, PeerWork::kOps);
        set_defaults(options);
        const bool has_prompts = std::any_of(options.n_prompt.begin(), options.n_prompt.end(),
                                             [](int64_t n) { return n > 0; });
        if (options.n_parallel == 0 && !has_prompts) {
            throw Error(ErrorKind::kUsage,
                        "bench ops: nothing to time: give -p or -B of more than 0");
        }
        catch_interrupts();
        OpBench(options).run();
        return 0;
    });
}

}  // namespace ridge
