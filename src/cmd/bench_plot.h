#pragma once

#include <span>

#include "cmd/bench_report.h"
#include "cmd/series_plot.h"

namespace ridge {

// Results of `bench` over what differs most between them: the depth, the number of sequences, or
// the size of the model; each generation with the wall that its weights, keys and values stand
// before. Error where fewer than two results differ in one of these.
SeriesPlot bench_plot(std::span<const BenchResult> results);

// The wall of a generation, in tokens of all its sequences a second; 0 with a prompt.
double wall_tok_s(const BenchResult& result);

}  // namespace ridge
