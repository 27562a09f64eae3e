#include "cmd/series_plot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cmd/bench_plot.h"
#include "support/error_of.h"

namespace ridge {
namespace {

const PlotText* text_of(const Plot& plot, const std::string& text) {
    for (const PlotText& one : plot.texts) {
        if (one.text == text) return &one;
    }
    return nullptr;
}

TEST(SeriesPlot, keeps_names_and_values_apart_and_within_the_picture) {
    SeriesPlot wanted;
    for (int i = 0; i < 6; i++) {
        const double y = 100 + i;  // nearly the same line six times
        wanted.series.push_back({"series number " + std::to_string(i), {{0, y}, {1, y}}});
    }
    const Plot plot = plot_of(wanted);
    std::vector<double> heights;
    for (const PlotText& text : plot.texts) {
        const PlotPoint at = plot.pixel_of(text.at);
        heights.push_back(at.y);
        EXPECT_GE(at.y, plot.top());
        EXPECT_LE(at.y, plot.bottom());
        EXPECT_LE(at.x + text_pixels(text.text, text.size).x, plot.width) << text.text;
    }
    std::sort(heights.begin(), heights.end());
    ASSERT_EQ(heights.size(), 6u);
    for (size_t i = 1; i < 6; i++) EXPECT_GE(heights[i] - heights[i - 1], 25);
}

TEST(SeriesPlot, writes_the_lower_of_two_near_values_below_its_point) {
    SeriesPlot wanted;
    wanted.series = {{"a", {{0, 100}, {1, 100}}, false, {"first", ""}},
                     {"b", {{0, 98}, {1, 20}}, false, {"second", ""}}};
    const Plot plot = plot_of(wanted);
    const double first = plot.pixel_of(text_of(plot, "first")->at).y;
    const double second = plot.pixel_of(text_of(plot, "second")->at).y;
    EXPECT_LT(first, plot.pixel_of({0, 100}).y);
    EXPECT_GT(second, plot.pixel_of({0, 98}).y);
}

TEST(SeriesPlot, is_logarithmic_where_rates_differ_much) {
    SeriesPlot wanted;
    wanted.series = {{"a", {{0, 1}, {1, 100}}}};
    EXPECT_TRUE(plot_of(wanted).y.is_log);
    wanted.series = {{"a", {{0, 50}, {1, 100}}}};
    EXPECT_FALSE(plot_of(wanted).y.is_log);
    wanted.series = {{"a", {{0, 50}}}};  // one point has no span
    EXPECT_GT(plot_of(wanted).x.max, plot_of(wanted).x.min);
}

BenchResult result_at(int64_t n_depth, int n_parallel, int64_t n_prompt, int64_t ns) {
    BenchResult result;
    result.model.path = "/models/m.gguf";
    result.model.memory_bytes_per_token = 1'000'000'000;
    result.model.weight_bytes_per_token = 1'000'000'000;
    result.model.kv_bytes_per_position = 1000;
    result.test = {n_prompt, n_prompt > 0 ? 0 : 1, n_depth, n_parallel};
    result.samples_ns = {ns};
    result.read_walls_gbps = {10};
    return result;
}

TEST(BenchPlot, shows_what_differs_most_with_the_wall_of_each_generation) {
    const std::vector<BenchResult> results = {
        result_at(0, 1, 64, 64'000'000), result_at(0, 1, 0, 200'000'000),
        result_at(2048, 1, 0, 250'000'000), result_at(1024, 1, 0, 225'000'000)};
    const SeriesPlot plot = bench_plot(results);
    EXPECT_EQ(plot.x_label, "positions in the cache before");
    ASSERT_EQ(plot.series.size(), 3u);
    EXPECT_EQ(plot.series[0].name, "pp64");
    EXPECT_NEAR(plot.series[0].points[0].y, 1000, 1e-6);
    const Series &rate = plot.series[1], &wall = plot.series[2];
    EXPECT_EQ(rate.name, "tg1");
    ASSERT_EQ(rate.points.size(), 3u);
    EXPECT_EQ(rate.points[1].x, 1024) << "in the order of x";
    EXPECT_NEAR(rate.points[2].y, 4, 1e-9);
    EXPECT_TRUE(wall.is_wall);
    EXPECT_NEAR(wall.points[0].y, 10, 0.01) << "1 GB a token at 10 GB/s";
    EXPECT_LT(wall.points[2].y, wall.points[0].y) << "keys and values count";
}

TEST(BenchPlot, has_a_line_for_each_peer_and_a_wall_for_ridge_alone) {
    std::vector<BenchResult> results = {result_at(0, 1, 0, 200'000'000),
                                        result_at(1024, 1, 0, 225'000'000)};
    for (BenchResult& result : results) {
        result.model.checkpoint = "fused";
        result.peers.push_back({"other", "{}", {400'000'000}, {}});
    }
    results.push_back(results.back());  // beside another checkpoint: it was timed again
    results.back().model.checkpoint = "plain";
    results.back().peers[0].samples_ns = {500'000'000};
    const SeriesPlot plot = bench_plot(results);
    std::vector<std::string> names;
    for (const Series& series : plot.series) names.push_back(series.name);
    EXPECT_EQ(names, (std::vector<std::string>{"tg1 fused", "the wall of tg1 fused", "tg1 other",
                                               "tg1 plain", "the wall of tg1 plain"}));
    ASSERT_EQ(plot.series[2].points.size(), 2u);
    EXPECT_NEAR(plot.series[2].points[1].y, 2.5, 1e-9);
}

TEST(BenchPlot, counts_tokens_of_all_sequences) {
    const std::vector<BenchResult> results = {result_at(0, 1, 0, 200'000'000),
                                              result_at(0, 8, 0, 400'000'000)};
    const SeriesPlot plot = bench_plot(results);
    EXPECT_EQ(plot.x_label, "sequences in one step");
    EXPECT_NEAR(plot.series[0].points[1].y, 20, 1e-9);
    EXPECT_NEAR(plot.series[1].points[1].y, 80, 0.1) << "eight share the weights";
}

// Over a picture stands what all of it shares, at a line what is its own.
TEST(BenchPlot, says_of_each_line_what_differs) {
    std::vector<BenchResult> results = {
        result_at(0, 1, 0, 200'000'000), result_at(64, 1, 0, 250'000'000),
        result_at(0, 1, 0, 300'000'000), result_at(64, 1, 0, 350'000'000)};
    for (BenchResult& result : results) {
        result.model.n_threads = 1;
        result.model.checkpoint = "fused";
    }
    results[2].model.checkpoint = results[3].model.checkpoint = "plain";
    SeriesPlot plot = bench_plot(results);
    EXPECT_EQ(plot.title, "Tokens a second of m.gguf");
    EXPECT_TRUE(plot.subtitle.ends_with(", 1 thread")) << plot.subtitle;
    ASSERT_EQ(plot.series.size(), 4u);
    EXPECT_EQ(plot.series[2].name, "tg1 plain");
    EXPECT_EQ(plot.series[3].name, "the wall of tg1 plain");
    results[2].model.path = results[3].model.path = "/models/other.gguf";
    plot = bench_plot(results);
    EXPECT_EQ(plot.title, "Tokens a second");
    EXPECT_EQ(plot.series[2].name, "tg1 other.gguf plain");
}

TEST(BenchPlot, needs_something_that_differs) {
    const std::vector<BenchResult> same = {result_at(0, 1, 0, 1), result_at(0, 1, 64, 1)};
    EXPECT_NE(error_of([&] { bench_plot(same); }).find("--plot: expected results of two or more"),
              std::string::npos);
}

}  // namespace
}  // namespace ridge
