#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
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
#include "cmd/build_info.h"
#include "cmd/command_line.h"
#include "cmd/commands.h"
#include "cmd/machine_json.h"
#include "cmd/options.h"
#include "cmd/output.h"
#include "cmd/step_profile.h"
#include "cmd/tune_jobs.h"
#include "cmd/tune_report.h"
#include "cmd/tune_search.h"
#include "cmd/tune_timer.h"
#include "cmd/values.h"
#include "engine/case_session.h"
#include "engine/model_source.h"
#include "engine/tuning_cache.h"
#include "model/kv_cache.h"

namespace ridge {
namespace {

constexpr int64_t kMaxRows = 4096, kMaxDepth = int64_t{1} << 20, kMaxParallel = 64;
constexpr int64_t kMaxBudget = 86400;
constexpr int64_t kUnknownCacheBytes = int64_t{64} << 20;
constexpr int kIncumbentSamples = 3;

struct TuneOptions {
    OpenOptions open;
    std::vector<std::string> ops;
    std::vector<int64_t> n_depth, n_parallel, n_prompt;
    int64_t budget = 60;
    bool show = false, json = false, quiet = false;
    FromVariables from_variables;
};

bool parse(const std::vector<std::string>& arguments, TuneOptions& options) {
    CommandLine line("tune",
                     "Finds out how this machine runs a model's operators fastest, and keeps that "
                     "for every later run. No result changes by a bit.",
                     "ridge tune -m model.gguf");
    line.section("Model (shapes and formats; weights are random)");
    add_model_option(line, options.open.model);
    add_cache_type_options(line, options.open);
    line.section("What is tuned (LIST: numbers with commas between)");
    line.value("--op", "LIST", "operators: matmul, attention (default: both)",
               [&](Where where, const std::string& text) {
                   for (const std::string& word : parse_words(where, text)) {
                       options.ops.push_back(parse_choice(where, word, {"matmul", "attention"}));
                   }
               });
    auto numbers = [&](std::string_view names, std::string help, std::vector<int64_t>& list,
                       int64_t min, int64_t max) {
        line.value(names, "LIST", std::move(help),
                   [&list, min, max](Where where, const std::string& text) {
                       list = parse_integers(where, text, min, max);
                   });
    };
    numbers("-d,--n-depth", "positions before a decode step's own (default: 128,1000,4000)",
            options.n_depth, 0, kMaxDepth);
    numbers("-B,--n-parallel", "sequences of a decode step (default: 1,8)", options.n_parallel, 1,
            kMaxParallel);
    numbers("-p,--n-prompt",
            "rows of a prompt's step (default: 32,256; on a GPU 64,128,256,512,1024,2048)",
            options.n_prompt, 1, kMaxRows);
    add_integer_option(line, "--budget",
                       "seconds that it may take, but for the call it is at; what is found by then "
                       "is kept (default: 60)",
                       options.budget, 1, kMaxBudget);
    line.section("Where");
    line.name("--device", "NAME", "device to tune for: auto (default), cpu, cuda:N",
              options.open.device, expected_devices);
    line.name("--cpu-isa", "NAME", "instruction set of the CPU's kernels (default: the best)",
              options.open.cpu_isa, [] { return "one of " + known_cpu_isas(); });
    add_threads_option(line, options.open);
    line.section("Output");
    line.flag("--show", "show what is kept for the device, and measure nothing", options.show);
    line.flag("--json", "print one JSON object, with every sample", options.json);
    add_quiet_option(line, options.quiet);
    if (!line.parse(arguments)) return false;
    set_tuning_folder(options.open);
    options.from_variables = line.from_variables();
    if (!options.show) need_model("tune", options.open.model);
    return true;
}

// What a device's choices are found under.
struct Place {
    std::string device, gpu, isa;
    int n_threads = 0;

    explicit Place(const OpenOptions& open)
        : device(open.device),
          isa(open.cpu_isa.empty() ? cpu_isa_names().back() : open.cpu_isa),
          n_threads(open.n_threads > 0 ? open.n_threads : default_n_threads()) {
        const std::vector<DeviceInfo> devices = find_devices();
        const auto is_usable_gpu = [](const DeviceInfo& info) {
            return info.device != "cpu" && info.unusable.empty();
        };
        if (device == "auto") {
            const auto first = std::find_if(devices.begin(), devices.end(), is_usable_gpu);
            device = first == devices.end() ? "cpu" : first->device;
        }
        if (device == "cuda") device = "cuda:0";
        for (const DeviceInfo& info : devices) {
            if (info.device == device && is_usable_gpu(info)) gpu = info.name;
        }
    }
    TuningKey key(const OpenOptions& open) const {
        return tuning_key(gpu, isa, n_threads, open.build);
    }
};

int show(const TuneOptions& options) {
    const Place place(options.open);
    const TuningKey key = place.key(options.open);
    LoadedTuning loaded = load_tuning(options.open.tuning_folder, key);
    if (!loaded.ignored.empty()) throw Error("{}", loaded.ignored);
    if (!loaded.cache) {
        throw Error("tune --show: nothing is kept for {} yet; ridge tune -m MODEL measures it",
                    printable(key.device));
    }
    Output output;
    if (options.json) {
        output.write_json(parse_json(tuning_text(*loaded.cache), "what is kept"));
    } else {
        output.write_untrusted(
            cache_table(*loaded.cache, tuning_path(options.open.tuning_folder, key)));
    }
    output.flush();
    return 0;
}

class Tuner {
  public:
    explicit Tuner(const TuneOptions& options)
        : options_(options),
          status_(!options.quiet),
          place_(options.open),
          session_(CaseSession::open(on_place(options.open, place_))),
          pool_(place_.n_threads) {
        for (const DataCache& cache : data_caches()) last_cache_bytes_ = cache.n_bytes;
        if (session_->case_device() != nullptr) last_cache_bytes_ = kUnknownCacheBytes;
        const TuningKey key = place_.key(options.open);
        LoadedTuning loaded = load_tuning(options.open.tuning_folder, key);
        if (!loaded.ignored.empty() && !options.quiet) say(loaded.ignored);
        if (loaded.cache) cache_ = std::move(*loaded.cache);
        cache_.key = key;
        read_plan();
    }

    void run() {
        try {
            for (const MatmulJob& job : plan_.matmuls) next(job, "matmul");
            for (const AttentionJob& job : plan_.attentions) next(job, "attention");
        } catch (const Interrupted&) {  // what was found is shown, and kept
        }
        status_.clear();
        Output output;
        if (options_.json) {
            output.write_json(tune_json(results_, about()));
        } else if (!results_.empty()) {
            output.write_untrusted(tune_table(results_));
        }
        output.flush();
        if (!options_.quiet) say(summary());
        stop_if_interrupted();
    }

  private:
    static OpenOptions on_place(OpenOptions open, const Place& place) {
        open.cpu_isa = place.isa, open.device = place.device;
        return open;
    }

    void read_plan() {
        const ModelFile file = open_model_header(options_.open.model);
        const Config config = read_config(file);
        const Weights weights = read_weights(file, config);
        TuneSteps steps{read_cache_type("-ctk", options_.open.cache_type_k),
                        read_cache_type("-ctv", options_.open.cache_type_v), options_.n_depth,
                        options_.n_parallel, options_.n_prompt};
        check_kv_types(config, steps.k_dtype, steps.v_dtype);
        const bool on_cpu = session_->case_device() == nullptr;
        if (steps.n_depth.empty()) steps.n_depth = {128, 1000, 4000};
        if (steps.n_parallel.empty()) steps.n_parallel = {1, 8};
        if (steps.n_prompt.empty()) {
            steps.n_prompt = on_cpu ? std::vector<int64_t>{32, 256}
                                    : std::vector<int64_t>{64, 128, 256, 512, 1024, 2048};
        }
        plan_ = plan_tuning(config, weights, steps, session_->backend(), place_.isa);
        const auto wants = [&](const char* op) {
            const auto& ops = options_.ops;
            return ops.empty() || std::find(ops.begin(), ops.end(), op) != ops.end();
        };
        if (!wants("matmul")) plan_.matmuls.clear();
        if (!wants("attention")) plan_.attentions.clear();
        n_jobs_ = plan_.matmuls.size() + plan_.attentions.size();
    }

    // The kernels of the last checkpoint that has some for the operator.
    Tables tables_of(Op op) const {
        const bool on_cpu = session_->case_device() == nullptr;
        std::vector<Subject> subjects = session_->subjects(op);
        std::erase_if(subjects, [&](const Subject& subject) {
            return on_cpu && !subject.isa.empty() && subject.isa != place_.isa;
        });
        return std::move(subjects.back().tables);
    }

    template <class Call, class T>
    void next(const TuneJob<Call, T>& job, const char* op) {
        if (timer_.elapsed_ms() > 1e3 * static_cast<double>(options_.budget)) return;
        stop_if_interrupted();
        progress(job.cases.front());
        TunedCall result{op, call_text(job.call), {}, {}};
        TuningChoice<Call, T> choice{job.call, {}, 0, 0};
        choice.values = choose(job, result);
        if constexpr (std::is_same_v<T, MatmulTuning>) find_few_rows(job, choice.values, result);
        result.chosen = changes_text(choice.values);
        note_times(result, choice.before_ns, choice.after_ns);
        cache_.add(choice);
        cache_.time = time_of(std::chrono::duration_cast<std::chrono::seconds>(
                                  std::chrono::system_clock::now().time_since_epoch())
                                  .count());
        if (!options_.open.tuning_folder.empty()) {
            write_tuning(options_.open.tuning_folder, cache_);
        }
        results_.push_back(std::move(result));
    }

    // Of the case that gains most.
    static void note_times(const TunedCall& result, double& before_ns, double& after_ns) {
        for (const TunedCase& one : result.cases) {
            if (before_ns > 0 && before_ns / after_ns >= one.before_ns / one.after_ns) continue;
            before_ns = one.before_ns, after_ns = one.after_ns;
        }
    }

    std::deque<TuneTimer> timers_of(const std::vector<Case>& cases, const Tables& tables) {
        std::deque<TuneTimer> timers;
        for (const Case& c : cases) {
            timers.emplace_back(c, tables, pool_, session_->case_device(), last_cache_bytes_,
                                stop_if_interrupted);
        }
        return timers;
    }

    // The values that are fastest for all cases of the job together, one parameter after the other.
    template <class Call, class T>
    T choose(const TuneJob<Call, T>& job, TunedCall& result) {
        if (job.trials.empty()) return {};
        std::deque<TuneTimer> timers = timers_of(job.cases, tables_of(job.cases.front().op));
        T best{};
        for (const TuneTrial& trial : job.trials) best = best_value(job, trial, best, timers);
        return confirmed(job, best, timers, result);
    }

    template <class Call, class T>
    static std::vector<Tuning> tunings_of(const Call& call, const std::vector<T>& values) {
        std::vector<Tuning> tunings(values.size());
        for (size_t i = 0; i < values.size(); i++) tunings[i].set(call, values[i]);
        return tunings;
    }

    template <class Call, class T>
    T best_value(const TuneJob<Call, T>& job, const TuneTrial& trial, const T& incumbent,
                 std::deque<TuneTimer>& timers) {
        std::vector<T> candidates = {incumbent};
        for (const auto& parameter : parameters_of(static_cast<const T*>(nullptr))) {
            if (parameter.name != trial.parameter) continue;
            for (int value : trial.values) {
                candidates.push_back(incumbent);
                candidates.back().*parameter.value = value;
            }
        }
        std::vector<double> units;  // a case's time, so that each counts alike
        for (TuneTimer& timer : timers) {
            timer.set_tunings(tunings_of(job.call, candidates));
            units.push_back(timer.sample(0));
        }
        const size_t fastest = fastest_of(candidates.size(), [&](size_t candidate) {
            stop_if_interrupted();
            double sum = 0;
            for (size_t i = 0; i < timers.size(); i++) {
                sum += timers[i].sample(candidate) / units[i];
            }
            return sum;
        });
        return candidates[fastest];
    }

    // What won against what runs without a choice, else that.
    template <class Call, class T>
    T confirmed(const TuneJob<Call, T>& job, const T& best, std::deque<TuneTimer>& timers,
                TunedCall& result) {
        const T untuned{};
        bool wins = false, loses = false;
        for (size_t i = 0; i < timers.size(); i++) {
            TunedCase one{job.cases[i].name, {}, 0, 0, {}};
            if (best == untuned) {
                one.before_ns = one.after_ns = untuned_ns(timers[i], job.call, untuned);
            } else {
                one.duel =
                    duel_of(timers[i], tunings_of(job.call, std::vector{untuned, best}), one.name);
                one.before_ns = median_of(one.duel.before);
                one.after_ns = median_of(one.duel.after);
                wins = wins || one.duel.is_win(), loses = loses || one.duel.is_loss();
            }
            result.cases.push_back(std::move(one));
        }
        const bool is_chosen = wins && !loses;
        for (TunedCase& one : result.cases) {
            if (is_chosen) one.chosen = changes_text(best);
            if (!is_chosen) one.after_ns = one.before_ns;
        }
        return is_chosen ? best : untuned;
    }

    template <class Call, class T>
    static double untuned_ns(TuneTimer& timer, const Call& call, const T& untuned) {
        timer.set_tunings(tunings_of(call, std::vector{untuned}));
        std::vector<double> samples;
        for (int i = 0; i < kIncumbentSamples; i++) {
            stop_if_interrupted();
            samples.push_back(timer.sample(0));
        }
        return median_of(samples);
    }

    static Duel duel_of(TuneTimer& timer, std::vector<Tuning> tunings, const std::string& name) {
        timer.set_tunings(std::move(tunings));
        if (!timer.give_the_same_bits()) {
            throw Error("{}: two ways of computing it give different bits", name);
        }
        return run_duel([&](size_t tuning) {
            stop_if_interrupted();
            return timer.sample(tuning);
        });
    }

    // Up to how many rows prompts win on the kernels of decode rows.
    void find_few_rows(const MatmulJob& job, MatmulTuning& values, TunedCall& result) {
        MatmulTuning as_prompts = values, as_decode_rows = values;
        if (job.few_rows.empty()) return;
        as_decode_rows.few_rows = kFewPromptRows;
        const Tables tables = tables_of(Op::kMatmul);
        for (const Case& c : job.few_rows) {
            std::deque<TuneTimer> timers = timers_of({c}, tables);
            TunedCase one{c.name, {}, 0, 0, {}};
            one.duel =
                duel_of(timers.front(),
                        tunings_of(job.call, std::vector{as_prompts, as_decode_rows}), c.name);
            const bool wins = one.duel.is_win();
            one.before_ns = median_of(one.duel.before);
            one.after_ns = wins ? median_of(one.duel.after) : one.before_ns;
            if (wins) {
                values.few_rows = static_cast<int>(c.n_rows == 1 ? 1 : c.n_rows + 1);
                one.chosen = "as decode rows";
            }
            result.cases.push_back(std::move(one));
            if (!wins) break;
        }
    }

    void progress(const Case& c) {
        status_.show(fmt::format("tuning {},", c.name),
                     static_cast<double>(results_.size()) / static_cast<double>(n_jobs_));
    }

    std::string summary() const {
        const auto n_changed = std::count_if(results_.begin(), results_.end(),
                                             [](const auto& r) { return !r.chosen.empty(); });
        std::string text = fmt::format(
            "tuned {} of {} in {:.0f} s: {} run faster now, the others as before", results_.size(),
            counted(static_cast<int64_t>(n_jobs_), "call"), 1e-3 * timer_.elapsed_ms(), n_changed);
        if (results_.size() < n_jobs_ && !interrupted()) text += "; a larger --budget does more";
        if (options_.open.tuning_folder.empty()) {
            return text + "; nothing was kept, since there is no home folder";
        }
        return results_.empty()
                   ? text
                   : text + "; kept in " +
                         printable(tuning_path(options_.open.tuning_folder, cache_.key));
    }

    Json about() const {
        Json json;
        json["build_commit"] = std::string(build_info().commit);
        json["build_version"] = std::string(build_info().version);
        json["machine"] = machine_json();
        json["test_time"] = cache_.time;
        json["device"] = session_->device();
        if (!place_.gpu.empty()) json["gpu"] = place_.gpu;
        json["isa"] = cache_.key.isa;
        json["n_threads"] = pool_.size();
        json["model_filename"] = options_.open.model;
        json["n_calls"] = n_jobs_;
        json["file"] = options_.open.tuning_folder.empty()
                           ? Json()
                           : Json(tuning_path(options_.open.tuning_folder, cache_.key));
        return json;
    }

    const TuneOptions& options_;
    const Timer timer_;
    StatusLine status_;
    const Place place_;
    std::unique_ptr<CaseSession> session_;
    ThreadPool pool_;
    int64_t last_cache_bytes_ = kUnknownCacheBytes;
    TuningCache cache_;
    TunePlan plan_;
    size_t n_jobs_ = 0;
    std::vector<TunedCall> results_;
};

}  // namespace

int tune_command(const std::vector<std::string>& arguments) {
    TuneOptions options;
    if (!parse(arguments, options)) return 0;
    return blame_variables(options.from_variables, [&] {
        if (options.show) return show(options);
        catch_interrupts();
        Tuner(options).run();
        return 0;
    });
}

}  // namespace ridge
