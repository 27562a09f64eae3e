#pragma once

#include "cmd/plot.h"
#include "cmd/roofline_report.h"

namespace ridge {

// The roofline of a result, operations a byte against operations a second: the rates at which all
// threads read each level of memory are lines that climb until arithmetic ends them; each kernel is
// a mark as large as its share of the step, with its name and its share of the roof.
Plot roofline_plot(const RooflineResult& result);

}  // namespace ridge
