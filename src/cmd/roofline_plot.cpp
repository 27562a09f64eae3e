#include "cmd/roofline_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cmd/bench_report.h"
#include "cmd/label_places.h"

namespace ridge {
namespace {

constexpr uint32_t kRoofColor = 0x305070, kArithmeticColor = 0x806020;
constexpr uint32_t kDecodeColor = 0x1565c0, kPromptColor = 0xd84315;
constexpr double kTextSize = 19, kLegendSize = 21;
constexpr double kPi = 3.14159265358979323846;

// 1, 2 or 5 times a power of ten, at least or at most x.
double round_up(double x) {
    const double power = std::pow(10, std::floor(std::log10(x)));
    for (double times : {1.0, 2.0, 5.0}) {
        if (times * power >= x * 0.999999) return times * power;
    }
    return 10 * power;
}
double round_down(double x) {
    const double power = std::pow(10, std::floor(std::log10(x)));
    for (double times : {5.0, 2.0}) {
        if (times * power <= x * 1.000001) return times * power;
    }
    return power;
}

// A kernel to be shown: one that computes nothing has no place on either axis.
struct Shown {
    const PlacedKernel* kernel;
    const RooflineStep* step;
    uint32_t color;
    std::string label;
};

// "Q4_K" of "2 x Q4_K [8192, 2048]"; "Q4_K, Q6_K".
std::string formats_of(const PlacedKernel& kernel) {
    std::vector<std::string_view> names;
    std::string text;
    for (const NodeGroup::Matrix& matrix : kernel.matrices) {
        if (std::find(names.begin(), names.end(), matrix.format) != names.end()) continue;
        names.push_back(matrix.format);
        text += (text.empty() ? "" : ", ") + std::string(matrix.format);
    }
    return text;
}

std::vector<Shown> shown_kernels(const RooflineResult& result) {
    std::vector<Shown> shown;
    for (const RooflineStep& step : result.steps) {
        std::map<std::string, int> n_of_name;
        for (const PlacedKernel& kernel : step.kernels) n_of_name[kernel.name()]++;
        for (const PlacedKernel& kernel : step.kernels) {
            if (kernel.work.flops == 0 || kernel.us <= 0 || kernel.intensity <= 0) continue;
            std::string label = kernel.name();
            if (n_of_name[label] > 1) label += " " + formats_of(kernel);
            label += fmt::format(" {:.0f} %", 100 * kernel.share_of_roof());
            shown.push_back({&kernel, &step, step.n_prompt > 0 ? kPromptColor : kDecodeColor,
                             std::move(label)});
        }
    }
    // What takes most of its step's time is named first, and nearest.
    std::stable_sort(shown.begin(), shown.end(), [](const Shown& a, const Shown& b) {
        return a.kernel->us / a.step->traced_us > b.kernel->us / b.step->traced_us;
    });
    return shown;
}

class Drawing {
  public:
    explicit Drawing(const RooflineResult& result)
        : result_(result), shown_(shown_kernels(result)) {
        for (const Ceiling& ceiling : result.ceilings.list) {
            n_threads_ = std::max(n_threads_, ceiling.n_threads);
        }
        for (const Ceiling& ceiling : result.ceilings.list) {
            if (ceiling.n_threads != n_threads_) continue;
            if (ceiling.kind == CeilingKind::kRead) levels_.push_back(&ceiling);
            if (ceiling.kind == CeilingKind::kArithmetic) arithmetic_.push_back(&ceiling);
        }
    }

    Plot draw() {
        choose_axes();
        title();
        wish();
        levels();
        arithmetic();
        legend();
        kernels();
        return std::move(plot_);
    }

  private:
    double highest() const {
        double rate = 0;
        for (const Ceiling* ceiling : arithmetic_) rate = std::max(rate, ceiling->rate);
        return rate;
    }

    void choose_axes() {
        // To the right of where memory alone meets the highest arithmetic there is nothing new.
        // Where arithmetic is slow, as in plain C++ or beside other programs, the levels meet it
        // farther to the left.
        const double fastest = std::max(levels_.front()->rate, levels_.back()->rate);
        double x_min = std::min(0.1, 0.5 * highest() / fastest);
        double x_max = 2 * highest() / levels_.back()->rate;
        double y_min = x_min * levels_.back()->rate / 2;
        for (const Shown& one : shown_) {
            x_min = std::min(x_min, 0.7 * one.kernel->intensity);
            x_max = std::max(x_max, 1.5 * one.kernel->intensity);
            y_min = std::min(y_min, 0.7 * one.kernel->gflops);
        }
        plot_.x = {"FLOP per byte (counted)", round_down(x_min), round_up(x_max), true};
        // Above the highest roof there is room for what the marks mean.
        const double y_max = shown_.empty() ? round_up(1.3 * highest()) : 6 * highest();
        plot_.y = {"GFLOP/s (of int8 GOP/s)", round_down(y_min), y_max, true};
    }

    void title() {
        const ModelInfo& model = result_.model;
        plot_.subtitle = machine_text(result_);
        if (result_.steps.empty()) {
            plot_.title = "Roofline";
            return;
        }
        plot_.title = "Roofline of " + last_part(model.path);
        plot_.subtitle +=
            fmt::format(", checkpoint {}; weights in {}", model.checkpoint, model.format);
    }

    void add_line(PlotPoint from, PlotPoint to, uint32_t color, double width, bool is_dashed) {
        plot_.lines.push_back({{from, to}, color, width, is_dashed});
        const PlotPoint a = plot_.pixel_of(from), b = plot_.pixel_of(to);
        obstacles_.push_back({a.x, a.y, b.x, b.y});
    }

    void levels() {
        double label_x = plot_.left() + 30;
        for (const Ceiling* level : levels_) {
            // From where it enters the frame to the highest arithmetic.
            const double x0 = std::max(plot_.x.min, plot_.y.min / level->rate);
            const double x1 = std::min(plot_.x.max, highest() / level->rate);
            const bool is_memory = level == levels_.back();
            if (x0 >= x1) continue;
            add_line({x0, x0 * level->rate}, {x1, x1 * level->rate}, kRoofColor, is_memory ? 4 : 2,
                     false);
            const PlotPoint a = plot_.pixel_of({x0, x0 * level->rate});
            const PlotPoint b = plot_.pixel_of({x1, x1 * level->rate});
            const double slope = (a.y - b.y) / (b.x - a.x);
            const double angle = std::atan(slope);
            // Above the line, begun at its lower end.
            const std::string text = level->name + " " + rate_text(*level);
            const PlotPoint size = text_pixels(text, kTextSize);
            const double x = std::max(label_x, a.x + 20) + size.x / 2 * std::cos(angle);
            const double y = a.y - (x - a.x) * slope;
            const double off = 0.62 * size.y;
            const PlotPoint middle = {x - off * std::sin(angle), y - off * std::cos(angle)};
            plot_.texts.push_back({plot_.point_at(middle), text, kRoofColor, PlotAlign::kCenter,
                                   kTextSize, angle * 180 / kPi, false});
            take_slanted(middle, size, angle);
        }
    }

    // Boxes along a turned text.
    void take_slanted(PlotPoint middle, PlotPoint size, double angle) {
        constexpr int kPieces = 8;
        for (int i = 0; i < kPieces; i++) {
            const double along = size.x * ((i + 0.5) / kPieces - 0.5);
            const double x = middle.x + along * std::cos(angle);
            const double y = middle.y - along * std::sin(angle);
            const double half = size.y / 2;
            taken_.push_back({x - half, y - half, x + half, y + half});
        }
    }

    void arithmetic() {
        const double fastest = levels_.front()->rate;
        for (const Ceiling* ceiling : arithmetic_) {
            const double from = std::max(plot_.x.min, ceiling->rate / fastest);
            add_line({from, ceiling->rate}, {plot_.x.max, ceiling->rate}, kArithmeticColor, 2,
                     ceiling->rate < highest());
            const std::string text = ceiling->name + " " + rate_text(*ceiling);
            const PlotPoint size = text_pixels(text, kTextSize);
            const PlotPoint end = plot_.pixel_of({plot_.x.max, ceiling->rate});
            const LabelBox box = free_box({end.x - 10, end.y - 0.6 * size.y}, size);
            const PlotPoint right = {box.right, end.y - 0.6 * size.y};
            plot_.texts.push_back({plot_.point_at(right), text, kArithmeticColor, PlotAlign::kRight,
                                   kTextSize, 0, false});
            taken_.push_back(box);
        }
    }

    // The place nearest to the right end, above a level line, that no mark lies in.
    LabelBox free_box(PlotPoint right, PlotPoint size) const {
        auto box_at = [&](double x) {
            return LabelBox{x - size.x, right.y - size.y / 2, x, right.y + size.y / 2};
        };
        for (double x = right.x; x - size.x > plot_.left(); x -= 10) {
            const LabelBox box = box_at(x);
            const bool is_free =
                std::none_of(wishes_.begin(), wishes_.end(), [&](const LabelWish& w) {
                    const double r = w.radius + 4;
                    return box.meets({w.x - r, w.y - r, w.x + r, w.y + r});
                });
            if (is_free) return box;
        }
        return box_at(right.x);
    }

    // Above the roof.
    void legend() {
        constexpr uint32_t kNoteColor = 0x606060;
        std::vector<std::pair<std::string, uint32_t>> rows;
        for (const RooflineStep& step : result_.steps) {
            const double tok_s = step.tok_s();
            std::string text = tok_s < 1000 ? fmt::format("{}: {:.4g} tok/s", step.name(), tok_s)
                                            : fmt::format("{}: {:.0f} tok/s", step.name(), tok_s);
            if (step.n_prompt == 0) {
                text += fmt::format(", {:.0f} % of what memory allows",
                                    100 * tok_s / step.bound_tok_s());
            }
            rows.emplace_back(text, step.n_prompt > 0 ? kPromptColor : kDecodeColor);
        }
        if (rows.empty()) return;
        rows.emplace_back("area: share of the step's time; %: share of the roof", kNoteColor);
        const double left = plot_.left() + 36, top = plot_.top() + 8;
        const double row_height = 1.4 * kLegendSize;
        double width = 0;
        for (size_t i = 0; i < rows.size(); i++) {
            const auto& [text, color] = rows[i];
            const double y = top + row_height * (static_cast<double>(i) + 0.5);
            if (color != kNoteColor) {
                plot_.marks.push_back({plot_.point_at({left - 16, y}), color, 16});
            }
            plot_.texts.push_back(
                {plot_.point_at({left, y}), text, color, PlotAlign::kLeft, kLegendSize, 0, false});
            width = std::max(width, text_pixels(text, kLegendSize).x);
        }
        taken_.push_back(
            {left - 30, top, left + width, top + row_height * static_cast<double>(rows.size())});
    }

    // Of all kernels, before anything is placed.
    void wish() {
        for (const Shown& one : shown_) {
            const double share = one.kernel->us / one.step->traced_us;
            const double radius = std::max(4.5, 32 * std::sqrt(share));
            const PlotPoint pixel = plot_.pixel_of(at_of(one));
            const PlotPoint size = text_pixels(one.label, kTextSize);
            wishes_.push_back({pixel.x, pixel.y, radius, size.x, size.y});
        }
    }

    static PlotPoint at_of(const Shown& one) { return {one.kernel->intensity, one.kernel->gflops}; }

    void kernels() {
        for (size_t i = 0; i < shown_.size(); i++) {
            plot_.marks.push_back({at_of(shown_[i]), shown_[i].color, 2 * wishes_[i].radius});
        }
        const LabelBox frame = {plot_.left() + 4, plot_.top() + 4, plot_.right() - 4,
                                plot_.bottom() - 4};
        const std::vector<LabelBox> places = place_labels(wishes_, frame, taken_, obstacles_);
        for (size_t i = 0; i < places.size(); i++) {
            const LabelBox& box = places[i];
            const PlotPoint middle = {(box.left + box.right) / 2, (box.top + box.bottom) / 2};
            plot_.texts.push_back({plot_.point_at(middle), shown_[i].label, shown_[i].color,
                                   PlotAlign::kCenter, kTextSize, 0, true});
            if (const auto lead = lead_of(wishes_[i], box)) {
                plot_.lines.push_back(
                    {{plot_.point_at({lead->x0, lead->y0}), plot_.point_at({lead->x1, lead->y1})},
                     shown_[i].color,
                     1,
                     false});
            }
        }
    }

    const RooflineResult& result_;
    std::vector<Shown> shown_;
    std::vector<const Ceiling*> levels_, arithmetic_;
    int n_threads_ = 0;
    Plot plot_;
    std::vector<LabelWish> wishes_;
    std::vector<LabelBox> taken_;
    std::vector<LabelLine> obstacles_;
};

}  // namespace

Plot roofline_plot(const RooflineResult& result) {
    return Drawing(result).draw();
}

}  // namespace ridge
