#include "cmd/tune_run.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "cmd/case_copies.h"
#include "cmd/step_profile.h"
#include "cmd/tune_search.h"

namespace ridge {
namespace {

constexpr int kIncumbentSamples = 3;

// The incumbent, and the same with each value of the trial.
template <class T>
std::vector<T> variants(const T& incumbent, const TuneTrial& trial) {
    std::vector<T> all = {incumbent};
    for (const auto& parameter : parameters_of(static_cast<const T*>(nullptr))) {
        if (parameter.name != trial.parameter) continue;
        for (int value : trial.values) {
            all.push_back(incumbent);
            all.back().*parameter.value = value;
        }
    }
    return all;
}

template <class Call, class T>
std::vector<Tuning> tunings_of(const Call& call, const std::vector<T>& values) {
    std::vector<Tuning> tunings(values.size());
    for (size_t i = 0; i < values.size(); i++) tunings[i].set(call, values[i]);
    return tunings;
}

// To be shown of what was not chosen: nothing has changed.
void reject(TunedCase& one) {
    one.chosen.clear();
    one.after_ns = one.before_ns;
}

template <class Call, class T>
Tuned<Call, T> tuned(const char* op, const Call& call, const T& values,
                     std::vector<TunedCase> cases) {
    Tuned<Call, T> result{{call, values, 0, 0}, {op, call_text(call), changes_text(values), {}}};
    // Kept beside it are the times of the case that gains most.
    double& before_ns = result.choice.before_ns;
    double& after_ns = result.choice.after_ns;
    for (const TunedCase& one : cases) {
        if (before_ns > 0 && before_ns / after_ns >= one.before_ns / one.after_ns) continue;
        before_ns = one.before_ns, after_ns = one.after_ns;
    }
    result.shown.cases = std::move(cases);
    return result;
}

}  // namespace

TuneRun::TuneRun(const CaseSession& session, ThreadPool& pool, std::string isa,
                 std::function<void()> check)
    : session_(session),
      pool_(pool),
      isa_(std::move(isa)),
      check_(std::move(check)),
      last_cache_bytes_(last_cache_bytes(session.case_device())) {}

// The kernels of the last checkpoint that has some for the operator.
Tables TuneRun::tables_of(Op op) const {
    const bool on_cpu = session_.case_device() == nullptr;
    std::vector<Subject> subjects = session_.subjects(op);
    std::erase_if(subjects, [&](const Subject& subject) {
        return on_cpu && !subject.isa.empty() && subject.isa != isa_;
    });
    CHECK(!subjects.empty());
    return std::move(subjects.back().tables);
}

std::deque<TuneTimer> TuneRun::timers_of(const std::vector<Case>& cases) const {
    std::deque<TuneTimer> timers;
    for (const Case& c : cases) {
        timers.emplace_back(c, tables_of(c.op), pool_, session_.case_device(), last_cache_bytes_,
                            check_);
    }
    return timers;
}

TunedMatmul TuneRun::tune(const MatmulJob& job) {
    std::vector<TunedCase> cases;
    MatmulTuning values = choose(job, cases);
    find_few_rows(job, values, cases);
    return tuned("matmul", job.call, values, std::move(cases));
}

TunedAttention TuneRun::tune(const AttentionJob& job) {
    std::vector<TunedCase> cases;
    const AttentionTuning values = choose(job, cases);
    return tuned("attention", job.call, values, std::move(cases));
}

// The values that are fastest for all cases of the job together, one parameter after the other.
template <class Call, class T>
T TuneRun::choose(const TuneJob<Call, T>& job, std::vector<TunedCase>& cases) {
    if (job.trials.empty()) return {};
    std::deque<TuneTimer> timers = timers_of(job.cases);
    T best{};
    for (const TuneTrial& trial : job.trials) best = best_value(job, trial, best, timers);
    return confirmed(job, best, timers, cases);
}

template <class Call, class T>
T TuneRun::best_value(const TuneJob<Call, T>& job, const TuneTrial& trial, const T& incumbent,
                      std::deque<TuneTimer>& timers) const {
    const std::vector<T> candidates = variants(incumbent, trial);
    std::vector<double> units;  // a case's time, so that each counts alike
    for (TuneTimer& timer : timers) {
        timer.set_tunings(tunings_of(job.call, candidates));
        check_();
        units.push_back(timer.sample(0));
    }
    const size_t fastest = fastest_of(candidates.size(), [&](size_t candidate) {
        check_();
        double sum = 0;
        for (size_t i = 0; i < timers.size(); i++) sum += timers[i].sample(candidate) / units[i];
        return sum;
    });
    return candidates[fastest];
}

// What wins in one of the cases against what runs without a choice, and loses in none; else that.
template <class Call, class T>
T TuneRun::confirmed(const TuneJob<Call, T>& job, const T& best, std::deque<TuneTimer>& timers,
                     std::vector<TunedCase>& cases) const {
    const T untuned{};
    bool wins = false, loses = false;
    for (size_t i = 0; i < timers.size(); i++) {
        TunedCase one{job.cases[i].name, {}, 0, 0, {}};
        if (best == untuned) {
            one.before_ns = one.after_ns =
                time_of(timers[i], tunings_of(job.call, std::vector{untuned}));
        } else {
            one = duel_of(timers[i], job.call, untuned, best, job.cases[i].name);
            wins = wins || one.duel.is_win(), loses = loses || one.duel.is_loss();
        }
        cases.push_back(std::move(one));
    }
    if (wins && !loses) return best;
    for (TunedCase& one : cases) reject(one);
    return untuned;
}

double TuneRun::time_of(TuneTimer& timer, std::vector<Tuning> tuning) const {
    timer.set_tunings(std::move(tuning));
    std::vector<double> samples;
    for (int i = 0; i < kIncumbentSamples; i++) {
        check_();
        samples.push_back(timer.sample(0));
    }
    return median_of(samples);
}

template <class Call, class T>
TunedCase TuneRun::duel_of(TuneTimer& timer, const Call& call, const T& before, const T& after,
                           const std::string& name) const {
    timer.set_tunings(tunings_of(call, std::vector{before, after}));
    if (!timer.give_the_same_bits()) {
        throw Error("{}: without and with {} it gives different bits", name, changes_text(after));
    }
    const Duel duel = run_duel([&](size_t tuning) {
        check_();
        return timer.sample(tuning);
    });
    return {name, changes_text(after), median_of(duel.before), median_of(duel.after), duel};
}

// Up to how many rows prompts win on the kernels of decode rows.
void TuneRun::find_few_rows(const MatmulJob& job, MatmulTuning& values,
                            std::vector<TunedCase>& cases) {
    MatmulTuning as_decode_rows = values;
    as_decode_rows.few_rows = kFewPromptRows;
    const MatmulTuning as_prompts = values;
    for (const Case& c : job.few_rows) {
        std::deque<TuneTimer> timers = timers_of({c});
        cases.push_back(duel_of(timers.front(), job.call, as_prompts, as_decode_rows, c.name));
        TunedCase& one = cases.back();
        if (!one.duel.is_win()) return reject(one);
        one.chosen = "as decode rows";
        // Of one more row prompts' kernels take as long, and those of decode rows less.
        values.few_rows = static_cast<int>(c.n_rows == 1 ? 1 : c.n_rows + 1);
    }
}

StepChoices TuneRun::tune_steps(TuneStepTimer& steps, const std::vector<int>& n_sequences,
                                const std::vector<TuneTrial>& trials) const {
    StepChoices c{steps.calls(n_sequences.back()), {}, {}};
    const size_t n_calls = c.calls.size();
    c.best.resize(n_calls), c.cases.resize(n_calls);
    // A sample in which call i has the value that value_of(i) gives.
    const auto sample = [&](int n, const auto& value_of) {
        check_();
        Tuning tuning;
        for (size_t i = 0; i < n_calls; i++) tuning.set(c.calls[i], value_of(i));
        return steps.sample(n, tuning);
    };
    for (const TuneTrial& trial : trials) {
        std::vector<std::vector<MatmulTuning>> candidates;
        for (const MatmulTuning& best : c.best) candidates.push_back(variants(best, trial));
        const std::vector<size_t> fastest =
            fastest_of_each(n_calls, 1 + trial.values.size(), [&](const std::vector<size_t>& of) {
                return sample(n_sequences.back(), [&](size_t i) { return candidates[i][of[i]]; });
            });
        for (size_t i = 0; i < n_calls; i++) c.best[i] = candidates[i][fastest[i]];
    }
    std::vector<bool> wins(n_calls, false), loses(n_calls, false);
    for (int n : n_sequences) {
        const std::vector<int> n_layers = steps.n_layers(n);
        const std::vector<Duel> duels = run_duels(n_calls, [&](const std::vector<size_t>& of) {
            return sample(n, [&](size_t i) { return of[i] == 0 ? MatmulTuning() : c.best[i]; });
        });
        for (size_t i = 0; i < n_calls; i++) {
            wins[i] = wins[i] || duels[i].is_win(), loses[i] = loses[i] || duels[i].is_loss();
            c.cases[i].push_back(
                {fmt::format("{}, in steps of {}", call_text(c.calls[i]), counted(n, "sequence")),
                 changes_text(c.best[i]), median_of(duels[i].before) / n_layers[i],
                 median_of(duels[i].after) / n_layers[i], duels[i]});
        }
    }
    for (size_t i = 0; i < n_calls; i++) {
        if (!wins[i] || loses[i]) c.best[i] = {};
    }
    return c;
}

TunedMatmul TuneRun::confirm(const MatmulJob& job, const StepChoices& choices) {
    const auto at = std::find(choices.calls.begin(), choices.calls.end(), job.call);
    CHECK(at != choices.calls.end());
    const auto i = static_cast<size_t>(at - choices.calls.begin());
    const MatmulTuning untuned;
    MatmulTuning values = choices.best[i];
    std::vector<TunedCase> cases = choices.cases[i];
    if (values != untuned) {
        std::deque<TuneTimer> timers = timers_of(job.cases);
        bool loses = false;
        for (size_t t = 0; t < timers.size(); t++) {
            cases.push_back(duel_of(timers[t], job.call, untuned, values, job.cases[t].name));
            loses = loses || cases.back().duel.is_loss();
        }
        if (loses) values = untuned;
    }
    if (values == untuned) {
        for (TunedCase& one : cases) reject(one);
    }
    return tuned("matmul", job.call, values, std::move(cases));
}

}  // namespace ridge
