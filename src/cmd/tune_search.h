#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace ridge {

// How `tune` finds what is faster, whatever it is that is timed. Candidate 0 is the incumbent.

// Time of one sample of a candidate, in any unit.
using TimeSample = std::function<double(size_t candidate)>;

// The candidate of n that seems the fastest. Candidates are timed in rounds, in order and backwards
// in turns; after each few rounds the slower half of the challengers is dropped, and the rest is
// timed more often (successive halving; Karnin, Koren and Somekh 2013). 0 where the last one left
// has no lower median than the incumbent.
size_t fastest_of(size_t n, const TimeSample& time);

// The same for several that are timed in one go, each with n candidates of its own: one sample has
// a candidate of each, and gives a time of each.
using TimeSamples = std::function<std::vector<double>(const std::vector<size_t>& candidates)>;
std::vector<size_t> fastest_of_each(size_t n_timed, size_t n, const TimeSamples& time);

// A challenger beside the incumbent, in rounds: neighbours in time have a machine alike.
struct Duel {
    std::vector<double> before, after;  // [round]; as long as each other

    double ratio() const;   // the median over the rounds of before over after
    double spread() const;  // the median distance from it
    int n_faster() const;   // rounds in which the challenger was
    // By a hundredth at least and by more than the spread, in so many rounds that chance alone
    // would give it in one case of a hundred at the most. Where rounds scatter evenly the middle
    // half of them lies within the spread, and the two ask for nearly the same; where other
    // programs make some rounds many times as long, that one was faster a little more often says
    // nothing.
    bool is_win() const;
    // It was slower in so many rounds that chance alone would give it in one case of twenty, or by
    // more than the spread.
    bool is_loss() const;
    // Neither, but the median gain would do.
    bool is_open() const;
    // It won by a twentieth and more, or in a quarter of the rounds at the most.
    bool is_decided_early() const;
};
// Candidate 1 against candidate 0: some rounds where they decide it early, else more, and as many
// again where these leave it open.
constexpr int kEarlyRounds = 8, kDuelRounds = 15;
Duel run_duel(const TimeSample& time);
// Several in one go, each candidate 1 against each candidate 0: to the end of the longest duel.
std::vector<Duel> run_duels(size_t n_timed, const TimeSamples& time);

}  // namespace ridge
