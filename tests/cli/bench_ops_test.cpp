#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "cli/checks.h"
#include "cli/program.h"

namespace ridge::cli {
namespace {

using Json = nlohmann::ordered_json;

Arguments bench_ops(const Arguments& more) {
    return with({"bench", "ops", "-m", tiny_model(), "--device", "cpu", "-t", "2", "-r", "1"},
                more);
}

TEST(BenchOps, times_every_checkpoint_that_has_a_kernel) {
    const Result result =
        run(bench_ops({"--op", "rms_norm,swiglu,attention", "-p", "8", "-d", "7", "--json", "-q"}));
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    const Json json = Json::parse(result.out);
    std::set<std::string> ops;
    for (const Json& one : json["operators"]) {
        ops.insert(one["op"].get<std::string>());
        EXPECT_GT(one["bytes"], 0);
        std::set<std::string> checkpoints;
        for (const Json& entry : one["checkpoints"]) {
            EXPECT_TRUE(checkpoints.insert(entry["checkpoint"]).second) << "each once";
            EXPECT_GT(entry["median_ns"], 0);
            EXPECT_EQ(entry["samples_ns"].size(), 1u);
            EXPECT_GT(entry["times_plain"], 0);
        }
        EXPECT_TRUE(checkpoints.contains("plain"));
        EXPECT_GE(checkpoints.size(), 2u) << one["case"];
        EXPECT_FALSE(checkpoints.contains("ref")) << "where it was not asked for";
    }
    EXPECT_EQ(ops, (std::set<std::string>{"rms_norm", "swiglu", "attention"}));
}

TEST(BenchOps, takes_the_shapes_of_the_steps_that_are_asked_for) {
    const Result result = run(bench_ops(
        {"--op", "attention", "--checkpoint", "plain", "-p", "0", "-d", "3,9", "-B", "2", "-q"}));
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("d1 of 4, d1 of 4"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("d1 of 10, d1 of 10"), std::string::npos) << result.out;
    EXPECT_EQ(result.out.find("p1"), std::string::npos) << result.out;
}

// Rows behind positions, each of -p behind each of -d; one row is a decode step's.
TEST(BenchOps, sweeps_attention_over_rows_and_positions) {
    const Result result = run(
        bench_ops({"--sweep", "--checkpoint", "plain", "-p", "1,6", "-d", "0,10", "--json", "-q"}));
    ASSERT_EQ(result.status, 0) << result.err;
    const Json json = Json::parse(result.out);
    std::set<std::pair<int, int>> seen;
    for (const Json& one : json["operators"]) {
        EXPECT_EQ(one["op"], "attention");
        ASSERT_EQ(one["shape"]["sequences"].size(), 1u);
        const Json& sequence = one["shape"]["sequences"][0];
        seen.emplace(sequence["n_rows"], sequence["n_ctx"]);
    }
    EXPECT_EQ(seen, (std::set<std::pair<int, int>>{{1, 1}, {1, 11}, {6, 6}, {6, 16}}));
    expect_error(bench_ops({"--sweep", "--op", "add"}), 2, "--sweep: it is of attention alone");
}

// Beside a kernel stands the same one on lesser instruction sets.
TEST(BenchOps, has_controls) {
    const Result result = run(bench_ops(
        {"--controls", "--op", "rms_norm", "-p", "0", "--checkpoint", "row_ops", "--json", "-q"}));
    ASSERT_EQ(result.status, 0) << result.err;
    const Json json = Json::parse(result.out);
    for (const Json& one : json["operators"]) {
        std::set<std::string> isas;
        for (const Json& entry : one["checkpoints"]) {
            EXPECT_EQ(entry["checkpoint"], "row_ops");
            EXPECT_TRUE(isas.insert(entry.value("isa", json["isa"].get<std::string>())).second);
        }
        EXPECT_TRUE(isas.contains(json["isa"])) << "the one that runs";
        EXPECT_GE(isas.size(), json["isa"] == "scalar" ? 1u : 2u);
    }
}

TEST(BenchOps, refuses_what_it_does_not_know) {
    expect_error({"bench", "ops"}, 2, "bench ops: no model: give -m MODEL");
    expect_error(bench_ops({"--op", "softmax"}), 2, "--op \"softmax\": expected one of embed_rows");
    expect_error(bench_ops({"--checkpoint", "fast"}), 2, "--checkpoint \"fast\": expected one of");
    expect_error(bench_ops({"-p", "0", "-B", "0"}), 2, "nothing to time");
}

}  // namespace
}  // namespace ridge::cli
