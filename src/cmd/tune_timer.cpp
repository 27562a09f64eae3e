#include "cmd/tune_timer.h"

#include <algorithm>
#include <utility>

#include "base/timer.h"
#include "cmd/case_copies.h"
#include "cmd/step_profile.h"

namespace ridge {
namespace {

// A sample runs the operator over and over for about so long, and looks at the clock in runs of so
// long: many calls of the fastest.
constexpr double kSampleMs = 5;
constexpr int64_t kRunNs = 20'000;

// Copies on a device are few, since making them costs the host more than timing them: prompts, for
// which a GPU is tuned, multiply more than they read.
constexpr int64_t kMostDeviceCopies = 3;

}  // namespace

TuneTimer::TuneTimer(const Case& c, const Tables& tables, ThreadPool& pool, CaseDevice* device,
                     int64_t last_cache_bytes, std::function<void()> alive)
    : tables_(tables),
      pool_(pool),
      device_(device),
      alive_(std::move(alive)),
      copies_(copies_of(c, last_cache_bytes, device == nullptr ? kMostCopies : kMostDeviceCopies,
                        alive_)) {}

void TuneTimer::set_tunings(std::vector<Tuning> tunings) {
    tunings_ = std::move(tunings);
    tables_.tuning = tunings_.data();
    for (CaseRun& copy : copies_) {
        alive_();
        copy.bind(tables_, pool_, device_, tunings_);
        copy.reset();
    }
    wait();
}

double TuneTimer::sample(size_t tuning) {
    tables_.tuning = &tunings_[tuning];
    const Timer warming;
    next_copy().run_op();
    wait();
    return device_ == nullptr ? sample_of_host() : sample_of_device(warming.elapsed_ms());
}

// The median over runs of calls.
double TuneTimer::sample_of_host() {
    std::vector<double> runs_ns;  // a call of each, on average
    int64_t n_of_run = 0, run_ns = 0;
    for (const Timer all; runs_ns.empty() || all.elapsed_ms() < kSampleMs;) {
        const Timer timer;
        next_copy().run_op();
        run_ns += timer.elapsed_ns();
        n_of_run++;
        if (run_ns < kRunNs) continue;
        runs_ns.push_back(static_cast<double>(run_ns) / static_cast<double>(n_of_run));
        n_of_run = run_ns = 0;
    }
    return median_of(runs_ns);
}

// The mean of calls that are waited for together: starting one takes the host as long as anything.
double TuneTimer::sample_of_device(double call_ms) {
    constexpr double kMostCalls = 200;
    const auto n_calls =
        static_cast<int>(std::clamp(kSampleMs / std::max(call_ms, 1e-3), 2.0, kMostCalls));
    const Timer timer;
    for (int i = 0; i < n_calls; i++) next_copy().run_op();
    wait();
    return static_cast<double>(timer.elapsed_ns()) / n_calls;
}

bool TuneTimer::give_the_same_bits() {
    CaseRun& copy = copies_.front();
    Outputs first;
    for (size_t i = 0; i < tunings_.size(); i++) {
        tables_.tuning = &tunings_[i];
        copy.reset();
        copy.run_op();
        wait();
        Outputs outputs = copy.outputs();
        if (i == 0) {
            first = std::move(outputs);
        } else if (!outputs.fault.empty() || !same_bits(first, outputs)) {
            return false;
        }
    }
    return true;
}

void TuneTimer::wait() const {
    if (device_ != nullptr) device_->wait();
}

}  // namespace ridge
