#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "cases/case_run.h"
#include "model/tuning.h"

namespace ridge {

// Times one call of an operator with one tuning after the other. Weights, keys and values come from
// memory as they do in a step (cmd/case_copies.h).
class TuneTimer {
  public:
    // `tables` hold the operator's kernels. All but `c` must live on. last_cache_bytes: of the
    // device. `alive` is called while what is timed is made, and before each is bound; it may
    // throw.
    TuneTimer(const Case& c, const Tables& tables, ThreadPool& pool, CaseDevice* device,
              int64_t last_cache_bytes, std::function<void()> alive);
    TuneTimer(const TuneTimer&) = delete;
    TuneTimer& operator=(const TuneTimer&) = delete;

    // Those that are timed from now on.
    void set_tunings(std::vector<Tuning> tunings);
    // A call's time in ns: on the CPU the median over runs of some calls, which other programs
    // disturb little, on a GPU the mean of calls that are waited for together.
    double sample(size_t tuning);
    // Whether all of the tunings give the same bits.
    bool give_the_same_bits();

  private:
    double sample_of_host();
    double sample_of_device(double call_ms);  // that one call takes, about
    void wait() const;
    CaseRun& next_copy() { return copies_[n_calls_++ % copies_.size()]; }

    Tables tables_;
    ThreadPool& pool_;
    CaseDevice* device_;
    const std::function<void()> alive_;
    std::vector<Tuning> tunings_;
    std::deque<CaseRun> copies_;
    size_t n_calls_ = 0;
};

}  // namespace ridge
