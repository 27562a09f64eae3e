#include "cmd/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/child_process.h"
#include "base/error.h"
#include "base/files.h"
#include "base/printable.h"
#include "cmd/output.h"

namespace ridge {
namespace {

constexpr const char* kFont = "DejaVu Sans";
constexpr double kTickSize = 20;
constexpr size_t kMaxPictureBytes = size_t{64} << 20;
// Of a gnuplot that hangs: far more than it takes on a machine that is busy.
constexpr double kVersionSeconds = 10, kDrawSeconds = 60;

// Letters of gnuplot's cairo terminals are a third larger than its SVG ones of the same size.
double points_of(double pixels, PlotFormat format) {
    return format == PlotFormat::kPng ? 0.75 * pixels : pixels;
}

// Within single quotes nothing has a meaning to gnuplot but the quote; a line's end would end the
// text.
std::string quoted(std::string_view text) {
    std::string result = "'";
    for (char c : printable(text)) {
        if (c == '\'') result += '\'';
        result += c;
    }
    return result + "'";
}

double share_of(const PlotAxis& axis, double value) {
    if (!axis.is_log) return (value - axis.min) / (axis.max - axis.min);
    return std::log(value / axis.min) / std::log(axis.max / axis.min);
}

double value_at(const PlotAxis& axis, double share) {
    if (!axis.is_log) return axis.min + share * (axis.max - axis.min);
    return axis.min * std::pow(axis.max / axis.min, share);
}

std::string color_text(uint32_t color) {
    return fmt::format("rgb '#{:06x}'", color);
}

std::string point_text(PlotPoint p) {
    return fmt::format("{:.9g} {:.9g}", p.x, p.y);
}

std::string terminal_text(const Plot& plot, PlotFormat format) {
    return fmt::format("set terminal {} noenhanced size {},{} font '{},{}' background '#ffffff'\n",
                       format == PlotFormat::kPng ? "pngcairo" : "svg", plot.width, plot.height,
                       kFont, points_of(kTickSize, format));
}

// Shares of the picture, from the left and from the bottom.
std::string frame_text(const Plot& plot) {
    return fmt::format(
        "set lmargin at screen {:.6f}\nset rmargin at screen {:.6f}\n"
        "set tmargin at screen {:.6f}\nset bmargin at screen {:.6f}\n",
        plot.left() / plot.width, plot.right() / plot.width, 1 - plot.top() / plot.height,
        1 - plot.bottom() / plot.height);
}

// Whether names below the picture, at the size that they have, would lie over each other in one
// line.
bool names_collide(const Plot& plot) {
    double end = -std::numeric_limits<double>::infinity();
    for (const PlotAxis::Tick& tick : plot.x.ticks) {
        const double middle = plot.pixel_of({tick.at, 0}).x;
        const double half = text_pixels(tick.text, kTickSize).x / 2;
        if (end > middle - half) return true;
        end = middle + half;
    }
    return false;
}

// staggers: every second name a line lower.
std::string axis_text(const PlotAxis& axis, char name, bool staggers) {
    std::string text;
    if (axis.is_log) text += fmt::format("set logscale {}\n", name);
    text += fmt::format("set {}range [{:.9g}:{:.9g}] noextend\n", name, axis.min, axis.max);
    text += fmt::format("set {}label {}\n", name, quoted(axis.label));
    if (axis.ticks.empty()) return text + fmt::format("set format {} '%g'\n", name);
    std::string ticks;
    for (const PlotAxis::Tick& tick : axis.ticks) {
        const bool lower = staggers && (&tick - axis.ticks.data()) % 2 == 1;
        ticks += fmt::format("{}{}{} {:.9g}", ticks.empty() ? "" : ", ", lower ? "\"\\n\"." : "",
                             quoted(tick.text), tick.at);
    }
    return text + fmt::format("set {}tics ({})\n", name, ticks);
}

std::string label_text(const PlotText& text, PlotFormat format, std::string_view at) {
    constexpr const char* kAligns[] = {"left", "center", "right"};
    std::string label = fmt::format("set label {} at {} {} font '{},{}' textcolor {} front",
                                    quoted(text.text), at, kAligns[static_cast<int>(text.align)],
                                    kFont, points_of(text.size, format), color_text(text.color));
    if (text.degrees != 0) label += fmt::format(" rotate by {:.3f}", text.degrees);
    if (text.has_ground) label += " boxed";
    return label + "\n";
}

std::string titles_text(const Plot& plot, PlotFormat format) {
    auto at_top = [&](const std::string& text, double y, double size, uint32_t color) {
        return label_text({{}, text, color, PlotAlign::kLeft, size}, format,
                          fmt::format("screen {:.6f}, screen {:.6f}", plot.left() / plot.width,
                                      1 - y / plot.height));
    };
    return at_top(plot.title, 38, 32, 0x202020) + at_top(plot.subtitle, 78, 22, 0x606060);
}

std::string data_text(const Plot& plot) {
    std::string text;
    for (size_t i = 0; i < plot.lines.size(); i++) {
        text += fmt::format("$line{} << EOD\n", i);
        for (PlotPoint p : plot.lines[i].points) text += point_text(p) + "\n";
        text += "EOD\n";
    }
    if (plot.marks.empty()) return text;
    text += "$marks << EOD\n";
    for (const PlotMark& mark : plot.marks) {
        // A point of size 1 has some nine pixels.
        text += fmt::format("{} {:.3f} {}\n", point_text(mark.at), mark.diameter / 9, mark.color);
    }
    return text + "EOD\n";
}

std::string plot_text(const Plot& plot) {
    std::string text = "plot ";
    for (size_t i = 0; i < plot.lines.size(); i++) {
        const PlotLine& line = plot.lines[i];
        text += fmt::format("$line{} using 1:2 with lines lw {} dt {} lc {} notitle, \\\n     ", i,
                            line.width, line.is_dashed ? 2 : 1, color_text(line.color));
    }
    if (!plot.marks.empty()) {
        text +=
            "$marks using 1:2:3:4 with points pt 7 ps variable lc rgb variable notitle, \\\n     ";
    }
    return text + "NaN notitle\n";  // so that there is one in any case
}

std::string need_gnuplot(Where where) {
    return fmt::format(
        "{}: pictures are drawn by gnuplot, which is not there; install it (gnuplot-nox of Debian "
        "and Ubuntu)",
        where);
}

}  // namespace

PlotFormat check_plot(Where where, const std::string& path) {
    const bool is_svg = path.ends_with(".svg");
    if (!is_svg && !path.ends_with(".png")) {
        throw Error(ErrorKind::kUsage, "{} {}: expected a name that ends in .svg or .png", where,
                    printable(path, 80));
    }
    if (!run_child({"gnuplot", "--version"}, "", kMaxPictureBytes, kVersionSeconds,
                   stop_if_interrupted)) {
        throw Error("{}", need_gnuplot(where));
    }
    FileWriter(path, true);  // what could not be written is not measured
    return is_svg ? PlotFormat::kSvg : PlotFormat::kPng;
}

PlotPoint Plot::pixel_of(PlotPoint at) const {
    return {left() + share_of(x, at.x) * (right() - left()),
            bottom() - share_of(y, at.y) * (bottom() - top())};
}

PlotPoint Plot::point_at(PlotPoint pixel) const {
    return {value_at(x, (pixel.x - left()) / (right() - left())),
            value_at(y, (bottom() - pixel.y) / (bottom() - top()))};
}

PlotPoint text_pixels(std::string_view text, double size) {
    const auto n = std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xc0) != 0x80;  // of UTF-8, one a character
    });
    return {0.62 * size * static_cast<double>(n), 1.3 * size};
}

std::string gnuplot_script(const Plot& plot, PlotFormat format) {
    std::string script = "set encoding utf8\n" + terminal_text(plot, format) + frame_text(plot);
    script += axis_text(plot.x, 'x', names_collide(plot)) + axis_text(plot.y, 'y', false);
    script += "set style textbox opaque noborder fillcolor rgb '#ffffff' margins 0.4,0.2\n";
    script += "set grid xtics ytics lc rgb '#e4e4e4' lw 1 lt 1\nset border lc rgb '#808080'\n";
    script += "set tics textcolor rgb '#404040'\n";
    script += titles_text(plot, format);
    for (const PlotText& text : plot.texts) {
        script += label_text(text, format, fmt::format("{:.9g}, {:.9g}", text.at.x, text.at.y));
    }
    return script + data_text(plot) + plot_text(plot);
}

void add_plot_option(CommandLine& line, std::string help, std::string& path) {
    line.value("--plot", "FILE", std::move(help), [&path](Where where, const std::string& text) {
        check_plot(where, text);
        path = text;
    });
}

void draw_plot(const Plot& plot, const std::string& path) {
    const PlotFormat format = path.ends_with(".svg") ? PlotFormat::kSvg : PlotFormat::kPng;
    const auto drawn = run_child({"gnuplot", "-"}, gnuplot_script(plot, format), kMaxPictureBytes,
                                 kDrawSeconds, stop_if_interrupted);
    if (!drawn) throw Error("{}", need_gnuplot(path));
    if (drawn->status != 0 || drawn->output.empty()) {
        throw Error("{}: gnuplot failed with status {}: {}", printable(path), drawn->status,
                    printable(drawn->errors, 300));
    }
    FileWriter file(path, true);
    file.append(drawn->output);
    file.commit();
}

}  // namespace ridge
