#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "cli/checks.h"
#include "cli/program.h"

namespace ridge::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kModel = "synth:tiny-qwen3:Q4_0";  // the head is not the embedding

Json roofline(const Arguments& more) {
    Result result = run(with({"roofline", "--json", "-q", "-t", "1"}, more));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return Json::parse(result.out);
}

int64_t sum_of(const Json& kernels, const char* part) {
    int64_t n = 0;
    for (const Json& kernel : kernels) n += kernel["bytes"][part].get<int64_t>();
    return n;
}

std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

bool has_gnuplot() {
    return std::system("command -v gnuplot >/dev/null") == 0;
}

// Weights as the file has them, so that what is counted is what inspect says.
TEST(Roofline, what_is_counted_of_a_step_is_what_its_kernels_move) {
    Json json =
        roofline({"-m", kModel, "-p", "16", "-d", "8", "--no-repack", "--checkpoint", "plain"});
    Json model = Json::parse(run({"inspect", "-m", kModel, "--json"}).out);
    ASSERT_EQ(json["steps"].size(), 2u);
    const Json &decode = json["steps"][0], &prompt = json["steps"][1];
    EXPECT_EQ(decode["n_depth"], 8);
    EXPECT_EQ(prompt["n_prompt"], 16);
    for (const Json& step : json["steps"]) {
        for (const char* part : {"weights", "kv", "activations"}) {
            EXPECT_EQ(sum_of(step["kernels"], part), step["bytes"][part]) << part;
        }
        EXPECT_GT(step["tok_s"], 0);
        int64_t flops = 0;
        for (const Json& kernel : step["kernels"]) {
            flops += kernel["flops"].get<int64_t>();
            EXPECT_GT(kernel["median_us"], 0);
            const std::string bound = kernel["bound"];
            EXPECT_TRUE(
                std::set<std::string>({"memory", "cache", "arithmetic", "launch"}).contains(bound))
                << bound;
            EXPECT_EQ(kernel["bytes"]["from"], "counted");
            EXPECT_EQ(kernel["level"]["from"], "modelled");
        }
        EXPECT_EQ(flops, step["flops"]);
    }
    EXPECT_EQ(decode["bytes"]["weights"], model["weight_bytes_per_token"]);
    // 3 layers: 9 positions read and one written, 2 heads of 128 in f16, K and V.
    EXPECT_EQ(decode["bytes"]["kv"], 3 * 10 * 2 * 128 * 2 * 2);
    EXPECT_EQ(prompt["bytes"]["kv"], 3 * 32 * 2 * 128 * 2 * 2);
    const double bytes =
        decode["bytes"]["weights"].get<double>() + decode["bytes"]["kv"].get<double>();
    EXPECT_NEAR(decode["bound_tok_s"].get<double>(),
                decode["read_gbps"].get<double>() * 1e9 / bytes, 1e-3);
    EXPECT_TRUE(prompt["bound_tok_s"].is_null());
}

TEST(Roofline, without_a_model_tells_the_ceilings_alone_and_draws_them) {
    const std::string picture = scratch_folder() + "/roofline.svg";
    const bool draws = has_gnuplot();
    Json json = roofline(draws ? Arguments{"--plot", picture, "-t", "2"} : Arguments{"-t", "2"});
    EXPECT_FALSE(json.contains("steps"));
    std::set<std::string> kinds, names;
    for (const Json& ceiling : json["ceilings"]) {
        kinds.insert(ceiling["kind"]);
        names.insert(ceiling["name"]);
        EXPECT_GT(ceiling["rate"], 0);
        EXPECT_FALSE(ceiling.contains("theoretical")) << "nobody can say for sure";
        const std::vector<double> rates = ceiling["rates"];
        EXPECT_LE(*std::min_element(rates.begin(), rates.end()), ceiling["rate"]);
    }
    EXPECT_EQ(kinds, (std::set<std::string>{"arithmetic", "copy", "read"}));
    EXPECT_TRUE(names.contains("memory"));
    EXPECT_TRUE(names.contains("f32"));
    EXPECT_GT(json["dispatch_us"], 0);
    if (!draws) GTEST_SKIP() << "gnuplot is not there; nothing was drawn";
    EXPECT_NE(bytes_of(picture).find("memory "), std::string::npos);
    EXPECT_NE(bytes_of(picture).find("</svg>"), std::string::npos);
}

TEST(Roofline, prints_tables_and_draws_a_model_s_kernels) {
    if (!has_gnuplot()) GTEST_SKIP() << "gnuplot is not there";
    const std::string picture = scratch_folder() + "/roofline.png";
    Result result =
        run({"roofline", "-m", kModel, "-t", "1", "-p", "0", "-B", "2", "--plot", picture});
    EXPECT_EQ(result.status, 0) << result.err;
    for (const char* part :
         {"| L1 read", "decode step of 2 sequences at position 128", "| ffn_in", "memory allows ",
          "a launch takes ", "theoretical peaks are unknown"}) {
        EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
    }
    EXPECT_EQ(result.out.find("prompt step"), std::string::npos);
    EXPECT_EQ(bytes_of(picture).substr(1, 3), "PNG");
    EXPECT_NE(result.err.find("wrote "), std::string::npos);
}

TEST(Roofline, what_cannot_be_done_is_one_line_before_anything_is_measured) {
    expect_error({"roofline", "--plot", "a.pdf"}, 2,
                 "--plot a.pdf: expected a name that ends in .svg or .png");
    expect_error({"roofline", "-t", "0"}, 2, "expected");
    expect_error({"roofline", "-m", kModel, "--checkpoint", "nothing"}, 2, "nothing");
    expect_error({"roofline", "--checkpoint", "plain"}, 2, "--model");
    expect_error({"roofline", "-m", "no-such.gguf"}, 1, "no-such.gguf");
    expect_error({"roofline", "--cpu-isa", "z80"}, 2, "z80");
    const std::string folder = scratch_folder() + "/no-programs";
    std::filesystem::create_directory(folder);
    Setting setting;
    setting.environment["PATH"] = folder;
    expect_error({"roofline", "--plot", "a.png"}, 1, "gnuplot-nox", setting);
}

// More threads than any machine has CPUs free for: it says so, and a signal ends it between
// samples.
TEST(Roofline, with_more_threads_than_cpus_says_so_and_can_be_ended) {
    const std::string n_threads = std::to_string(2 * std::thread::hardware_concurrency() + 1);
    Result result = run({"roofline", "-t", n_threads});
    EXPECT_EQ(result.status, 0);
    EXPECT_NE(result.err.find(n_threads + " threads take turns on "), std::string::npos)
        << result.err;
    Setting setting;
    setting.signal = SIGTERM;
    const auto begin = std::chrono::steady_clock::now();
    setting.interrupt_when = [&] {
        return std::chrono::steady_clock::now() - begin > std::chrono::seconds(1);
    };
    result = run({"roofline", "-t", n_threads, "-q"}, setting);
    EXPECT_EQ(result.status, 143);
    EXPECT_EQ(result.out + result.err, "");
}

TEST(Roofline, does_not_wait_for_a_gnuplot_that_hangs) {
    const std::string folder = scratch_folder() + "/hanging";
    std::filesystem::create_directory(folder);
    const std::string gnuplot = write_scratch("hanging/gnuplot", "#!/bin/sh\nexec sleep 1000\n");
    std::filesystem::permissions(gnuplot, std::filesystem::perms::owner_all);
    Setting setting;
    setting.environment["PATH"] = folder + ":/usr/bin:/bin";
    expect_error({"roofline", "--plot", "a.png"}, 1, "gnuplot: did not end within 10 s", setting);
}

}  // namespace
}  // namespace ridge::cli
