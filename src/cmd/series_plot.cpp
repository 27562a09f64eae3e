#include "cmd/series_plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace ridge {
namespace {

constexpr uint32_t kColors[] = {0x1565c0, 0xd84315, 0x2e7d32, 0x6a1b9a,
                                0x00838f, 0xad1457, 0x795548, 0x455a64};
constexpr double kTextSize = 20, kLineHeight = 26;
constexpr double kLogFrom = 4;  // times that rates differ

struct Range {
    double min = std::numeric_limits<double>::max(), max = 0;
};

Range range_of(const std::vector<Series>& all, double PlotPoint::*coordinate) {
    Range range;
    for (const Series& series : all) {
        for (const PlotPoint& point : series.points) {
            range.min = std::min(range.min, point.*coordinate);
            range.max = std::max(range.max, point.*coordinate);
        }
    }
    return range;
}

// Names in the order of their lines' ends, moved down where they would lie over each other.
class EndNames {
  public:
    void add(PlotPoint end_pixel, std::string text, uint32_t color) {
        names_.push_back({end_pixel, std::move(text), color});
    }
    void draw(Plot& plot) {
        std::sort(names_.begin(), names_.end(),
                  [](const Name& a, const Name& b) { return a.at.y < b.at.y; });
        double y = plot.top();
        for (Name& name : names_) {
            name.at.y = y = std::max(name.at.y, y + kLineHeight);
        }
        double limit = plot.bottom() - kLineHeight / 2;
        for (auto name = names_.rbegin(); name != names_.rend(); ++name) {
            name->at.y = limit = std::min(name->at.y, limit);
            limit -= kLineHeight;
        }
        for (const Name& name : names_) {
            plot.texts.push_back({plot.point_at({name.at.x + 14, name.at.y}), name.text, name.color,
                                  PlotAlign::kLeft, kTextSize});
        }
    }

  private:
    struct Name {
        PlotPoint at;
        std::string text;
        uint32_t color;
    };
    std::vector<Name> names_;
};

// Whether a value above this point would lie in another line's mark or value.
bool is_just_below_another(const Plot& plot, const std::vector<Series>& all, PlotPoint point) {
    constexpr double kNear = 50;
    const PlotPoint here = plot.pixel_of(point);
    for (const Series& series : all) {
        if (series.is_wall) continue;
        for (const PlotPoint& other : series.points) {
            const double up = here.y - plot.pixel_of(other).y;
            if (other.x == point.x && up > 0 && up < kNear) return true;
        }
    }
    return false;
}

void choose_axes(const SeriesPlot& wanted, Plot& plot) {
    const Range x = range_of(wanted.series, &PlotPoint::x);
    const Range y = range_of(wanted.series, &PlotPoint::y);
    double widest = 0;
    for (const Series& series : wanted.series) {
        widest = std::max(widest, text_pixels(series.name, kTextSize).x);
    }
    // Room to the right for the names, and a little to the left.
    const double span = std::max(x.max - x.min, 1e-9);
    const double frame = plot.right() - plot.left();
    const double for_names = std::min(0.5, (widest + 40) / frame), before = 0.03;
    const double whole = span / (1 - for_names - before);
    plot.x = {wanted.x_label, x.min - before * whole, x.max + for_names * whole, false};
    for (size_t i = 0; i < wanted.x_names.size(); i++) {
        plot.x.ticks.push_back({static_cast<double>(i), wanted.x_names[i]});
    }
    const bool is_log = y.max > kLogFrom * y.min;
    plot.y = is_log ? PlotAxis{wanted.y_label, y.min / 1.5, y.max * 1.7, true}
                    : PlotAxis{wanted.y_label, 0, y.max * 1.15, false};
}

}  // namespace

Plot plot_of(const SeriesPlot& wanted) {
    CHECK(!wanted.series.empty());
    Plot plot;
    plot.title = wanted.title, plot.subtitle = wanted.subtitle;
    choose_axes(wanted, plot);
    EndNames names;
    size_t n_colors = 0;
    for (const Series& series : wanted.series) {
        if (!series.is_wall || n_colors == 0) n_colors++;
        const uint32_t color = kColors[(n_colors - 1) % std::size(kColors)];
        plot.lines.push_back({series.points, color, series.is_wall ? 2.0 : 3.0, series.is_wall});
        names.add(plot.pixel_of(series.points.back()), series.name, color);
        if (series.is_wall) continue;
        for (size_t i = 0; i < series.points.size(); i++) {
            plot.marks.push_back({series.points[i], color, 11});
            if (i >= series.values.size()) continue;
            PlotPoint beside = plot.pixel_of(series.points[i]);
            beside.y += is_just_below_another(plot, wanted.series, series.points[i]) ? 22 : -22;
            plot.texts.push_back({plot.point_at(beside), series.values[i], color,
                                  PlotAlign::kCenter, kTextSize - 3, 0, true});
        }
    }
    names.draw(plot);
    return plot;
}

}  // namespace ridge
