#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
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
#include "cmd/tune_jobs.h"
#include "cmd/tune_report.h"
#include "cmd/tune_run.h"
#include "cmd/tune_step_timer.h"
#include "cmd/values.h"
#include "engine/case_session.h"
#include "engine/model_source.h"
#include "engine/tuning_cache.h"
#include "model/kv_cache.h"

namespace ridge {
namespace {

constexpr int64_t kMaxRows = 4096, kMaxDepth = int64_t{1} << 20, kMaxParallel = 64;
constexpr int64_t kMaxBudget = 86400;
constexpr double kMostOfBudget = 1.25;
struct OutOfTime {};

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
    line.section("Model");
    add_model_option(line, options.open.model);
    add_cache_type_options(line, options.open);
    line.section("What is tuned (LIST: numbers with commas between)");
    line.value("--op", "LIST", "operators: matmul, attention (default: both)",
               [&](Where where, const std::string& text) {
                   for (const std::string& word : parse_words(where, text)) {
                       options.ops.push_back(parse_choice(where, word, {"matmul", "attention"}));
                   }
               });
    add_integers_option(line, "-d,--n-depth",
                        "positions before a decode step's own (default: 128,1000,4000)",
                        options.n_depth, 0, kMaxDepth);
    add_integers_option(line, "-B,--n-parallel", "sequences of a decode step (default: 1,8)",
                        options.n_parallel, 1, kMaxParallel);
    add_integers_option(
        line, "-p,--n-prompt",
        "rows of a prompt's step (default: 16,64,128,512; on a GPU 64,128,256,512,1024,2048)",
        options.n_prompt, 1, kMaxRows);
    add_integer_option(line, "--budget",
                       "seconds that it may take, a quarter more for what is at work then; what is "
                       "found is kept (default: 60)",
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
    line.flag("-q,--quiet", "nothing on standard error but errors", options.quiet);
    for (const char* name : {"--model", "--cache-type-k", "--cache-type-v", "--op", "--n-depth",
                             "--n-parallel", "--n-prompt", "--budget"}) {
        line.at_most_one({"--show", name});  // which measures nothing, of any model
    }
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
        if (device != "cpu" && gpu.empty()) {
            throw Error(ErrorKind::kUsage, "--device \"{}\": expected {}", printable(device, 80),
                        expected_devices());
        }
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
                    printable(device_text(key)));
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
          pool_(place_.n_threads),
          run_(*session_, pool_, place_.isa, [this] { check(); }) {
        const TuningKey key = place_.key(options.open);
        LoadedTuning loaded = load_tuning(options.open.tuning_folder, key);
        if (!loaded.ignored.empty() && !options.quiet) say(loaded.ignored);
        found_.key = key;
        if (!options.open.tuning_folder.empty()) {  // what cannot be kept is not measured
            make_folders(options.open.tuning_folder);
            FileWriter(tuning_path(options.open.tuning_folder, key), true);
        }
        read_plan();
    }

    void run() {
        std::exception_ptr failed;
        try {
            tune_decode_steps();
            for (const MatmulJob& job : plan_.matmuls) {
                if (job.call.row_class == RowClass::kPrompt) next(job);
            }
            for (const AttentionJob& job : plan_.attentions) next(job);
        } catch (const Interrupted&) {  // what was found is shown, and kept
        } catch (const OutOfTime&) {
        } catch (const Error&) {  // what was found before it is shown, too
            failed = std::current_exception();
        }
        status_.clear();
        if (failed && results_.empty()) std::rethrow_exception(failed);
        Output output;
        if (options_.json) {
            output.write_json(tune_json(results_, about()));
        } else if (!results_.empty()) {
            output.write_untrusted(tune_table(results_));
        }
        output.flush();
        if (failed) std::rethrow_exception(failed);
        if (!options_.quiet) say(summary());
        stop_if_interrupted();
    }

  private:
    static OpenOptions on_place(OpenOptions open, const Place& place) {
        open.cpu_isa = place.isa, open.device = place.device, open.no_tuning = true;
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
            steps.n_prompt = on_cpu ? std::vector<int64_t>{16, 64, 128, 512}
                                    : std::vector<int64_t>{64, 128, 256, 512, 1024, 2048};
        }
        n_parallel_ = steps.n_parallel;
        plan_ = plan_tuning(config, weights, steps, session_->backend(), place_.isa);
        const auto wants = [&](const char* op) {
            const auto& ops = options_.ops;
            return ops.empty() || std::find(ops.begin(), ops.end(), op) != ops.end();
        };
        if (!wants("matmul")) plan_.matmuls.clear();
        if (!wants("attention")) plan_.attentions.clear();
        n_jobs_ = plan_.matmuls.size() + plan_.attentions.size();
    }

    double share_of_budget() const {
        return 1e-3 * timer_.elapsed_ms() / static_cast<double>(options_.budget);
    }
    bool is_over() const {
        stop_if_interrupted();
        return share_of_budget() > 1;
    }
    // While something is measured, which may go on for a little longer.
    void check() const {
        stop_if_interrupted();
        if (share_of_budget() > kMostOfBudget) throw OutOfTime();
    }

    template <class Job>
    void next(const Job& job) {
        if (is_over()) return;
        progress(job.cases.front().name);
        keep(run_.tune(job));
    }

    template <class Found>
    void keep(Found found) {
        results_.push_back(std::move(found.shown));
        found_.add(found.choice);
        found_.time = time_of(now_s());
        if (!options_.open.tuning_folder.empty()) {
            add_to_tuning(options_.open.tuning_folder, found_);
        }
    }

    // Matmuls of decode steps are tuned where they run, in steps of the model, all at the same
    // time; and then must not be slower alone.
    void tune_decode_steps() {
        std::vector<const MatmulJob*> jobs;
        for (const MatmulJob& job : plan_.matmuls) {
            if (job.call.row_class == RowClass::kDecode) jobs.push_back(&job);
        }
        if (jobs.empty()) return;
        progress("decode steps");
        const int64_t n_most = *std::max_element(n_parallel_.begin(), n_parallel_.end());
        TuneStepTimer steps(on_place(options_.open, place_), static_cast<int>(n_most),
                            [this] { check(); });
        for (const int size : {1, 2}) {
            std::vector<int> n_sequences;
            for (int64_t n : n_parallel_) {
                if (rows_class_of_cpu(RowClass::kDecode, n) != size) continue;
                n_sequences.push_back(static_cast<int>(n));
            }
            if (n_sequences.empty() || is_over()) continue;
            const StepChoices choices = run_.tune_steps(steps, n_sequences, jobs.front()->trials);
            for (const MatmulJob* job : jobs) {
                if (job->call.size != size || is_over()) continue;
                progress(job->cases.front().name);
                keep(run_.confirm(*job, choices));
            }
        }
    }

    void progress(const std::string& what) {
        status_.show(fmt::format("tuning {},", what),
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
                         printable(tuning_path(options_.open.tuning_folder, found_.key));
    }

    Json about() const {
        Json json;
        json["build_commit"] = std::string(build_info().commit);
        json["build_version"] = std::string(build_info().version);
        json["machine"] = machine_json();
        json["test_time"] = found_.time;
        json["device"] = session_->device();
        if (!place_.gpu.empty()) json["gpu"] = place_.gpu;
        json["isa"] = found_.key.isa;
        json["n_threads"] = pool_.size();
        json["model_filename"] = options_.open.model;
        json["n_calls"] = n_jobs_;
        json["file"] = options_.open.tuning_folder.empty()
                           ? Json()
                           : Json(tuning_path(options_.open.tuning_folder, found_.key));
        return json;
    }

    const TuneOptions& options_;
    const Timer timer_;
    StatusLine status_;
    const Place place_;
    std::unique_ptr<CaseSession> session_;
    ThreadPool pool_;
    TuneRun run_;
    TuningCache found_;  // in this run
    TunePlan plan_;
    std::vector<int64_t> n_parallel_;
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
