#pragma once

#include <string>
#include <vector>

#include "cmd/plot.h"

namespace ridge {

// Rates over something that grows: one line for each series, named at its right end.
struct Series {
    std::string name;
    std::vector<PlotPoint> points;  // x rises; y above 0
    bool is_wall = false;  // a limit: dashed, in the colour of the series before it, without marks
    std::vector<std::string> values = {};  // written above the points; empty: nothing is
};

struct SeriesPlot {
    std::string title, subtitle, x_label, y_label;
    std::vector<Series> series;
    // Names of x = 0, 1, 2, ...; empty: x is a number.
    std::vector<std::string> x_names = {};
};

// Both axes fit what is shown; y is logarithmic where rates differ by more than four times.
Plot plot_of(const SeriesPlot& plot);

}  // namespace ridge
