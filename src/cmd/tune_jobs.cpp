#include "cmd/tune_jobs.h"

#include <algorithm>
#include <utility>

#include "cases/model_cases.h"
#include "cases/tuned_call.h"

namespace ridge {
namespace {

constexpr int64_t kBlockPositions = 256;  // of a cache, into which decode rows are cut on the CPU

// How many rows of a prompt are few: at each of these numbers the kernels of decode rows are at
// their worst, and those of prompts, who take four at a time, at their best but for one row more.
constexpr int kFewRows[] = {1, 3, 7, 15, 31, 47, kFewPromptRows - 1};

const std::vector<TuneTrial>& all_trials() {
    static const std::vector<TuneTrial> all = {
        {"ahead_kib", {2, 4, 6, 8, 12, 16}},
        {"grain_kib", {8, 16, 64, 128, 256}},
        {"slice_blocks", {8, 16, 24, 32}},
        {"panels", {1, 2, 4}},
        {"way", {1, 2, 3, 4, 5}},
        {"thread_items", {1, 2, 4, 16, 32}},
        {"block_rows", {32, 64, 96, 192}},
        {"tiles_an_sm", {0, 1, 4, 8}},
    };
    return all;
}

// Trials of a call's parameters, in the order of their table. Those that mean nothing to the
// machine's kernels are left out.
template <class T>
std::vector<TuneTrial> trials_of(std::string_view backend, std::string_view isa,
                                 RowClass row_class) {
    std::vector<TuneTrial> trials;
    for (const auto& parameter : parameters_of(static_cast<const T*>(nullptr))) {
        if (parameter.backend != backend || parameter.row_class != row_class) continue;
        const bool on_tiles = isa == "amx";
        if (parameter.name == "panels" && !on_tiles) continue;
        if (parameter.name == "slice_blocks" && on_tiles) continue;
        for (const TuneTrial& trial : all_trials()) {
            if (trial.parameter == parameter.name) trials.push_back(trial);
        }
    }
    return trials;
}

bool is_in_codes(const Case& c) {
    return std::all_of(c.weights.begin(), c.weights.end(),
                       [](const CaseWeight& weight) { return weight.format > FormatId::kBF16; });
}

class Planner {
  public:
    Planner(const Config& config, const Weights& weights, const TuneSteps& steps,
            std::string_view backend, std::string_view isa)
        : config_(config), weights_(weights), steps_(steps), backend_(backend), isa_(isa) {}

    TunePlan plan() {
        const bool on_cpu = backend_ == "cpu";
        for (int64_t n_rows : steps_.n_parallel) {
            for (int64_t depth : steps_.n_depth) {
                if (on_cpu) add_step(RowClass::kDecode, n_rows, depth + 1);
            }
        }
        const int64_t deepest = steps_.n_depth.empty() ? 0 : steps_.n_depth.back();
        for (int64_t n_rows : steps_.n_prompt) {
            add_step(RowClass::kPrompt, n_rows, on_cpu ? n_rows : deepest + n_rows);
        }
        if (on_cpu && isa_ != "amx") add_few_rows();
        // The largest first, of as many rows.
        std::stable_sort(plan_.matmuls.begin(), plan_.matmuls.end(),
                         [](const MatmulJob& a, const MatmulJob& b) {
                             const auto key = [](const MatmulJob& job) {
                                 return std::pair(order_of(job.call), -job.cases.front().bytes);
                             };
                             return key(a) < key(b);
                         });
        return std::move(plan_);
    }

  private:
    // One decode row, prompts, several decode rows.
    static int order_of(const MatmulCall& call) {
        if (call.row_class == RowClass::kPrompt) return 1;
        return call.size == 1 ? 0 : 2;
    }

    void add_step(RowClass row_class, int64_t n_rows, int64_t n_ctx) {
        const StepShape step{row_class, static_cast<int32_t>(n_rows), n_ctx, steps_.k_dtype,
                             steps_.v_dtype};
        for (Case& c : model_cases(config_, weights_, step)) {
            if (c.op == Op::kMatmul && c.row_class == row_class) add_matmul(std::move(c));
            if (c.op == Op::kAttention) add_attention(std::move(c), row_class, n_rows, n_ctx);
        }
    }

    void add_matmul(Case c) {
        const int size = backend_ == "cpu" ? rows_class_of_cpu(c.row_class, c.n_rows)
                                           : rows_class_of_cuda(c.n_rows);
        const MatmulCall call = matmul_call_of(c, size);
        add_to(plan_.matmuls, call, std::move(c));
    }

    void add_attention(Case c, RowClass row_class, int64_t n_rows, int64_t n_ctx) {
        const int64_t n_blocks = n_rows * ((n_ctx + kBlockPositions - 1) / kBlockPositions);
        const int size = row_class == RowClass::kDecode ? blocks_class(n_blocks)
                         : backend_ == "cpu"            ? rows_class_of_cpu(row_class, n_rows)
                                                        : 0;
        const AttentionCall call = attention_call_of(c, row_class, size);
        add_to(plan_.attentions, call, std::move(c));
    }

    // The case to the job for its call. Steps of several depths have the same matmuls.
    template <class Call, class T>
    void add_to(std::vector<TuneJob<Call, T>>& jobs, const Call& call, Case c) const {
        auto job = std::find_if(jobs.begin(), jobs.end(),
                                [&](const auto& other) { return other.call == call; });
        if (job == jobs.end()) {
            std::vector<TuneTrial> trials = trials_of<T>(backend_, isa_, call.row_class);
            if (trials.empty()) return;
            jobs.push_back(TuneJob<Call, T>{call, {}, std::move(trials), {}});
            job = jobs.end() - 1;
        }
        const bool known = std::any_of(job->cases.begin(), job->cases.end(),
                                       [&](const Case& other) { return other.name == c.name; });
        if (!known) job->cases.push_back(std::move(c));
    }

    void add_few_rows() {
        for (MatmulJob& job : plan_.matmuls) {
            if (job.call.row_class != RowClass::kPrompt || job.call.size != kFewPrompts) continue;
            if (!is_in_codes(job.cases[0])) continue;
            job.trials.clear();  // most of these rows will not run on panels
            for (int n_rows : kFewRows) {
                Case c = job.cases[0];
                c.n_rows = n_rows;
                job.few_rows.push_back(finish_case(std::move(c)));
            }
        }
    }

    const Config& config_;
    const Weights& weights_;
    const TuneSteps& steps_;
    const std::string_view backend_, isa_;
    TunePlan plan_;
};

}  // namespace

TunePlan plan_tuning(const Config& config, const Weights& weights, const TuneSteps& steps,
                     std::string_view backend, std::string_view isa) {
    return Planner(config, weights, steps, backend, isa).plan();
}

}  // namespace ridge
