#include <gtest/gtest.h>

#include <utility>

#include "base/json.h"
#include "cmd/progression_report.h"

namespace ridge {
namespace {

ProgressionTest test_of(std::vector<double> samples_ts, std::vector<StepFacts::Group> groups) {
    ProgressionTest test;
    test.name = "tg16";
    test.samples_ts = std::move(samples_ts);
    StepFacts facts;
    facts.groups = std::move(groups);
    test.facts.assign(test.samples_ts.size(), facts);
    return test;
}

ProgressionEntry entry_of(std::string checkpoint, ProgressionTest test) {
    ProgressionEntry entry;
    entry.checkpoint = std::move(checkpoint);
    entry.tests.push_back(std::move(test));
    entry.verified = true;
    return entry;
}

const ProgressionTest kBefore =
    test_of({100, 50, 100, 100, 100}, {{"ffn_in", "ffn_in", "plain", 10}});

// A round in which the machine was slow does not count for or against.
TEST(Gain, compares_rates_of_one_round) {
    const Gain gain = gain_of(kBefore, test_of({200, 100, 220, 190, 200}, {}));
    EXPECT_DOUBLE_EQ(gain.median, 2);
    EXPECT_DOUBLE_EQ(gain.spread, 0);
    EXPECT_TRUE(gain.is_clear());
    const Gain noisy = gain_of(kBefore, test_of({80, 55, 140, 110, 150}, {}));
    EXPECT_DOUBLE_EQ(noisy.median, 1.1);
    EXPECT_NEAR(noisy.spread, 0.3, 1e-12);
    EXPECT_FALSE(noisy.is_clear());
    EXPECT_FALSE(noisy.is_loss());
    EXPECT_TRUE(gain_of(kBefore, test_of({90, 45, 90, 99, 80}, {})).is_loss());
}

// By chance five rounds are all faster in one case of 32, seven of eight in 9 of 256.
TEST(Gain, is_clear_where_chance_would_hardly_give_it) {
    auto clear = [](int n_rounds, int n_faster) {
        Gain gain;
        gain.n_rounds = n_rounds, gain.n_faster = n_faster, gain.n_slower = n_rounds - n_faster;
        Gain turned = gain;
        std::swap(turned.n_faster, turned.n_slower);
        EXPECT_EQ(turned.is_loss(), gain.is_clear());
        return gain.is_clear();
    };
    EXPECT_FALSE(clear(1, 1));
    EXPECT_FALSE(clear(4, 4));
    EXPECT_TRUE(clear(5, 5));
    EXPECT_FALSE(clear(5, 4));
    EXPECT_TRUE(clear(8, 7));
    EXPECT_FALSE(clear(8, 6));
    EXPECT_TRUE(clear(100, 59));
    EXPECT_FALSE(clear(100, 58));
}

TEST(Verdict, keeps_what_is_faster_as_an_operator_and_in_the_whole) {
    const ProgressionEntry before = entry_of("plain", kBefore);
    auto verdict = [&](std::vector<double> samples_ts, std::vector<StepFacts::Group> groups) {
        return verdict_of(before, entry_of("fused", test_of(std::move(samples_ts), groups)));
    };
    const std::vector<StepFacts::Group> faster = {{"ffn_in", "ffn_in", "fused", 5}},
                                        slower = {{"ffn_in", "ffn_in", "fused", 12}};
    const std::vector<double> gains = {120, 60, 120, 120, 130};
    EXPECT_EQ(verdict(gains, faster), "keep");
    EXPECT_EQ(verdict(gains, slower), "drop: no gain beyond chance")
        << "the whole gained by something else";
    EXPECT_EQ(verdict({101, 49, 102, 103, 104}, faster), "drop: no gain beyond chance");
    EXPECT_EQ(verdict({90, 45, 90, 90, 90}, faster), "drop: slower in tg16");
    const std::vector<StepFacts::Group> none = {{"ffn_in", "ffn_in", "plain", 5}};
    EXPECT_EQ(verdict(gains, none), "drop: none of its kernels ran");
    EXPECT_EQ(verdict({250}, faster), "unknown: fewer than 5 rounds");
    EXPECT_EQ(verdict({250}, none), "drop: none of its kernels ran");

    ProgressionEntry wrong = entry_of("fused", test_of(gains, faster));
    wrong.fault = "matmul: 1 rows: row 0, column 3";
    EXPECT_EQ(verdict_of(before, wrong), "drop: matmul: 1 rows: row 0, column 3");
}

TEST(Verdict, says_what_a_gain_costs) {
    ProgressionEntry before = entry_of("plain", kBefore);
    before.tests.push_back(kBefore);
    ProgressionEntry entry =
        entry_of("fused", test_of({120, 60, 120, 120, 130}, {{"ffn_in", "ffn_in", "fused", 5}}));
    entry.tests.push_back(test_of({90, 45, 90, 90, 90}, {{"ffn_in", "ffn_in", "fused", 15}}));
    entry.tests[1].name = "pp128";
    EXPECT_EQ(verdict_of(before, entry), "mixed: faster in tg16, slower in pp128");
}

// A fused stage is compared with all that it replaces; an op with the same op.
TEST(OperatorGain, is_of_the_nodes_that_have_its_kernels) {
    const ProgressionTest before = test_of({1}, {{"ffn_in", "matmul", "matvec", 10},
                                                 {"ffn_in", "swiglu", "plain", 4},
                                                 {"attn", "attention", "plain", 50}});
    const ProgressionTest fused =
        test_of({1}, {{"ffn_in", "ffn_in", "fused", 7}, {"attn", "attention", "plain", 70}});
    EXPECT_DOUBLE_EQ(operator_gain(before, fused, "fused").value(), 2);
    EXPECT_FALSE(operator_gain(before, fused, "gemm").has_value());
    const ProgressionTest row_ops = test_of({1}, {{"ffn_in", "matmul", "matvec", 30},
                                                  {"ffn_in", "swiglu", "row_ops", 1},
                                                  {"attn", "attention", "plain", 50}});
    EXPECT_DOUBLE_EQ(operator_gain(before, row_ops, "row_ops").value(), 4);
    ProgressionTest untraced = fused;
    untraced.facts.clear();
    EXPECT_FALSE(operator_gain(before, untraced, "fused").has_value());
}

TEST(Progression, gains_add_up_from_the_first_checkpoint_on) {
    const std::vector<ProgressionEntry> entries = {
        entry_of("plain", kBefore),
        entry_of("matvec", test_of({200, 100, 200, 200, 200}, {{"ffn_in", "ffn_in", "matvec", 5}})),
        entry_of("fused", test_of({300, 150, 300, 300, 300}, {{"ffn_in", "ffn_in", "fused", 4}}))};
    const Json json = progression_json(entries, Json::object(), 5);
    EXPECT_EQ(json["complete"], true);
    EXPECT_DOUBLE_EQ(json["checkpoints"][2]["tests"][0]["gain"], 1.5);
    EXPECT_DOUBLE_EQ(json["checkpoints"][2]["tests"][0]["cumulative_gain"], 3);
    EXPECT_EQ(json["checkpoints"][2]["verdict"], "keep");
    EXPECT_TRUE(json["checkpoints"][0]["verdict"].is_null());
    const std::string table = progression_table(entries, 5);
    EXPECT_EQ(table.find("ncomplete"), std::string::npos) << table;
    EXPECT_NE(table.find("1.50 ± 0.00"), std::string::npos) << table;
    EXPECT_NE(table.find("| fused      | correct | keep"), std::string::npos) << table;
}

// The second of them was to be traced, the third to be timed.
TEST(Progression, that_was_stopped_says_how_many_rounds_each_has) {
    std::vector<ProgressionEntry> entries = {
        entry_of("plain", kBefore),
        entry_of("matvec", test_of({200, 100}, {{"ffn_in", "ffn_in", "matvec", 5}})),
        {"fused", {}, {}, true}};
    entries[1].tests[0].facts.clear();
    const Json json = progression_json(entries, Json::object(), 7);
    EXPECT_EQ(json["complete"], false);
    EXPECT_EQ(json["checkpoints"][1]["n_rounds"], 2);
    EXPECT_DOUBLE_EQ(json["checkpoints"][1]["tests"][0]["gain"], 2);
    EXPECT_EQ(json["checkpoints"][2]["n_rounds"], 0);
    EXPECT_TRUE(json["checkpoints"][2]["tests"].empty());
    const std::string table = progression_table(entries, 7);
    EXPECT_NE(table.find("\nIncomplete: of 7 rounds plain 5, matvec 2, fused 0.\n"),
              std::string::npos)
        << table;
    EXPECT_NE(table.find("| fused      | correct | unknown"), std::string::npos) << table;
}

}  // namespace
}  // namespace ridge
