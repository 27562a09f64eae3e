#include <gtest/gtest.h>

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
