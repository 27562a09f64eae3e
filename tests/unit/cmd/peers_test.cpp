#include "cmd/peers.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "cmd/bench_ops_report.h"
#include "cmd/round_ratio.h"

namespace ridge {
namespace {

// A round in which the machine was slow counts as the others do.
TEST(RoundRatio, compares_samples_of_one_round) {
    const RoundRatio ratio = ratio_of({200, 1000, 330, 180, 240}, {100, 500, 110, 100, 100});
    EXPECT_DOUBLE_EQ(ratio.median, 2);
    EXPECT_NEAR(ratio.spread, 0.2, 1e-12) << "of 0, 0, 1, 0.2 and 0.4";
    EXPECT_DOUBLE_EQ(ratio_of({30}, {10}).median, 3);
    EXPECT_DOUBLE_EQ(ratio_of({30}, {10}).spread, 0);
}

TEST(Peers, have_titles_of_what_they_say) {
    EXPECT_EQ(peer_title(Json::parse(R"({"name":"PyTorch","version":"2.15.0"})")),
              "PyTorch 2.15.0");
    EXPECT_EQ(peer_title(Json::parse(R"({"version":3,"name":"X"})")), "X");
    EXPECT_EQ(peer_title(Json::object()), "");
}

std::vector<CaseResult> some_results() {
    Case c;
    c.op = Op::kAdd, c.n_rows = 2, c.d_in = 8, c.name = "add: 2 rows x 8";
    c.bytes = 1000, c.flops = 500;
    CaseResult result{c, {}, {}};
    result.results.push_back({"plain", "", {400, 420, 380}});
    result.results.push_back({"quads", "", {100, 110, 90}});
    result.results.push_back({"quads", "avx2", {200, 200, 200}});
    result.peers.push_back({"other", "bf16", "", 500, 0.01, {250, 220, 270}});
    result.peers.push_back({"third", "", "has no such operator", 0, 0, {}});
    return {result};
}

TEST(OpsReport, puts_peers_and_controls_below_the_kernels) {
    EXPECT_EQ(fastest_of(some_results()[0]).checkpoint, "quads");
    const std::string table = ops_table(some_results());
    EXPECT_NE(table.find("| quads on avx2 "), std::string::npos) << table;
    EXPECT_NE(table.find("| other (bf16) "), std::string::npos) << table;
    EXPECT_NE(table.find("x 2.50 ± 0.50"), std::string::npos) << table;
    EXPECT_EQ(table.find("third"), std::string::npos) << "it did not run: " << table;
    std::vector<CaseResult> alone = some_results();
    alone[0].peers.clear();
    EXPECT_EQ(ops_table(alone).find("Ridge is"), std::string::npos);
}

TEST(OpsReport, has_peers_in_json) {
    const Json json = ops_json(some_results());
    ASSERT_EQ(json.size(), 1u);
    const Json& checkpoints = json[0]["checkpoints"];
    ASSERT_EQ(checkpoints.size(), 3u);
    EXPECT_DOUBLE_EQ(checkpoints[1]["times_plain"], 4);
    EXPECT_FALSE(checkpoints[1].contains("isa"));
    EXPECT_EQ(checkpoints[2]["isa"], "avx2");
    const Json& peers = json[0]["peers"];
    ASSERT_EQ(peers.size(), 2u);
    EXPECT_DOUBLE_EQ(peers[0]["gbps"], 2) << "of its own bytes";
    EXPECT_DOUBLE_EQ(peers[0]["gflops"], 2) << "of the case's flops";
    EXPECT_DOUBLE_EQ(peers[0]["ridge_times_as_fast"], 2.5);
    EXPECT_EQ(peers[1], Json::parse(R"({"peer":"third","unfit":"has no such operator"})"));
}

}  // namespace
}  // namespace ridge
