#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cmd/command_line.h"

namespace ridge {

// Pictures of measurements, at the size of a slide. They are drawn by gnuplot, which is looked for
// when one is wanted.

enum class PlotFormat { kSvg, kPng };
// By the end of a file's name; Error(kUsage) for any other, Error where gnuplot is not there or
// hangs, or no file can be written so: asked before minutes go into what is to be drawn.
PlotFormat check_plot(Where where, const std::string& path);

// --plot, whose value check_plot() has seen.
void add_plot_option(CommandLine& line, std::string help, std::string& path);

struct PlotPoint {
    double x = 0, y = 0;
};

struct PlotAxis {
    std::string label;
    double min = 0, max = 1;
    bool is_log = false;
    struct Tick {
        double at;
        std::string text;
    };
    std::vector<Tick> ticks = {};  // in place of numbers
};

// Colours are 0xRRGGBB.
struct PlotLine {
    std::vector<PlotPoint> points;
    uint32_t color = 0;
    double width = 2;
    bool is_dashed = false;
};

struct PlotMark {
    PlotPoint at;
    uint32_t color = 0;
    double diameter = 12;  // pixels
};

enum class PlotAlign { kLeft, kCenter, kRight };

struct PlotText {
    PlotPoint at;  // the middle of its height
    std::string text;
    uint32_t color = 0;
    PlotAlign align = PlotAlign::kLeft;
    double size = 20;         // of the letters, in pixels
    double degrees = 0;       // turned to the left
    bool has_ground = false;  // of the picture's colour, which hides what is behind it
};

// Lines, marks and texts in this order, each over those before it. Texts are taken as they are.
struct Plot {
    std::string title, subtitle;
    PlotAxis x, y;
    std::vector<PlotLine> lines;
    std::vector<PlotMark> marks;
    std::vector<PlotText> texts;
    int width = 1600, height = 900;  // pixels

    // The frame that data lie in, and where in it: pixels from the left and from the top.
    double left() const { return 120; }
    double right() const { return width - 40; }
    double top() const { return 110; }
    double bottom() const { return height - 90; }
    PlotPoint pixel_of(PlotPoint at) const;
    PlotPoint point_at(PlotPoint pixel) const;
};

// Room that a text takes, nearly: gnuplot alone knows exactly.
PlotPoint text_pixels(std::string_view text, double size);

std::string gnuplot_script(const Plot& plot, PlotFormat format);
// To the file, whole or not at all; one that is there is replaced. Error where gnuplot is not there
// or fails.
void draw_plot(const Plot& plot, const std::string& path);

}  // namespace ridge
