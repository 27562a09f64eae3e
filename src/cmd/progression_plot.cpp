#include "cmd/progression_plot.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/printable.h"
#include "cmd/bench_report.h"
#include "cmd/step_profile.h"

namespace ridge {

SeriesPlot progression_plot(const std::vector<ProgressionEntry>& entries,
                            const nlohmann::ordered_json& about) {
    SeriesPlot plot;
    plot.title = fmt::format("What each checkpoint gains: {}",
                             last_part(about.at("model_filename").get<std::string>()));
    const Json& machine = about.at("machine");
    plot.subtitle = fmt::format(
        "{}, {}; median of {}",
        machine.value("gpu", "").empty() ? machine.value("cpu", "") : machine.value("gpu", ""),
        counted(about.at("n_threads").get<int64_t>(), "thread"),
        counted(about.at("n_rounds").get<int64_t>(), "round"));
    plot.y_label = fmt::format("times {}", entries.front().checkpoint);
    for (const ProgressionEntry& entry : entries) plot.x_names.push_back(entry.checkpoint);
    const std::vector<ProgressionTest>& tests = entries.front().tests;
    for (size_t t = 0; t < tests.size(); t++) {
        Series series;
        for (size_t i = 0; i < entries.size(); i++) {
            const double gain = gain_of(tests[t], entries[i].tests[t]).median;
            series.points.push_back({static_cast<double>(i), gain});
            series.values.push_back(fmt::format("{:.{}f}", gain, gain < 9.95 ? 2 : 1));
        }
        series.name = fmt::format("{}: {:.1f} tok/s", tests[t].name,
                                  median_of(entries.back().tests[t].samples_ts));
        plot.series.push_back(std::move(series));
    }
    return plot;
}

}  // namespace ridge
