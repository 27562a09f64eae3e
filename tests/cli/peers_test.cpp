#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/timer.h"
#include "cli/checks.h"
#include "cli/program.h"

namespace ridge::cli {
namespace {

using Json = nlohmann::ordered_json;

// A peer that speaks the protocol and does nothing. `request` is answered by the shell commands
// `instead`; the requests that it got are in the file `name`.log.
std::string fake_peer(const std::string& name, const std::string& request = "none",
                      const std::string& instead = "") {
    const std::string log = scratch_folder() + "/" + name + ".log";
    std::filesystem::remove(log);
    std::string script = "#!/bin/sh\nwhile read -r line; do\necho \"$line\" >> '" + log +
                         "'\ncase $line in\n*'\"request\":\"" + request + "\"'*) " +
                         (instead.empty() ? ":" : instead) + ";;\n";
    for (const auto& [known, answer] :
         {std::pair("hello", R"({"name":"Fake","version":"1.2"})"),
          std::pair("model", R"({"weights":"imagined","note":"draws no token"})"),
          std::pair("fill", "{}"), std::pair("test", R"({"ns":2000000,"token":0})"),
          std::pair("op", R"({"variant":"thin air","bytes":1000,"relative_l2":0.01})"),
          std::pair("sample", R"({"ns":1e9})")}) {
        script += "*'\"request\":\"" + std::string(known) + "\"'*) echo '" + answer + "';;\n";
    }
    const std::string path = write_scratch(name, script + "esac\ndone\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
}

std::vector<Json> requests_of(const std::string& name) {
    std::ifstream log(scratch_folder() + "/" + name + ".log");
    std::vector<Json> requests;
    for (std::string line; std::getline(log, line);) requests.push_back(Json::parse(line));
    return requests;
}

Arguments bench(const std::string& program, const Arguments& more = {}) {
    return with({"bench", "-m", tiny_model(), "--device", "cpu", "-t", "1", "-r", "3", "-p", "5",
                 "-n", "3", "-q", "--peer", "fake", "--peer-program", program},
                more);
}

Arguments ops(const std::string& program, const Arguments& more = {}) {
    return with({"bench", "ops", "-m", tiny_model(), "--device", "cpu", "-t", "1", "-r", "2",
                 "--op", "add", "-p", "0", "-q", "--peer", "fake", "--peer-program", program},
                more);
}

TEST(Peers, are_timed_in_turns_with_ratios) {
    const Result result = run(bench(fake_peer("fair"), {"-o", "json", "-B", "1,2", "-d", "4"}));
    ASSERT_EQ(result.status, 0) << result.err;
    const Json json = Json::parse(result.out);
    ASSERT_EQ(json.size(), 3u);
    for (const Json& one : json) {
        ASSERT_EQ(one["peers"].size(), 1u);
        const Json& peer = one["peers"][0];
        EXPECT_EQ(peer["peer"], "fake");
        EXPECT_EQ(peer["about"]["version"], "1.2");
        EXPECT_EQ(peer["about"]["weights"], "imagined");
        EXPECT_EQ(peer["samples_ns"], Json({2000000, 2000000, 2000000})) << "none of the warm-up";
        const int64_t n_tokens = one["n_prompt"].get<int64_t>() +
                                 one["n_gen"].get<int64_t>() * one["n_parallel"].get<int64_t>();
        EXPECT_DOUBLE_EQ(peer["median_ts"], static_cast<double>(n_tokens) * 500);
        const double median_ns = 2e6 / peer["ridge_times_as_fast"].get<double>();
        std::vector<double> ns = one["samples_ns"];
        std::sort(ns.begin(), ns.end());
        EXPECT_NEAR(median_ns, ns[1], 1e-6 * ns[1]) << "where one side does not vary";
    }
}

// What it is asked: the same tokens at the same places, as often, on as many threads.
TEST(Peers, get_the_same_work) {
    const Result result = run(bench(fake_peer("asked"), {"-o", "json", "-B", "2", "-d", "4"}));
    ASSERT_EQ(result.status, 0) << result.err;
    const std::vector<Json> requests = requests_of("asked");
    ASSERT_EQ(requests.size(), 2u + 2 * (1 + 1 + 3));  // fill, warm-up and samples of two tests
    EXPECT_EQ(requests[0]["peer"], "fake");
    EXPECT_EQ(requests[0]["n_threads"], 1);
    EXPECT_TRUE(requests[0]["cpus"].is_null());
    EXPECT_EQ(requests[1]["path"], tiny_model());
    EXPECT_EQ(requests[1]["device"], "cpu");
    EXPECT_EQ(requests[1]["n_positions"], Json({9, 7})) << "of the prompt, and of the two";
    const Json& prompt = requests[3];
    EXPECT_EQ(prompt["n_depth"], 4);
    EXPECT_EQ(prompt["prompt"].size(), 5u);
    EXPECT_EQ(prompt["n_gen"], 0);
    EXPECT_EQ(requests[7]["tokens"].size(), 2u);
    EXPECT_EQ(requests[7]["tokens"][0].size(), 4u);
    EXPECT_EQ(requests[7]["tokens"][0], requests[2]["tokens"][0]);
    EXPECT_NE(requests[7]["tokens"][0], requests[7]["tokens"][1]);
    const Json& gen = requests[8];
    EXPECT_EQ(gen["prompt"].size(), 0u);
    EXPECT_EQ(gen["first"].size(), 2u);
    EXPECT_EQ(gen["n_gen"], 3);
    EXPECT_EQ(gen["first"][0], prompt["prompt"][0]) << "the same position";
}

TEST(Peers, stand_in_the_table_and_say_what_they_are) {
    const Result result = run(bench(fake_peer("shown")));
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("Ridge is"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("| fake "), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("fake: Fake 1.2; weights: imagined; draws no token."),
              std::string::npos)
        << result.out;
    EXPECT_NE(result.out.find("pp5: fake draws another token than Ridge"), std::string::npos)
        << "token 0 is none that is probable: " << result.out;
}

TEST(Peers, that_are_pinned_get_the_cores_that_ridge_has) {
    const Result result = run(bench(fake_peer("pinned"), {"--pin"}));
    if (result.status != 0) GTEST_SKIP() << result.err;  // where nothing can be pinned
    EXPECT_EQ(requests_of("pinned")[0]["cpus"].size(), 1u);
}

TEST(Peers, are_drawn_beside_ridge) {
    const std::string path = scratch_folder() + "/peers.svg";
    const Result result = run(bench(fake_peer("drawn"), {"-d", "0,4", "--plot", path}));
    if (result.err.find("gnuplot") != std::string::npos) GTEST_SKIP() << result.err;
    ASSERT_EQ(result.status, 0) << result.err;
    std::ifstream file(path);
    const std::string svg(std::istreambuf_iterator<char>(file), {});
    EXPECT_NE(svg.find("tg3 fake"), std::string::npos);
}

// One line, at once where it can be known before anything is timed.
TEST(Peers, that_are_missing_say_so_in_one_line) {
    expect_error({"bench", "-m", tiny_model(), "--peer", "other"}, 2,
                 "--peer \"other\": expected one of llama.cpp, torch");
    expect_error({"bench", "-m", tiny_model(), "--peer", "jax"}, 2, "--peer \"jax\"");
    expect_error({"bench", "-m", "synth:tiny-llama3:Q4_0", "--peer", "fake", "--peer-program",
                  fake_peer("synth")},
                 2, "it reads files, expected one in place of synth:tiny-llama3:Q4_0");
    expect_error({"bench", "-m", tiny_model(), "--peer", "torch", "--peer-folder", "/absent"}, 1,
                 "no /absent/torch_peer.py");
    expect_error({"bench", "-m", tiny_model(), "--peer", "torch,mlx", "--peer-program", "x"}, 2,
                 "--peer-program: expected one --peer");
    expect_error(bench("/absent/peer"), 1, "--peer fake: no program /absent/peer");
    const std::string script = write_scratch("interpreted", "#! /absent/python -u\n");
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    expect_error(bench(script), 1,
                 script + " is there, but not /absent/python, which its first line names");
    expect_error({"bench", "-m", tiny_model(), "--peer-program", "x"}, 2, "--peer");
    expect_error({"bench", "ops", "-m", tiny_model(), "--peer", "llama.cpp"}, 2,
                 "expected one of torch, torch.compile, jax, mlx");
}

TEST(Peers, that_fail_are_one_line) {
    const struct {
        const char *request, *instead, *said;
    } faults[] = {
        {"hello", "echo 'no module named x' >&2; exit 3",
         "--peer fake: ended with status 3: no module named x"},
        {"hello", R"(echo '{"error":"needs x, as of: pip install x"}')",
         "--peer fake: needs x, as of: pip install x"},
        {"model", R"(echo '{"error":"cannot read\u001b[31m it"}')", "--peer fake: cannot read"},
        {"test", "kill -9 $$", "--peer fake: ended by signal 9"},
        {"test", "sleep 100", "--peer fake: no answer within 1 s"},
        {"test", "echo fast", "--peer fake: its answer is fast, expected an object of JSON"},
        {"test", "printf 'a\\033[31mb\\n'", "--peer fake: its answer is a\\x1b[31mb, expected"},
        {"test", "head -c 9999 /dev/zero | tr '\\0' x; echo", "xxxxxxxx..., expected an object"},
        {"test", "echo", "--peer fake: its answer is an empty line, expected an object"},
        {"test", "echo 17", "--peer fake: its answer is 17, expected an object"},
        {"test", "echo '{}'", "--peer fake: it took no ns, expected a number above 0"},
        {"test", R"(echo '{"ns":-5}')", "it took -5 ns, expected a number above 0"},
        {"test", R"(echo '{"ns":"5"}')", "it took \"5\" ns, expected a number above 0"},
        {"test", R"(echo '{"ns":1e999}')", R"(--peer fake: its answer is {"ns":1e999}, expected)"},
    };
    for (const auto& fault : faults) {
        SCOPED_TRACE(fault.instead);
        const Timer timer;
        const bool hangs = std::string(fault.instead).starts_with("sleep");
        const Result result = run(bench(fake_peer("fault", fault.request, fault.instead),
                                        {"--peer-time-limit", hangs ? "1" : "60"}));
        EXPECT_EQ(result.status, 1);
        expect_line(result.err, fault.said);
        EXPECT_LT(timer.elapsed_ms(), 50'000);
    }
}

// What had been measured stays, and is whole.
TEST(Peers, that_die_later_leave_the_results_before) {
    const std::string instead =
        R"(case $line in *'"n_gen":3'*) exit 9;; *) echo '{"ns":7}';; esac)";
    const Result result = run(bench(fake_peer("late", "test", instead), {"-o", "json"}));
    EXPECT_EQ(result.status, 1);
    expect_line(result.err, "--peer fake: ended with status 9");
    const Json json = Json::parse(result.out);
    ASSERT_EQ(json.size(), 1u);
    EXPECT_EQ(json[0]["n_prompt"], 5);
}

TEST(Peers, end_with_ctrl_c) {
    Setting setting;
    setting.interrupt_when = [] {
        for (const Json& request : requests_of("endless")) {
            if (request["request"] == "test") return true;
        }
        return false;
    };
    const Timer timer;
    const Result result = run(bench(fake_peer("endless", "test", "sleep 100")), setting);
    EXPECT_EQ(result.status, 130);
    EXPECT_LT(timer.elapsed_ms(), 50'000);
}

TEST(Peers, run_operators_too) {
    const Result result = run(ops(fake_peer("operator"), {"--json"}));
    ASSERT_EQ(result.status, 0) << result.err;
    const Json json = Json::parse(result.out);
    EXPECT_EQ(json["peers"]["fake"]["name"], "Fake");
    const Json& one = json["operators"][0];
    const Json& peer = one["peers"][0];
    EXPECT_EQ(peer["variant"], "thin air");
    EXPECT_EQ(peer["bytes"], 1000);
    EXPECT_EQ(peer["samples_ns"], Json({1e9, 1e9}));
    EXPECT_GT(peer["ridge_times_as_fast"], 1000) << "it says a second";
    const std::vector<Json> requests = requests_of("operator");
    EXPECT_EQ(requests[1]["op"], "add");
    EXPECT_EQ(requests[1]["shape"], one["shape"]);
    const Result table = run(ops(fake_peer("operator")));
    EXPECT_NE(table.out.find("fake (thin air)"), std::string::npos) << table.out;
}

TEST(Peers, whose_operators_are_others_are_refused) {
    expect_error(ops(fake_peer("wrong", "op", R"(echo '{"bytes":1,"relative_l2":0.5}')")), 1,
                 "its result is off by 0.5 (relative L2), expected 0.05 or less");
    expect_error(ops(fake_peer("silent", "op", R"(echo '{"bytes":1}')")), 1,
                 "add: 1 rows x 256: it does not say relative_l2");
    expect_error(ops(fake_peer("vague", "op", R"(echo '{"relative_l2":"small"}')")), 1,
                 "its relative_l2 is \"small\", expected a number");
    expect_error(ops(fake_peer("numbered", "op", R"(echo '{"unfit":3}')")), 1,
                 "its unfit is 3, expected a string");
    const Result unfit =
        run(ops(fake_peer("unfit", "op", R"(echo '{"unfit":"add: has no such operator"}')")));
    EXPECT_EQ(unfit.status, 0) << unfit.err;
    EXPECT_NE(unfit.out.find("add: has no such operator"), std::string::npos) << unfit.out;
}

}  // namespace
}  // namespace ridge::cli
