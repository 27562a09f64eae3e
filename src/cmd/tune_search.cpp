#include "cmd/tune_search.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
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

std::vector<double> ratios_of(const Duel& duel) {
    std::vector<double> ratios;
    for (size_t i = 0; i < duel.before.size(); i++) {
        ratios.push_back(duel.before[i] / duel.after[i]);
    }
    return ratios;
}

}  // namespace

size_t fastest_of(size_t n, const TimeSample& time) {
    CHECK(n > 0);
    if (n == 1) return 0;
    std::vector<std::vector<double>> samples(n);
    std::vector<size_t> left(n);
    for (size_t i = 0; i < n; i++) left[i] = i;
    for (int n_rounds = kFirstRounds;; n_rounds++) {
        for (int round = 0; round < n_rounds; round++) {
            for (size_t i = 0; i < left.size(); i++) {
                const size_t c = left[round % 2 == 0 ? i : left.size() - 1 - i];
                samples[c].push_back(time(c));
            }
        }
        if (left.size() == 2) break;
        drop_slower(left, samples);
    }
    return median_of(samples[left[1]]) < median_of(samples[0]) ? left[1] : 0;
}

double Duel::ratio() const {
    return median_of(ratios_of(*this));
}

double Duel::spread() const {
    std::vector<double> distances = ratios_of(*this);
    const double median = median_of(distances);
    for (double& ratio : distances) ratio = std::abs(ratio - median);
    return median_of(distances);
}

int Duel::n_faster() const {
    int n = 0;
    for (size_t i = 0; i < before.size(); i++) n += after[i] < before[i] ? 1 : 0;
    return n;
}

bool Duel::is_win() const {
    return ratio() >= kLeastGain &&
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

Duel run_duel(const TimeSample& time) {
    Duel duel;
    for (int round = 0; round < 2 * kDuelRounds; round++) {
        if (round == kEarlyRounds && duel.is_decided_early()) break;
        if (round == kDuelRounds && !duel.is_open()) break;
        // Either is the first in turns.
        if (round % 2 == 0) {
            duel.before.push_back(time(0)), duel.after.push_back(time(1));
        } else {
            duel.after.push_back(time(1)), duel.before.push_back(time(0));
        }
    }
    return duel;
}

}  // namespace ridge
