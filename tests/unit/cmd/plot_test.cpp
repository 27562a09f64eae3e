#include "cmd/plot.h"

#include <gtest/gtest.h>

#include "base/child_process.h"
#include "base/error.h"
#include "base/files.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace ridge {
namespace {

bool has_gnuplot() {
    return run_child({"gnuplot", "--version"}, "", 1 << 16).has_value();
}

Plot some_plot() {
    Plot plot;
    plot.title = "It's `date`; \"$HOME\" \\ @x _y^z {/Bold w}\nnext";
    plot.x = {"x", 0.1, 1000, true};
    plot.y = {"y", 0, 50, false};
    plot.lines.push_back({{{0.1, 5}, {1000, 45}}, 0x112233, 3, true});
    plot.marks.push_back({{1, 20}, 0xff0000, 18});
    plot.texts.push_back({{1, 25}, "a mark", 0x00ff00, PlotAlign::kCenter, 18, 30, true});
    return plot;
}

TEST(Plot, points_and_pixels_are_each_other_s_inverse) {
    const Plot plot = some_plot();
    EXPECT_NEAR(plot.pixel_of({0.1, 0}).x, plot.left(), 1e-9);
    EXPECT_NEAR(plot.pixel_of({1000, 50}).x, plot.right(), 1e-9);
    EXPECT_NEAR(plot.pixel_of({1000, 50}).y, plot.top(), 1e-9);
    EXPECT_NEAR(plot.pixel_of({10, 25}).x, (plot.left() + plot.right()) / 2, 1e-9);
    const PlotPoint back = plot.point_at(plot.pixel_of({3, 7}));
    EXPECT_NEAR(back.x, 3, 1e-9);
    EXPECT_NEAR(back.y, 7, 1e-9);
}

TEST(Plot, a_script_has_its_data_in_itself_and_texts_in_single_quotes) {
    const std::string script = gnuplot_script(some_plot(), PlotFormat::kPng);
    EXPECT_NE(script.find("set terminal pngcairo noenhanced size 1600,900"), std::string::npos);
    EXPECT_NE(script.find("set logscale x\n"), std::string::npos);
    EXPECT_EQ(script.find("set logscale y"), std::string::npos);
    EXPECT_NE(script.find("$line0 << EOD\n0.1 5\n1000 45\nEOD\n"), std::string::npos);
    EXPECT_NE(script.find("$marks << EOD\n1 20 2.000 16711680\nEOD\n"), std::string::npos);
    EXPECT_NE(script.find("'It''s `date`; \"$HOME\" \\ @x _y^z {/Bold w}\\x0anext'"),
              std::string::npos)
        << script;
    EXPECT_NE(gnuplot_script(some_plot(), PlotFormat::kSvg).find("set terminal svg noenhanced"),
              std::string::npos);
}

// A place has 144 pixels: "decode_attention" takes 198, "rms_norm" 99.
TEST(Plot, names_of_ticks_that_would_lie_over_each_other_take_two_lines) {
    Plot plot = some_plot();
    plot.x = {"", 0, 10, false, {{1, "rms_norm"}, {2, "decode"}, {3, "fused"}}};
    EXPECT_NE(gnuplot_script(plot, PlotFormat::kPng)
                  .find("set xtics ('rms_norm' 1, 'decode' 2, 'fused' 3)\n"),
              std::string::npos);
    plot.x.ticks[1].text = "decode_attention";
    EXPECT_NE(gnuplot_script(plot, PlotFormat::kPng)
                  .find("set xtics ('rms_norm' 1, \"\\n\".'decode_attention' 2, 'fused' 3)\n"),
              std::string::npos);
}

TEST(Plot, a_name_says_which_kind_of_picture_it_is) {
    for (const char* name : {"picture", "picture.pdf", "png", ".PNG", ""}) {
        EXPECT_NE(error_of([&] { check_plot("--plot", name); }).find("ends in .svg or .png"),
                  std::string::npos)
            << name;
    }
}

TEST(Plot, is_drawn_whole_and_its_texts_mean_nothing_to_gnuplot) {
    if (!has_gnuplot()) GTEST_SKIP() << "gnuplot is not there";
    const TemporaryFolder folder;
    const std::string svg = folder.path() + "/it's a.svg", png = folder.path() + "/a.png";
    EXPECT_EQ(check_plot("--plot", svg), PlotFormat::kSvg);
    EXPECT_TRUE(list_folder(folder.path()).empty()) << "there is no picture yet";
    EXPECT_NE(error_of([&] {
                  check_plot("--plot", folder.path() + "/none/a.svg");
              }).find("/none/a.svg: cannot write: No such file"),
              std::string::npos);
    draw_plot(some_plot(), svg);
    const std::string text = read_file(svg, 1 << 20);
    EXPECT_NE(text.find("</svg>"), std::string::npos);
    EXPECT_NE(text.find("a mark"), std::string::npos);
    EXPECT_NE(text.find("`date`"), std::string::npos) << "a command within a text was run";
    EXPECT_NE(text.find("_y^z {/Bold w}"), std::string::npos);
    draw_plot(some_plot(), png);
    draw_plot(some_plot(), png);  // over itself
    EXPECT_EQ(read_file(png, 1 << 20).substr(1, 3), "PNG");
}

TEST(Plot, that_gnuplot_refuses_leaves_no_file) {
    if (!has_gnuplot()) GTEST_SKIP() << "gnuplot is not there";
    const TemporaryFolder folder;
    Plot plot = some_plot();
    plot.y.max = plot.y.min;
    const std::string path = folder.path() + "/a.png";
    const std::string error = error_of([&] { draw_plot(plot, path); });
    EXPECT_NE(error.find("gnuplot failed"), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
    EXPECT_EQ(file_kind(path), FileKind::kMissing);
}

}  // namespace
}  // namespace ridge
