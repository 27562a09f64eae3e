#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/checks.h"
#include "cli/program.h"

namespace ridge::cli {
namespace {

using Json = nlohmann::ordered_json;

// Short tests of the tiny model; `more` says which.
Arguments bench(const Arguments& more) {
    return with({"bench", "-m", tiny_model(), "-t", "1", "-r", "2"}, more);
}

Json results(const Arguments& more) {
    Result result = run(with(bench(more), {"-o", "json", "-q"}));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return Json::parse(result.out);
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    for (size_t begin = 0; begin < text.size();) {
        size_t end = text.find('\n', begin);
        if (end == std::string::npos) end = text.size();
        lines.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return lines;
}

TEST(Bench, puts_an_earlier_run_beside_the_new_one) {
    const Result first = run(with(bench({"-p", "0", "-n", "3"}), {"-o", "json", "-q"}));
    const std::string path = write_scratch("older.json", first.out);
    const Json older = Json::parse(first.out);
    const Json json = results({"-p", "0", "-n", "3,4", "--compare", path});
    ASSERT_EQ(json.size(), 2u);
    EXPECT_EQ(json[0]["compared_ts"], older[0]["median_ts"]);
    EXPECT_GT(json[0]["compared_ratio"], 0);
    EXPECT_TRUE(json[1]["compared_ts"].is_null()) << "the earlier run does not have it";
    EXPECT_FALSE(older[0].contains("compared_ts"));
    const Result table = run(bench({"-q", "-p", "0", "-n", "3", "--compare", path}));
    EXPECT_NE(table.out.find("before"), std::string::npos) << table.out;
    expect_error(bench({"--compare", write_scratch("no.json", "[]")}), 1, "no results in it");
    const Result one = run(bench({"-q", "-n", "3", "--plot", scratch_folder() + "/p.svg"}));
    EXPECT_EQ(one.status, 2) << "there is nothing to draw a line through";
}

TEST(Bench, tells_everything_of_each_test) {
    Json json = results({"-p", "20", "-n", "3", "-d", "0"});
    ASSERT_EQ(json.size(), 2u);
    for (const Json& one : json) {
        std::istringstream keys(
            "build_commit cpu_info machine isa checkpoint fallbacks model_filename model_type "
            "model_size n_threads type_k type_v n_prompt n_gen n_depth n_parallel "
            "test_time date avg_ns stddev_ns avg_ts stddev_ts median_ts samples_ns "
            "samples_ts read_wall_gbps bytes_per_token read_bytes_per_token share_of_wall");
        for (std::string key; keys >> key;) EXPECT_TRUE(one.contains(key)) << key;
        EXPECT_EQ(one["model_filename"], tiny_model());
        EXPECT_EQ(one["n_threads"], 1);
        EXPECT_EQ(one["samples_ns"].size(), 2u);
        double n_tokens = one["n_prompt"].get<double>() + one["n_gen"].get<double>();
        for (size_t i = 0; i < 2; i++) {
            double ns = one["samples_ns"][i];
            EXPECT_GT(ns, 0);
            EXPECT_NEAR(one["samples_ts"][i].get<double>() * ns * 1e-9, n_tokens, 1e-6 * n_tokens);
        }
        EXPECT_GT(one["read_wall_gbps"], 0);
    }
    EXPECT_EQ(json[0]["n_prompt"], 20);
    EXPECT_EQ(json[0]["n_gen"], 0);
    EXPECT_TRUE(json[0]["bytes_per_token"].is_null());
    EXPECT_EQ(json[1]["n_gen"], 3);
    const std::vector<double> walls = json[1]["read_walls_gbps"], rates = json[1]["samples_ts"];
    ASSERT_EQ(walls.size(), 3u);
    double share = 0;  // of two samples the median is the mean
    for (size_t i = 0; i < 2; i++) {
        share += json[1]["read_bytes_per_token"].get<double>() * rates[i] * 1e-9 /
                 (walls[i] + walls[i + 1]);
    }
    EXPECT_NEAR(json[1]["share_of_wall"].get<double>(), share, 1e-6);
}

TEST(Bench, takes_lists_and_ranges_and_keeps_their_order) {
    Json json = results({"-p", "1-9*3,2", "-n", "0", "-d", "70,0-8+8", "-r", "1"});
    std::vector<std::pair<int, int>> got, want;
    for (const Json& one : json) got.emplace_back(one["n_depth"], one["n_prompt"]);
    for (int depth : {70, 0, 8}) {
        for (int n : {1, 3, 9, 2}) want.emplace_back(depth, n);
    }
    EXPECT_EQ(got, want);
}

TEST(Bench, several_sequences_generate_at_once_and_each_token_counts) {
    Json json = results({"-p", "0", "-n", "2", "-B", "1,3", "-d", "0,66", "-r", "1"});
    ASSERT_EQ(json.size(), 4u);
    EXPECT_EQ(json[1]["n_parallel"], 3);
    EXPECT_EQ(json[3]["n_depth"], 66);
    double ns = json[1]["samples_ns"][0];
    EXPECT_NEAR(json[1]["samples_ts"][0].get<double>(), 6e9 / ns, 1e-6 * 6e9 / ns);
    EXPECT_LT(json[1]["bytes_per_token"], json[0]["bytes_per_token"]);
    EXPECT_GT(json[2]["bytes_per_token"], json[0]["bytes_per_token"]);
}

TEST(Bench, opens_each_model_in_each_way) {
    Json json = results({"-m", "synth:tiny-qwen3:Q4_0", "-p", "0", "-n", "1", "-ctk", "f16,f32",
                         "--checkpoint", "plain,ref", "-t", "2", "--no-warmup", "-r", "1"});
    ASSERT_EQ(json.size(), 16u) << "models, checkpoints, types of keys, threads";
    EXPECT_EQ(json[0]["checkpoint"], "plain");
    EXPECT_EQ(json[0]["type_k"], "f16");
    EXPECT_EQ(json[1]["n_threads"], 2);
    EXPECT_EQ(json[2]["type_k"], "f32");
    EXPECT_EQ(json[2]["type_v"], "f16");
    EXPECT_EQ(json[4]["checkpoint"], "ref");
    EXPECT_EQ(json[8]["model_filename"], "synth:tiny-qwen3:Q4_0");
}

TEST(Bench, all_checkpoints_are_timed_in_their_order) {
    Json json = results({"-p", "0", "-n", "1", "--checkpoint", "all", "-r", "1"});
    ASSERT_GE(json.size(), 2u);
    EXPECT_EQ(json[0]["checkpoint"], "ref");
    EXPECT_EQ(json[1]["checkpoint"], "plain");
    Json last = results({"-p", "0", "-n", "1", "-r", "1"});
    EXPECT_EQ(json.back()["checkpoint"], last[0]["checkpoint"]);
}

TEST(Bench, says_what_kernels_of_other_checkpoints_ran_and_why) {
    const Arguments odd = {
        "bench", "-m", "synth:tiny-open-llama:Q4_0", "-t", "1", "-r", "1", "-p", "2", "-n",
        "1",     "-q"};
    Json json = Json::parse(run(with(odd, {"-o", "json"})).out);
    ASSERT_EQ(json.size(), 2u);
    for (const Json& one : json) {
        ASSERT_EQ(one["fallbacks"].size(), 3u);
        EXPECT_EQ(one["fallbacks"][2]["op"], "attention");
        EXPECT_EQ(one["fallbacks"][2]["ran"], "plain");
        EXPECT_EQ(one["fallbacks"][2]["skipped"], "prefill_attention");
        EXPECT_EQ(one["fallbacks"][2]["reason"], "d_head is not a multiple of 16");
    }
    const std::string note =
        "\nNot all kernels are the checkpoint's own: synth:tiny-open-llama:Q4_0, fused: attn_in by "
        "ops, kv_append by plain, attention by plain: d_head is not a multiple of 16.\n";
    const std::string table = run(odd).out;
    ASSERT_NE(table.find(note), std::string::npos) << table;
    EXPECT_EQ(table.find("Not all", table.find(note) + 2), std::string::npos) << "said twice";
    EXPECT_TRUE(results({"-p", "1", "-n", "0"})[0]["fallbacks"].empty());

    const Arguments prompt = {"run", "-m", "synth:tiny-open-llama:Q4_0", "-p", "x", "-n", "1"};
    EXPECT_NE(run(prompt).err.find(" (but attn_in by ops, kv_append by plain, attention by plain: "
                                   "d_head is not a multiple of 16), "),
              std::string::npos);
    EXPECT_EQ(run(bench({"-p", "1", "-n", "0", "-q"})).out.find("Not all"), std::string::npos);
}

TEST(Bench, a_prompt_and_a_generation_can_be_one_test) {
    Json json = results({"-p", "0", "-n", "0", "-pg", "30,4", "-pg", "2,1"});
    ASSERT_EQ(json.size(), 2u);
    EXPECT_EQ(json[0]["n_prompt"], 30);
    EXPECT_EQ(json[0]["n_gen"], 4);
    EXPECT_TRUE(json[0]["share_of_wall"].is_null());
}

TEST(Bench, writes_tables_csv_and_lines) {
    Arguments tests = {"-p", "5", "-n", "2", "-q"};
    std::vector<std::string> table = lines_of(run(bench(tests)).out);
    ASSERT_EQ(table.size(), 8u) << "head, rule, two rows, the wall and the machine, each after an "
                                   "empty line";
    EXPECT_EQ(table[0].rfind("| model", 0), 0u);
    EXPECT_NE(table[2].find("| pp5 "), std::string::npos);
    EXPECT_NE(table[3].find("% of "), std::string::npos);

    std::vector<std::string> csv = lines_of(run(with(bench(tests), {"-o", "csv"})).out);
    ASSERT_EQ(csv.size(), 3u);
    Json json = results({"-p", "5", "-n", "2"});
    std::string header;
    for (const auto& [key, value] : json[0].items()) header += (header.empty() ? "" : ",") + key;
    EXPECT_EQ(csv[0], header);
    EXPECT_NE(csv[1].find("\"" + tiny_model() + "\""), std::string::npos);

    std::vector<std::string> jsonl = lines_of(run(with(bench(tests), {"-o", "jsonl"})).out);
    ASSERT_EQ(jsonl.size(), 2u);
    for (const std::string& line : jsonl) EXPECT_EQ(Json::parse(line)["samples_ns"].size(), 2u);
}

// Characters before each bar of a line.
std::vector<size_t> bars_of(const std::string& line) {
    std::vector<size_t> bars;
    size_t n = 0;
    for (char c : line) {
        if (c == '|') bars.push_back(n);
        n += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
    }
    return bars;
}

TEST(Bench, no_two_rows_of_the_table_look_alike_and_all_are_aligned) {
    const std::string folder = scratch_folder() + "/of-one-name";
    std::filesystem::create_directory(folder);
    std::filesystem::copy_file(tiny_model(), folder + "/tiny.gguf");
    Result result = run(bench({"-m",   folder + "/tiny.gguf",
                               "-r",   "1",
                               "-p",   "6",
                               "-n",   "0",
                               "-d",   "1000",
                               "-pg",  "1000,100",
                               "-ub",  "2048,4096",
                               "-ctk", "q8_0,f16",
                               "-ctv", "f16",
                               "-q",   "--no-warmup"}));
    std::vector<std::string> table = lines_of(result.out);
    ASSERT_GE(table.size(), 18u) << result.out << result.err;
    EXPECT_NE(table[0].find("| ubatch |"), std::string::npos) << table[0];
    std::set<std::string> seen;
    for (size_t i = 0; i < 18; i++) {
        if (i == 1) continue;  // the rule
        EXPECT_EQ(bars_of(table[i]), bars_of(table[0])) << table[i] << "\n" << table[0];
        const std::string what = table[i].substr(0, table[i].find(i == 0 ? "tok/s" : " d1000 "));
        EXPECT_TRUE(seen.insert(what).second) << table[i];
    }
    EXPECT_EQ(bars_of(table[1]).size(), bars_of(table[0]).size());
    EXPECT_EQ(run(bench({"-p", "1", "-n", "0", "-q"})).out.find("ubatch"), std::string::npos);
}

TEST(Bench, refuses_bad_values_in_one_line_before_it_times_anything) {
    struct Bad {
        const char *option, *value, *said;
    };
    for (Bad bad : {Bad{"-p", "x", "--n-prompt \"x\""},
                    Bad{"-p", "512,", "ranges as in"},
                    Bad{"-p", "-1", "--n-prompt \"-1\""},
                    Bad{"-n", "9-1", "--n-gen \"9-1\""},
                    Bad{"-n", "0-8*2", "--n-gen \"0-8*2\""},
                    Bad{"-d", "1-4+0", "--n-depth"},
                    Bad{"-d", "99999999", "from 0 to 16777216"},
                    Bad{"-d", "1-5000", "at most 1000"},
                    Bad{"-B", "0", "--n-parallel \"0\""},
                    Bad{"-B", "257", "from 1 to 256"},
                    Bad{"-t", "0", "--threads \"0\""},
                    Bad{"-ub", "0", "--ubatch-size"},
                    Bad{"-pg", "512", "two numbers"},
                    Bad{"-pg", "1,2,3", "two numbers"},
                    Bad{"-pg", "1-2", "two numbers"},
                    Bad{"-pg", "a,2", "--n-prompt-gen \"a\": expected a whole number"},
                    Bad{"-r", "0", "--repetitions \"0\""},
                    Bad{"-r", "x", "--repetitions"},
                    Bad{"-ctk", "q3", "--cache-type-k \"q3\": expected one of f32, f16"},
                    Bad{"-ctv", "f16,", "--cache-type-v"},
                    Bad{"-o", "xml", "--output \"xml\": expected one of md, csv, json, jsonl"},
                    Bad{"--checkpoint", "plain,warp", "--checkpoint \"warp\": expected one of"},
                    Bad{"--device", "abacus", "abacus"}})
        expect_error(bench({bad.option, bad.value}), 2, bad.said);
    expect_error({"bench"}, 2, "no model");
    expect_error(bench({"-p", "0", "-n", "0"}), 2, "nothing to time");
    expect_error(bench({"-p", "0", "-n", "1-1000", "-d", "1-1000", "-B", "1-256"}), 2,
                 "256000000 tests in all, expected at most 100000");
    expect_error(bench({"-t", "1-1000", "-ub", "1-1000", "-d", "1-1000", "-ctk", "f16,f32"}), 2,
                 "tests in all");
    expect_error(bench({"-m", "/no/such/file"}), 1, "/no/such/file");
    expect_error(bench({"-d", "16777216", "-B", "256", "-p", "0", "-n", "1"}), 1, "GB needed");
    // Nothing is on standard output: what can be timed was not.
    expect_error(bench({"-t", "1,1024", "--pin"}), 2, "cannot pin 1024 threads");
    expect_error({"bench", "-m", "synth:tiny-open-llama:Q4_0", "-ctk", "f16,q8_0"}, 1, "q8_0");
    Setting setting;
    setting.environment = {{"RIDGE_N_DEPTH", "much"}};
    expect_error(bench({}), 2, "RIDGE_N_DEPTH \"much\"", setting);
}

TEST(Bench, what_was_measured_before_ctrl_c_can_be_read) {
    Setting setting;
    setting.interrupt_after = "\n{";
    Result result = run(bench({"-p", "1", "-n", "1000000", "-o", "json"}), setting);
    EXPECT_EQ(result.status, 130);
    Json json = Json::parse(result.out);
    ASSERT_EQ(json.size(), 1u);
    EXPECT_EQ(json[0]["n_prompt"], 1);
}

TEST(Bench, shows_how_far_it_is_within_a_sample_and_ends_there) {
    if (!Terminal::available()) GTEST_SKIP() << "there are no pseudo-terminals here";
    // Half a percent of it is seen soon, also on a machine that is busy; its end is not.
    Terminal terminal(
        {"bench", "-m", tiny_model(), "-p", "0", "-n", "100000", "-r", "1", "--no-warmup"});
    ASSERT_TRUE(terminal.wait_for("timing tg100000, 1 of 1, 0%")) << terminal.seen();
    EXPECT_TRUE(terminal.wait_for("timing tg100000, 1 of 1, ")) << terminal.seen();
    terminal.send("\x03");
    EXPECT_EQ(terminal.finish(), 130);
}

TEST(Bench, is_quiet_when_the_reader_goes_away_and_fails_on_a_full_disk) {
    Setting gone, full;
    gone.read_at_most = 1;
    full.output_path = "/dev/full";
    for (const char* format : {"md", "json"}) {
        Arguments arguments = bench({"-p", "1-50", "-n", "0", "-o", format});
        Result result = run(arguments, gone);
        EXPECT_EQ(result.status, 0);
        EXPECT_EQ(result.err, "");
        expect_error(arguments, 1, "standard output: cannot write", full);
    }
}

}  // namespace
}  // namespace ridge::cli
