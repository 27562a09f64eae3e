#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/caches.h"
#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/system.h"
#include "base/timer.h"
#include "cases/case_run.h"
#include "cases/model_cases.h"
#include "cases/subject.h"
#include "cmd/aligned_table.h"
#include "cmd/build_info.h"
#include "cmd/command_line.h"
#include "cmd/commands.h"
#include "cmd/machine_json.h"
#include "cmd/options.h"
#include "cmd/output.h"
#include "cmd/step_profile.h"
#include "cmd/values.h"
#include "engine/case_session.h"
#include "engine/model_source.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/weights.h"

namespace ridge {
namespace {

constexpr int64_t kMaxRows = 4096, kMaxDepth = int64_t{1} << 20;
constexpr int64_t kMaxParallel = 256;
constexpr std::string_view kOracle = "ref", kPlain = "plain";

// A sample runs an operator over and over for about so long, and looks at the clock in runs of so
// long: many calls of the fastest.
constexpr double kSampleMs = 20;
constexpr int64_t kRunNs = 20'000;

// Weights and caches of a step come from memory: copies of them that together are several times the
// last cache take turns. Of memory they may have so much.
constexpr int64_t kTimesTheCache = 4, kMaxCopyBytes = int64_t{1} << 30;
constexpr int64_t kUnknownCacheBytes = int64_t{64} << 20;

struct OpsOptions {
    OpenOptions open;
    std::vector<std::string> ops, checkpoints;
    std::vector<int64_t> n_depth, n_prompt;
    int64_t n_parallel = 1, n_repetitions = 5;
    bool json = false, quiet = false;
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
    auto numbers = [&](std::string_view names, std::string help, std::vector<int64_t>& list,
                       int64_t min, int64_t max) {
        line.value(names, "LIST", std::move(help),
                   [&list, min, max](Where where, const std::string& text) {
                       list = parse_integers(where, text, min, max);
                   });
    };
    words("--op", "operators (default: all)", options.ops);
    words(
        "--checkpoint",
        "entries of the device's list of kernels (default: all but ref, which is slow on purpose)",
        options.checkpoints);
    numbers("-d,--n-depth", "positions before a decode step's own (default: 128)", options.n_depth,
            0, kMaxDepth);
    numbers("-p,--n-prompt", "rows of a prompt's step, from position 0 on; 0: none (default: 128)",
            options.n_prompt, 0, kMaxRows);
    add_integer_option(line, "-B,--n-parallel",
                       "sequences of a decode step; 0: no decode steps (default: 1)",
                       options.n_parallel, 0, kMaxParallel);
    add_integer_option(line, "-r,--repetitions", "samples of each, in turns (default: 5)",
                       options.n_repetitions, 1, 1000);
    line.section("Where");
    line.name("--device", "NAME", "device whose kernels run: auto (default), cpu, cuda:N",
              options.open.device, expected_devices);
    line.name("--cpu-isa", "NAME", "instruction set of the CPU's kernels (default: the best)",
              options.open.cpu_isa, [] { return "one of " + known_cpu_isas(); });
    add_threads_option(line, options.open);
    line.section("Output");
    line.flag("--json", "print one JSON object, with every sample", options.json);
    add_quiet_option(line, options.quiet);
    if (!line.parse(arguments)) return false;
    options.from_variables = line.from_variables();
    need_model("bench ops", options.open.model);
    return true;
}

// One checkpoint's kernel of one case.
struct OpResult {
    std::string checkpoint;
    std::vector<double> samples_ns;  // of one call each
};
struct CaseResult {
    Case c;
    std::vector<OpResult> results;
};

// What another program needs to time the same work.
Json shape_json(const Case& c) {
    Json json;
    json["n_rows"] = c.n_rows;
    json["d_in"] = c.d_in;
    json["n_heads"] = c.n_heads;
    json["n_kv_heads"] = c.n_kv_heads;
    json["d_head"] = c.d_head;
    json["d_rope"] = c.d_rope;
    json["weights"] = Json::array();
    for (const CaseWeight& weight : c.weights) {
        Json one;
        one["d_out"] = weight.d_out;
        one["format"] = std::string(format_of(weight.format).name);
        json["weights"].push_back(std::move(one));
    }
    json["sequences"] = Json::array();
    for (const CaseSequence& sequence : c.sequences) {
        Json one;
        one["n_ctx"] = sequence.n_ctx;
        one["n_rows"] = sequence.n_rows;
        json["sequences"].push_back(std::move(one));
    }
    return json;
}

bool reads_memory(Op op) {
    return op == Op::kMatmul || op == Op::kAttention || op == Op::kEmbedRows;
}

// The steps' calls, each once, in the order of ops.
std::vector<Case> wanted_cases(const OpsOptions& options) {
    const ModelFile file = open_model_header(options.open.model);
    const Config config = read_config(file);
    const Weights weights = read_weights(file, config);
    std::vector<StepShape> steps;
    StepShape step;
    step.k_dtype = read_cache_type("-ctk", options.open.cache_type_k);
    step.v_dtype = read_cache_type("-ctv", options.open.cache_type_v);
    check_kv_types(config, step.k_dtype, step.v_dtype);
    for (int64_t n_depth : options.n_depth) {
        if (options.n_parallel == 0) break;
        step.n_rows = static_cast<int32_t>(options.n_parallel), step.n_ctx = n_depth + 1;
        steps.push_back(step);
    }
    step.row_class = RowClass::kPrompt;
    for (int64_t n_prompt : options.n_prompt) {
        if (n_prompt == 0) continue;
        step.n_rows = static_cast<int32_t>(n_prompt), step.n_ctx = n_prompt;
        steps.push_back(step);
    }
    std::vector<Case> cases;
    for (const StepShape& shape : steps) {
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
          session_(CaseSession::open(with_isa(options.open, isa_))),
          pool_(options.open.n_threads > 0 ? options.open.n_threads : default_n_threads()),
          cases_(wanted_cases(options)) {
        check_names();
        for (const DataCache& cache : data_caches()) last_cache_bytes_ = cache.n_bytes;
        if (session_->case_device() != nullptr) last_cache_bytes_ = kUnknownCacheBytes;
    }

    void run() {
        for (size_t i = 0; i < cases_.size(); i++) results_.push_back(time_case(i));
        status_.clear();
        Output output;
        if (options_.json) {
            output.write_json(json());
        } else {
            output.write_untrusted(table());
        }
        output.flush();
    }

  private:
    static OpenOptions with_isa(OpenOptions open, const std::string& isa) {
        open.cpu_isa = isa;
        return open;
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

    // On the CPU of one instruction set alone.
    std::vector<Subject> subjects_of_op(Op op) const {
        std::vector<Subject> subjects = session_->subjects(op);
        std::erase_if(subjects, [&](const Subject& subject) {
            if (!subject.isa.empty() && subject.isa != isa_) return true;
            const auto& asked = options_.checkpoints;
            if (asked.empty()) return subject.checkpoint == kOracle;
            return std::find(asked.begin(), asked.end(), subject.checkpoint) == asked.end();
        });
        return subjects;
    }

    // Copies with weights, keys and values of their own.
    std::deque<CaseRun> copies_of(const Case& c) const {
        int64_t n = 1;
        if (reads_memory(c.op)) {
            const int64_t bytes = std::max<int64_t>(c.bytes, 1);
            n = std::clamp<int64_t>(kTimesTheCache * last_cache_bytes_ / bytes + 1, 1,
                                    std::max<int64_t>(1, kMaxCopyBytes / bytes));
            n = std::min<int64_t>(n, 64);
        }
        std::deque<CaseRun> copies;
        for (int64_t i = 0; i < n; i++) {
            stop_if_interrupted();
            copies.emplace_back(c, static_cast<uint64_t>(i) + 1);
        }
        return copies;
    }

    CaseResult time_case(size_t number) {
        const Case& c = cases_[number];
        CaseResult result{c, {}};
        const std::vector<Subject> subjects = subjects_of_op(c.op);
        for (const Subject& subject : subjects) result.results.push_back({subject.checkpoint, {}});
        std::deque<CaseRun> copies = copies_of(c);
        for (int64_t r = 0; r < options_.n_repetitions; r++) {
            for (size_t i = 0; i < subjects.size(); i++) {
                // In order and backwards in turns, since neighbours in time have a machine alike.
                const size_t s = r % 2 == 0 ? i : subjects.size() - 1 - i;
                stop_if_interrupted();
                const double done =
                    (static_cast<double>(r) +
                     static_cast<double>(i) / static_cast<double>(subjects.size())) /
                    static_cast<double>(options_.n_repetitions);
                status_.show(
                    fmt::format("timing {},", c.name),
                    (static_cast<double>(number) + done) / static_cast<double>(cases_.size()));
                for (CaseRun& copy : copies) {
                    copy.bind(subjects[s].tables, pool_, session_->case_device());
                    copy.reset();
                    copy.run_op();  // warms up
                }
                result.results[s].samples_ns.push_back(sample(c, copies));
            }
        }
        return result;
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
        for (size_t i = 0; all.elapsed_ms() < kSampleMs || i < copies.size(); i++) {
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

    static double plain_ns(const CaseResult& result) {
        for (const OpResult& one : result.results) {
            if (one.checkpoint == kPlain) return median_of(one.samples_ns);
        }
        return 0;
    }

    static double spread_ns(const OpResult& one) {
        const auto [least, most] =
            std::minmax_element(one.samples_ns.begin(), one.samples_ns.end());
        return (*most - *least) / 2;
    }

    std::string table() const {
        std::vector<std::vector<std::string>> rows = {
            {"operator", "checkpoint", "us", "±", "GB/s", "GFLOP/s", "times plain"}};
        for (const CaseResult& result : results_) {
            for (const OpResult& one : result.results) {
                const double ns = median_of(one.samples_ns);
                rows.push_back({&one == &result.results.front() ? result.c.name : std::string(),
                                one.checkpoint, fmt::format("{:.2f}", ns * 1e-3),
                                fmt::format("{:.2f}", spread_ns(one) * 1e-3),
                                fmt::format("{:.2f}", static_cast<double>(result.c.bytes) / ns),
                                fmt::format("{:.2f}", static_cast<double>(result.c.flops) / ns),
                                plain_ns(result) > 0 ? fmt::format("{:.2f}", plain_ns(result) / ns)
                                                     : std::string()});
            }
        }
        return aligned_table(rows, 2);
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
        json["model_filename"] = options_.open.model;
        json["operators"] = Json::array();
        for (const CaseResult& result : results_) {
            Json one;
            one["op"] = std::string(op_name(result.c.op));
            one["case"] = result.c.name;
            one["bytes"] = result.c.bytes;
            one["flops"] = result.c.flops;
            one["shape"] = shape_json(result.c);
            one["checkpoints"] = Json::array();
            for (const OpResult& of : result.results) {
                Json entry;
                const double ns = median_of(of.samples_ns);
                entry["checkpoint"] = of.checkpoint;
                entry["median_ns"] = ns;
                entry["gbps"] = static_cast<double>(result.c.bytes) / ns;
                entry["gflops"] = static_cast<double>(result.c.flops) / ns;
                entry["times_plain"] = plain_ns(result) > 0 ? Json(plain_ns(result) / ns) : Json();
                entry["samples_ns"] = of.samples_ns;
                one["checkpoints"].push_back(std::move(entry));
            }
            json["operators"].push_back(std::move(one));
        }
        return json;
    }

    const OpsOptions& options_;
    StatusLine status_;
    const std::string isa_;  // of the CPU's kernels
    std::unique_ptr<CaseSession> session_;
    ThreadPool pool_;
    std::vector<Case> cases_;
    int64_t last_cache_bytes_ = kUnknownCacheBytes;
    std::vector<CaseResult> results_;
};

}  // namespace

int bench_ops_command(const std::vector<std::string>& arguments) {
    OpsOptions options;
    if (!parse(arguments, options)) return 0;
    return blame_variables(options.from_variables, [&] {
        if (options.n_depth.empty()) options.n_depth = {128};
        if (options.n_prompt.empty()) options.n_prompt = {128};
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
