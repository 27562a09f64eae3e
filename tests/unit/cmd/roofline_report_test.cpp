#include "cmd/roofline_report.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "cmd/roofline_plot.h"

namespace ridge {
namespace {

Ceiling ceiling(CeilingKind kind, const char* name, int n_threads, double rate) {
    Ceiling c;
    c.kind = kind, c.name = name, c.n_threads = n_threads, c.rate = rate;
    c.rates = {0.9 * rate, rate, 1.1 * rate};
    if (c.name == "L1") c.level_bytes = 48 << 10;
    if (kind == CeilingKind::kArithmetic) c.how = "vfmadd";
    return c;
}

PlacedKernel kernel(const char* stage, const char* node, int64_t bytes, int64_t flops, double us) {
    PlacedKernel k;
    k.stage = stage, k.node = node, k.checkpoint = "fused", k.n_calls = 16;
    k.weights = "Q4_K [8192, 2048]", k.matrices = {{"Q4_K", 8192, 2048}};
    k.work.weight_bytes = bytes, k.work.flops = flops;
    k.us = us, k.roof_us = 0.9 * us, k.level = "memory", k.arithmetic = "int8";
    k.gbps = 1e-3 * static_cast<double>(bytes) / us;
    k.gflops = 1e-3 * static_cast<double>(flops) / us;
    k.intensity = static_cast<double>(flops) / static_cast<double>(bytes);
    k.samples_ns = {1e3 * us};
    return k;
}

// 400 MB of weights and 100 MB of KV a step of two sequences, 10 ms; the wall stands at 100 GB/s.
RooflineResult some_result() {
    RooflineResult result;
    result.model.path = "/models/some.gguf", result.model.format = "Q4_K";
    result.model.n_threads = 2, result.model.checkpoint = "fused";
    result.ceilings.isa = "avx512", result.ceilings.dispatch_us = 0.5;
    for (int n_threads : {1, 2}) {
        const double rate = 100.0 * n_threads;
        auto& list = result.ceilings.list;
        list.push_back(ceiling(CeilingKind::kRead, "L1", n_threads, 10 * rate));
        list.push_back(ceiling(CeilingKind::kCopy, "L1", n_threads, 8 * rate));
        list.push_back(ceiling(CeilingKind::kRead, "memory", n_threads, rate / 2));
        list.push_back(ceiling(CeilingKind::kArithmetic, "f32", n_threads, 5 * rate));
        list.push_back(ceiling(CeilingKind::kArithmetic, "int8", n_threads, 20 * rate));
    }
    RooflineStep decode;
    decode.n_parallel = 2, decode.n_depth = 128;
    decode.work.weight_bytes = 400'000'000, decode.work.kv_bytes = 100'000'000;
    decode.samples_ns = {9e6, 10e6, 14e6};
    decode.read_gbps = 100;
    decode.traced_us = 10'000, decode.between_us = 100;
    decode.kernels = {kernel("ffn_in", "ffn_in", 300'000'000, 900'000'000, 7000),
                      kernel("ffn_out", "matmul", 200'000'000, 600'000'000, 3000),
                      kernel("sample", "sample", 1000, 0, 20)};
    RooflineStep prompt = decode;
    prompt.n_parallel = 1, prompt.n_depth = 0, prompt.n_prompt = 512;
    result.steps = {decode, prompt};
    result.read_walls_gbps = {90, 100, 120};
    return result;
}

TEST(RooflineReport, what_memory_allows_is_a_step_s_bytes_at_its_rate) {
    const RooflineResult result = some_result();
    EXPECT_EQ(result.read_wall_gbps(), 100);
    // 500 MB at 100 GB/s: 5 ms for two tokens.
    EXPECT_DOUBLE_EQ(result.steps[0].bound_tok_s(), 400);
    EXPECT_DOUBLE_EQ(result.steps[0].tok_s(), 200);
    EXPECT_DOUBLE_EQ(result.steps[1].tok_s(), 51'200);
    const std::string text = roofline_text(result);
    EXPECT_NE(
        text.find("memory allows 400.0 tok/s: weights of 400.000 MB and KV of 100.000 MB a step "
                  "at 100.00 GB/s; reached: 200.0 tok/s, 50 %\n"),
        std::string::npos)
        << text;
    EXPECT_EQ(text.find("memory allows"), text.rfind("memory allows")) << "of a prompt nothing";
}

TEST(RooflineReport, tables_have_a_row_for_each_ceiling_and_kernel) {
    const std::string text = roofline_text(some_result());
    for (const char* part :
         {"| L1 read ", " 48 KiB |", " 1000 GB/s (900 to 1100) |", " 2000 GB/s (1800 to 2200) |",
          "| int8 (vfmadd) ", " 4000 GOP/s ", " 1000 GFLOP/s ", "a launch takes 0.50 us",
          "theoretical peaks are unknown",
          "decode step of 2 sequences at position 128: 10.000 ms, "
          "200.0 tok/s (median of 3)",
          "| ffn_out/matmul |", "prompt step of 512 tokens"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
}

TEST(RooflineReport, high_rates_are_told_in_tera) {
    Ceiling ceiling = some_result().ceilings.list[2];
    ceiling.rate = 9'999;
    EXPECT_EQ(rate_text(ceiling), "9999 GB/s");
    ceiling.rate = 33'330;
    EXPECT_EQ(rate_text(ceiling), "33.33 TB/s");
    ceiling.kind = CeilingKind::kArithmetic, ceiling.name = "int8 tensor";
    EXPECT_EQ(rate_text(ceiling), "33.33 TOP/s");
}

TEST(RooflineReport, a_theoretical_peak_is_told_where_it_is_known) {
    RooflineResult result = some_result();
    for (Ceiling& c : result.ceilings.list) c.theoretical = c.name == "memory" ? 123 : 0;
    const std::string text = roofline_text(result);
    EXPECT_NE(text.find("| theoretical |"), std::string::npos);
    EXPECT_NE(text.find("123 GB/s |"), std::string::npos);
    EXPECT_NE(text.find("unknown |"), std::string::npos);
    const Json json = roofline_json(result);
    EXPECT_FALSE(json["ceilings"][0].contains("theoretical"));
    EXPECT_EQ(json["ceilings"][2]["theoretical"], 123);
}

TEST(RooflineReport, json_says_what_is_counted_and_what_is_modelled) {
    const Json json = roofline_json(some_result());
    EXPECT_EQ(json["ceilings"].size(), 10u);
    EXPECT_EQ(json["ceilings"][3]["instruction"], "vfmadd");
    EXPECT_EQ(json["ceilings"][9]["unit"], "GOP/s");
    const Json& one = json["steps"][0]["kernels"][0];
    EXPECT_EQ(one["bytes"]["weights"], 300'000'000);
    EXPECT_EQ(one["bytes"]["from"], "counted");
    EXPECT_EQ(one["level"]["from"], "modelled");
    EXPECT_EQ(one["weights"][0]["shape"], (Json{8192, 2048}));
    EXPECT_EQ(one["bound"], "memory");
    EXPECT_NEAR(one["share_of_roof"].get<double>(), 0.9, 1e-12);
    EXPECT_EQ(json["steps"][0]["bound_tok_s"], 400);
    EXPECT_TRUE(json["steps"][1]["bound_tok_s"].is_null());
    RooflineResult bare = some_result();
    bare.steps.clear();
    EXPECT_FALSE(roofline_json(bare).contains("model"));
}

bool has_text(const Plot& plot, const std::string& text) {
    for (const PlotText& one : plot.texts) {
        if (one.text == text) return true;
    }
    return false;
}

TEST(RooflinePlot, shows_what_all_threads_reach_and_each_kernel_that_computes) {
    const Plot plot = roofline_plot(some_result());
    EXPECT_EQ(plot.title, "Roofline of some.gguf");
    for (const char* text : {"L1 2000 GB/s", "memory 100 GB/s", "f32 1000 GFLOP/s",
                             "int8 4000 GOP/s", "ffn_in 90 %", "ffn_out/matmul 90 %",
                             "decode step of 2 sequences at position 128: 200 tok/s, 50 % of what "
                             "memory allows",
                             "prompt step of 512 tokens: 51200 tok/s"}) {
        EXPECT_TRUE(has_text(plot, text)) << text;
    }
    EXPECT_FALSE(has_text(plot, "L1 1000 GB/s")) << "of one thread";
    EXPECT_EQ(plot.marks.size(), 2u + 4u)
        << "of the legend, and of kernels; sample computes nothing";
    for (const PlotMark& mark : plot.marks) {
        const PlotPoint at = plot.pixel_of(mark.at);
        EXPECT_GT(at.x, plot.left());
        EXPECT_LT(at.x, plot.right());
        EXPECT_GT(at.y, plot.top());
        EXPECT_LT(at.y, plot.bottom());
    }
}

TEST(RooflinePlot, without_a_model_shows_the_ceilings) {
    RooflineResult bare = some_result();
    bare.steps.clear();
    const Plot plot = roofline_plot(bare);
    EXPECT_TRUE(plot.marks.empty());
    EXPECT_EQ(plot.lines.size(), 4u) << "two levels, two kinds of arithmetic";
}

// As in plain C++, or where arithmetic was disturbed more than memory.
TEST(RooflinePlot, shows_every_level_also_where_arithmetic_is_slow) {
    RooflineResult slow = some_result();
    slow.steps.clear();
    for (Ceiling& ceiling : slow.ceilings.list) {
        if (ceiling.kind == CeilingKind::kArithmetic) ceiling.rate /= 1e4;
    }
    const Plot plot = roofline_plot(slow);
    EXPECT_EQ(plot.lines.size(), 4u);
    for (const char* level : {"L1 ", "memory "}) {
        EXPECT_TRUE(std::any_of(plot.texts.begin(), plot.texts.end(), [&](const PlotText& text) {
            return text.text.starts_with(level);
        })) << level;
    }
    for (const PlotLine& line : plot.lines) {
        for (const PlotPoint& at : line.points) {
            EXPECT_GE(at.x, plot.x.min);
            EXPECT_LE(at.x, plot.x.max);
        }
    }
}

}  // namespace
}  // namespace ridge
