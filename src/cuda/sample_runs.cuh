#pragma once

#include "cuda/context.h"
#include "cuda/sample_mirror.h"
#include "cuda/sample_order.h"

namespace ridge::cuda {

// Of a row, between the kernels of a step.
struct RowState {
    Candidate best;     // the most probable
    double log_total;   // of all weights at temperature 1; where n_logprobs >= 0
    int32_t walks_far;  // 1: the token lies further on than the list of the first candidates
};

// What the kernels of `sample` share. Matrices have a row for each row of logits.
struct SampleTask {
    float* logits;  // [n_rows, n_vocab] f32
    int64_t stride;
    int32_t n_vocab, n_groups;
    SamplePlaces places;
    Candidate* maxima;      // [n_rows, n_groups]: the first candidate of each group of logits
    double *sums, *sums_t;  // [n_rows, n_groups]: of weights relative to it, at temperature 1 and
                            // at the row's own
    RowState* states;       // [n_rows]
};

// All candidates of a row in runs of kRun, each in order, with the weights' sums from its
// beginning.
constexpr int kRun = 2048;
struct SortedRuns {
    Candidate* sorted;      // [n_rows, n_runs, kRun]; 0 behind the last candidate
    double *mass, *mass_t;  // the same, at temperature 1 and at the row's own
    int32_t n_runs;
};

// Draws the rows that walk far, of n_rows rows from first_row on.
void launch_walk(const Context& c, const SampleTask& task, const SortedRuns& runs,
                 int64_t first_row, int64_t n_rows);

}  // namespace ridge::cuda
