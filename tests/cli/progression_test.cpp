#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/checks.h"
#include "cli/program.h"

namespace ridge::cli {
namespace {

using Json = nlohmann::ordered_json;

Arguments progression(const Arguments& more) {
    return with({"bench", "progression", "-m", tiny_model(), "--device", "cpu", "-t", "1", "-p",
                 "8", "-n", "4"},
                more);
}

TEST(Progression, times_every_checkpoint_in_every_round) {
    const Result result = run(progression(
        {"-r", "2", "--no-verify", "--checkpoint", "fused,plain,matvec", "--json", "-q"}));
    ASSERT_EQ(result.status, 0) << result.err;
    const Json json = Json::parse(result.out);
    ASSERT_EQ(json["checkpoints"].size(), 3u);
    EXPECT_EQ(json["model_filename"], tiny_model());
    const char* expected[] = {"plain", "matvec", "fused"};
    for (size_t i = 0; i < 3; i++) {
        const Json& one = json["checkpoints"][i];
        EXPECT_EQ(one["checkpoint"], expected[i]) << "the list's order, not the asked one";
        EXPECT_EQ(one["verified"], false);
        ASSERT_EQ(one["tests"].size(), 2u);
        EXPECT_EQ(one["tests"][0]["test"], "pp8");
        EXPECT_EQ(one["tests"][1]["test"], "tg4");
        for (const Json& test : one["tests"]) {
            EXPECT_EQ(test["samples_ts"].size(), 2u);
            EXPECT_GT(test["steps"][0]["n_dispatches"], 0);
            EXPECT_GT(test["steps"][0]["activation_bytes"], 0);
        }
    }
    EXPECT_LT(json["checkpoints"][2]["tests"][1]["steps"][0]["activation_bytes"],
              json["checkpoints"][1]["tests"][1]["steps"][0]["activation_bytes"])
        << "fused stages hand on less";
}

TEST(Progression, holds_kernels_against_the_reference_first) {
    const Result result =
        run(progression({"-r", "1", "-p", "0", "--checkpoint", "plain,row_ops", "-q"}));
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("| row_ops    | correct |"), std::string::npos) << result.out;
}

std::string bytes_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

// A process of this test that has all of these among its arguments; 0: none.
pid_t process_with(const Arguments& wanted) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const std::string arguments = bytes_of(entry.path() / "cmdline");
        const bool has_all = std::all_of(wanted.begin(), wanted.end(), [&](const auto& argument) {
            return arguments.find(argument + '\0') != std::string::npos;
        });
        const std::string home = "HOME=" + scratch_folder() + '\0';
        if (has_all && bytes_of(entry.path() / "environ").find(home) != std::string::npos) {
            return std::stoi(entry.path().filename());
        }
    }
    return 0;
}

// A trace of a checkpoint comes behind its time in the same round.
TEST(Progression, that_a_signal_ends_gives_what_it_has) {
    Setting setting;
    setting.signal = SIGTERM;
    setting.interrupt_when = [] { return process_with({"trace", "matvec"}) != 0; };
    const Arguments arguments =
        progression({"-r", "1000", "--no-verify", "--checkpoint", "plain,matvec", "-q"});
    Result result = run(with(arguments, {"--json"}), setting);
    EXPECT_EQ(result.status, 143) << result.err;
    EXPECT_EQ(result.err, "");
    const Json json = Json::parse(result.out);
    EXPECT_EQ(json["complete"], false);
    EXPECT_EQ(json["n_rounds"], 1000);
    for (const Json& one : json["checkpoints"]) {
        EXPECT_GE(one["n_rounds"], 1);
        EXPECT_LT(one["n_rounds"], 1000);
        for (const Json& test : one["tests"]) {
            EXPECT_EQ(test["samples_ts"].size(), one["n_rounds"].get<size_t>());
        }
    }
    setting.signal = SIGINT;
    result = run(arguments, setting);
    EXPECT_EQ(result.status, 130) << result.err;
    EXPECT_NE(result.out.find("\nIncomplete: of 1000 rounds plain "), std::string::npos)
        << result.out;
}

TEST(Progression, does_not_take_a_process_that_was_killed_for_a_wrong_kernel) {
    Setting setting;
    setting.interrupt_when = [] {
        if (const pid_t verify = process_with({"verify"}); verify != 0) kill(verify, SIGKILL);
        return false;
    };
    expect_error(progression({"-r", "1", "-q"}), 1, "ended with status 137", setting);
}

TEST(Progression, draws_what_was_gained) {
    const std::string path = scratch_folder() + "/gains.svg";
    const Result result = run(
        progression({"-r", "1", "--no-verify", "--checkpoint", "plain,matvec", "--plot", path}));
    if (result.err.find("gnuplot, which is not there") != std::string::npos) GTEST_SKIP();
    ASSERT_EQ(result.status, 0) << result.err;
    std::ifstream file(path);
    const std::string svg{std::istreambuf_iterator<char>(file), {}};
    for (const char* part : {"<svg", "What each checkpoint gains", "matvec", "pp8: "}) {
        EXPECT_NE(svg.find(part), std::string::npos) << part;
    }
}

TEST(Progression, refuses_what_it_cannot_do) {
    expect_error({"bench", "progression"}, 2, "bench progression: no model: give -m MODEL");
    expect_error(progression({"--checkpoint", "plain"}), 2,
                 "--checkpoint plain: expected two or more");
    expect_error(progression({"--checkpoint", "plain,fast"}), 2,
                 "--checkpoint \"fast\": expected one of");
    expect_error(progression({"-n", "0", "-p", "0"}), 2, "nothing to time");
    expect_error({"bench", "progression", "-m", "/nowhere.gguf"}, 1, "/nowhere.gguf");
    expect_error(progression({"--plot", "gains.jpg"}), 2,
                 "expected a name that ends in .svg or .png");
}

}  // namespace
}  // namespace ridge::cli
