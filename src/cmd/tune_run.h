#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "cmd/tune_jobs.h"
#include "cmd/tune_report.h"
#include "cmd/tune_step_timer.h"
#include "cmd/tune_timer.h"
#include "engine/case_session.h"
#include "engine/tuning_cache.h"

namespace ridge {

// What was found for one job: to be kept, and to be shown.
template <class Call, class T>
struct Tuned {
    TuningChoice<Call, T> choice;
    TunedCall shown;
};
using TunedMatmul = Tuned<MatmulCall, MatmulTuning>;
using TunedAttention = Tuned<AttentionCall, AttentionTuning>;

// What won in decode steps, call by call.
struct StepChoices {
    std::vector<MatmulCall> calls;
    std::vector<MatmulTuning> best;
    std::vector<std::vector<TunedCase>> cases;  // [call][number of sequences]
};

// Measures the jobs of `tune` on one device.
class TuneRun {
  public:
    // All must live on. isa: of the CPU's kernels. `check` is called often and may throw.
    TuneRun(const CaseSession& session, ThreadPool& pool, std::string isa,
            std::function<void()> check);

    // The operator alone.
    TunedMatmul tune(const MatmulJob& job);
    TunedAttention tune(const AttentionJob& job);

    // All matmuls of decode steps at the same time, with so many sequences each. Each call has the
    // same trials.
    StepChoices tune_steps(TuneStepTimer& steps, const std::vector<int>& n_sequences,
                           const std::vector<TuneTrial>& trials) const;
    // What won in steps, unless it is slower alone.
    TunedMatmul confirm(const MatmulJob& job, const StepChoices& choices);

  private:
    Tables tables_of(Op op) const;
    std::deque<TuneTimer> timers_of(const std::vector<Case>& cases) const;
    template <class Call, class T>
    T choose(const TuneJob<Call, T>& job, std::vector<TunedCase>& cases);
    template <class Call, class T>
    T best_value(const TuneJob<Call, T>& job, const TuneTrial& trial, const T& incumbent,
                 std::deque<TuneTimer>& timers) const;
    template <class Call, class T>
    T confirmed(const TuneJob<Call, T>& job, const T& best, std::deque<TuneTimer>& timers,
                std::vector<TunedCase>& cases) const;
    template <class Call, class T>
    TunedCase duel_of(TuneTimer& timer, const Call& call, const T& before, const T& after,
                      const std::string& name) const;
    double time_of(TuneTimer& timer, std::vector<Tuning> tuning) const;
    void find_few_rows(const MatmulJob& job, MatmulTuning& values, std::vector<TunedCase>& cases);

    const CaseSession& session_;
    ThreadPool& pool_;
    const std::string isa_;
    const std::function<void()> check_;
    const int64_t last_cache_bytes_;
};

}  // namespace ridge
