#pragma once

#include <cstddef>
#include <span>

#include "text/token.h"

namespace ridge::cpu {

struct Candidate {
    float logit;
    Token token;
};

// Candidates in order: the most probable first, among equals the lowest id. Nothing is copied or
// sorted before it is asked for: candidates are collected from above down to a threshold, and only
// the blocks are read whose maximum reaches it. The n-th largest maximum is such a threshold for n
// candidates: at least n logits reach it, and of 128,256 logits hardly more.
class Ranking {
  public:
    // logits [n]; maxima as RowKernels::logit_maxima makes them; room for as many maxima again, and
    // for n candidates.
    Ranking(std::span<const float> logits, std::span<const float> maxima, float* maxima_room,
            Candidate* room);

    // The i-th most probable; null past the last.
    const Candidate* at(size_t i);
    void keep_first(size_t n);
    void keep_from(double lowest);  // logits of at least `lowest`

    // All that are kept, where that is known: in any order but for those that at() has given.
    bool is_complete() const { return complete_; }
    std::span<const Candidate> collected() const { return {all_, n_collected_}; }
    // Otherwise those are all of at least this.
    float lowest() const { return lowest_; }

  private:
    void collect_until(size_t n);
    float threshold_for(size_t n);
    void collect_from(float threshold);
    void collect(size_t first, size_t step, size_t n, float threshold);
    void select(size_t n);
    void sort_more(size_t n);

    std::span<const float> logits_, maxima_;
    float* maxima_room_;
    Candidate* all_;  // [n_sorted_] in order, then up to n_collected_ in none
    size_t n_sorted_ = 0, n_collected_ = 0;
    float collected_from_;  // everything of at least this is collected, but for what was cut off
    float lowest_;          // what is below is no candidate
    bool complete_ = false;
};

}  // namespace ridge::cpu
