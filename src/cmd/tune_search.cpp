#include "cmd/tune_search.h"

#include <algorithm>

#include "base/check.h"
#include "cmd/round_ratio.h"
#include "cmd/sign_test.h"
#include "cmd/step_profile.h"

namespace ridge {
namespace {

constexpr int kFirstRounds = 3;  // of all candidates; a round more each time that some are dropped
constexpr double kLeastGain = 1.01, kLargeGain = 1.05;
constexpr double kWinByChance = 0.01, kLossByChance = 0.05;

// The slower ones are at the end: the incumbent stays, and of the challengers half.
void drop_slower(std::vector<size_t>& left, const std::vector<std::vector<double>>& samples) {
    std::sort(left.begin() + 1, left.end(),
              [&](size_t a, size_t b) { return median_of(samples[a]) < median_of(samples[b]); });
    const size_t n_challengers = left.size() - 1;
    left.resize(1 + n_challengers / 2);
}

}  // namespace

std::vector<size_t> fastest_of_each(size_t n_timed, size_t n, const TimeSamples& time) {
    CHECK(n > 0);
    if (n == 1) return std::vector<size_t>(n_timed, 0);
    std::vector<std::vector<std::vector<double>>> samples(n_timed,
                                                          std::vector<std::vector<double>>(n));
    std::vector<size_t> all(n);
    for (size_t i = 0; i < n; i++) all[i] = i;
    std::vector<std::vector<size_t>> left(n_timed, all);  // as many of each
    for (int n_rounds = kFirstRounds;; n_rounds++) {
        const size_t n_left = left.empty() ? 0 : left.front().size();
        for (int round = 0; round < n_rounds; round++) {
            for (size_t i = 0; i < n_left; i++) {
                std::vector<size_t> candidates(n_timed);
                for (size_t t = 0; t < n_timed; t++) {
                    candidates[t] = left[t][round % 2 == 0 ? i : n_left - 1 - i];
                }
                const std::vector<double> times = time(candidates);
                for (size_t t = 0; t < n_timed; t++) {
                    samples[t][candidates[t]].push_back(times[t]);
                }
            }
        }
        if (n_left <= 2) break;
        for (size_t t = 0; t < n_timed; t++) drop_slower(left[t], samples[t]);
    }
    std::vector<size_t> fastest(n_timed, 0);
    for (size_t t = 0; t < n_timed; t++) {
        const size_t last = left[t].back();
        if (median_of(samples[t][last]) < median_of(samples[t][0])) fastest[t] = last;
    }
    return fastest;
}

size_t fastest_of(size_t n, const TimeSample& time) {
    return fastest_of_each(1, n, [&](const std::vector<size_t>& candidates) {
        return std::vector<double>{time(candidates[0])};
    })[0];
}

double Duel::ratio() const {
    return ratio_of(before, after).median;
}

double Duel::spread() const {
    return ratio_of(before, after).spread;
}

int Duel::n_faster() const {
    int n = 0;
    for (size_t i = 0; i < before.size(); i++) n += after[i] < before[i] ? 1 : 0;
    return n;
}

bool Duel::is_win() const {
    return ratio() >= kLeastGain && ratio() - spread() > 1 &&
           chance_of_heads(static_cast<int>(before.size()), n_faster()) <= kWinByChance;
}

bool Duel::is_loss() const {
    int n_slower = 0;
    for (size_t i = 0; i < before.size(); i++) n_slower += after[i] > before[i] ? 1 : 0;
    return chance_of_heads(static_cast<int>(before.size()), n_slower) <= kLossByChance ||
           ratio() + spread() < 1;
}

bool Duel::is_open() const {
    return !is_win() && !is_loss() && ratio() >= kLeastGain;
}

bool Duel::is_decided_early() const {
    const int n_rounds = static_cast<int>(before.size());
    return (is_win() && ratio() >= kLargeGain) || 4 * n_faster() <= n_rounds;
}

std::vector<Duel> run_duels(size_t n_timed, const TimeSamples& time) {
    const std::vector<size_t> incumbents(n_timed, 0), challengers(n_timed, 1);
    std::vector<Duel> duels(n_timed);
    const auto add = [&](const std::vector<size_t>& candidates) {
        const std::vector<double> times = time(candidates);
        for (size_t t = 0; t < n_timed; t++) {
            (candidates[t] == 0 ? duels[t].before : duels[t].after).push_back(times[t]);
        }
    };
    const auto all = [&](bool (Duel::*is)() const) {
        return std::all_of(duels.begin(), duels.end(),
                           [&](const Duel& duel) { return (duel.*is)(); });
    };
    const auto any = [&](bool (Duel::*is)() const) {
        return std::any_of(duels.begin(), duels.end(),
                           [&](const Duel& duel) { return (duel.*is)(); });
    };
    for (int round = 0; round < 2 * kDuelRounds; round++) {
        if (round == kEarlyRounds && all(&Duel::is_decided_early)) break;
        if (round == kDuelRounds && !any(&Duel::is_open)) break;
        // Either is the first in turns.
        add(round % 2 == 0 ? incumbents : challengers);
        add(round % 2 == 0 ? challengers : incumbents);
    }
    return duels;
}

Duel run_duel(const TimeSample& time) {
    return run_duels(1, [&](const std::vector<size_t>& candidates) {
        return std::vector<double>{time(candidates[0])};
    })[0];
}

}  // namespace ridge
