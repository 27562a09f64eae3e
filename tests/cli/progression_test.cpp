#include <gtest/gtest.h>

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
            EXPECT_GT(test["step"]["n_dispatches"], 0);
            EXPECT_GT(test["step"]["activation_bytes"], 0);
        }
    }
    EXPECT_LT(json["checkpoints"][2]["tests"][1]["step"]["activation_bytes"],
              json["checkpoints"][1]["tests"][1]["step"]["activation_bytes"])
        << "fused stages hand on less";
}

TEST(Progression, holds_kernels_against_the_reference_first) {
    const Result result =
        run(progression({"-r", "1", "-p", "0", "--checkpoint", "plain,row_ops", "-q"}));
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("| row_ops    | correct |"), std::string::npos) << result.out;
}

TEST(Progression, refuses_what_it_cannot_do) {
    expect_error({"bench", "progression"}, 2, "bench progression: no model: give -m MODEL");
    expect_error(progression({"--checkpoint", "plain"}), 2,
                 "--checkpoint plain: expected two or more");
    expect_error(progression({"--checkpoint", "plain,fast"}), 2,
                 "--checkpoint \"fast\": expected one of");
    expect_error(progression({"-n", "0", "-p", "0"}), 2, "nothing to time");
    expect_error({"bench", "progression", "-m", "/nowhere.gguf"}, 1, "/nowhere.gguf");
}

}  // namespace
}  // namespace ridge::cli
