#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "cmd/progression_report.h"
#include "cmd/series_plot.h"

namespace ridge {

// How many times as fast each checkpoint is as the first, a line for each test. `about` as
// progression_json() has it.
SeriesPlot progression_plot(const std::vector<ProgressionEntry>& entries,
                            const nlohmann::ordered_json& about);

}  // namespace ridge
