#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/json.h"
#include "cases/random.h"
#include "cmd/sign_test.h"
#include "cmd/tune_jobs.h"
#include "cmd/tune_report.h"
#include "cmd/tune_search.h"
#include "engine/model_source.h"
#include "support/seed.h"

namespace ridge {
namespace {

// A machine that takes `ns` for a candidate, give or take `noise` of it, and counts its samples.
class FakeTimer {
  public:
    FakeTimer(std::vector<double> ns, double noise) : ns_(std::move(ns)), noise_(noise) {}

    TimeSample timer() {
        return [this](size_t candidate) {
            n_samples[candidate]++;
            return ns_[candidate] * (1 + noise_ * random_.normal());
        };
    }
    std::map<size_t, int> n_samples;

  private:
    const std::vector<double> ns_;
    const double noise_;
    Random random_{test_seed(), 0};
};

TEST(TuneSearch, finds_the_fastest_and_times_the_slow_ones_less) {
    FakeTimer fake({100, 99, 40, 120, 200, 98, 101, 80}, 0.02);
    EXPECT_EQ(fastest_of(8, fake.timer()), 2u);
    EXPECT_LT(fake.n_samples[4], fake.n_samples[2]) << "losers are dropped early";
    EXPECT_EQ(fake.n_samples[0], fake.n_samples[2]) << "the incumbent is there to the end";
}

TEST(TuneSearch, keeps_the_incumbent_where_nothing_is_faster) {
    FakeTimer fake({50, 99, 140, 120}, 0.02);
    EXPECT_EQ(fastest_of(4, fake.timer()), 0u);
    FakeTimer alone({50}, 0);
    EXPECT_EQ(fastest_of(1, alone.timer()), 0u);
    EXPECT_TRUE(alone.n_samples.empty());
    FakeTimer pair({50, 40}, 0);
    EXPECT_EQ(fastest_of(2, pair.timer()), 1u);
}

TEST(TuneSearch, times_candidates_in_order_and_backwards_in_turns) {
    std::vector<size_t> order;
    fastest_of(3, [&](size_t candidate) {
        order.push_back(candidate);
        return 100.0 - static_cast<double>(candidate);
    });
    const std::vector<size_t> first(order.begin(), order.begin() + 9);
    EXPECT_EQ(first, (std::vector<size_t>{0, 1, 2, 2, 1, 0, 0, 1, 2}));
}

TEST(TuneSearch, times_several_in_one_go_each_with_a_winner_of_its_own) {
    const std::vector<std::vector<double>> ns = {{50, 40, 60, 70}, {9, 8, 7, 6}, {1, 2, 3, 4}};
    int n_samples = 0;
    const TimeSamples time = [&](const std::vector<size_t>& candidates) {
        n_samples++;
        std::vector<double> times;
        for (size_t i = 0; i < ns.size(); i++) times.push_back(ns[i][candidates[i]]);
        return times;
    };
    EXPECT_EQ(fastest_of_each(3, 4, time), (std::vector<size_t>{1, 3, 0}));
    const int n_of_three = std::exchange(n_samples, 0);
    fastest_of(4, [&](size_t candidate) {
        n_samples++;
        return ns[0][candidate];
    });
    EXPECT_EQ(n_samples, n_of_three) << "no more than one alone takes";
    EXPECT_TRUE(fastest_of_each(0, 4, time).empty());

    const std::vector<Duel> duels = run_duels(3, time);
    ASSERT_EQ(duels.size(), 3u);
    EXPECT_TRUE(duels[0].is_win());
    EXPECT_TRUE(duels[1].is_win());
    EXPECT_TRUE(duels[2].is_loss());
    EXPECT_EQ(duels[0].before, std::vector<double>(kEarlyRounds, 50));
    EXPECT_EQ(duels[0].after, std::vector<double>(kEarlyRounds, 40));
}

TEST(TuneSearch, a_duel_that_is_left_open_is_twice_as_long) {
    // Faster by a fiftieth in three rounds of four.
    int n = 0;
    const Duel duel = run_duel([&](size_t candidate) {
        if (candidate == 0) return 100.0;
        return n++ % 4 == 0 ? 101.0 : 98.0;
    });
    EXPECT_EQ(duel.before.size(), 2u * kDuelRounds);
    EXPECT_EQ(duel.after.size(), duel.before.size());
}

TEST(TuneSearch, a_clear_gain_wins_early_and_a_clear_loss_ends_early) {
    FakeTimer fast({100, 80}, 0.01);
    const Duel win = run_duel(fast.timer());
    EXPECT_TRUE(win.is_win());
    EXPECT_FALSE(win.is_loss());
    EXPECT_EQ(win.before.size(), static_cast<size_t>(kEarlyRounds));
    EXPECT_NEAR(win.ratio(), 1.25, 0.05);
    FakeTimer slow({100, 130}, 0.01);
    const Duel loss = run_duel(slow.timer());
    EXPECT_FALSE(loss.is_win());
    EXPECT_TRUE(loss.is_loss());
    EXPECT_EQ(loss.n_faster(), 0);
    EXPECT_EQ(loss.before.size(), static_cast<size_t>(kEarlyRounds));
}

TEST(TuneSearch, less_than_a_hundredth_is_no_win_however_sure) {
    const Duel duel{std::vector<double>(kDuelRounds, 1000), std::vector<double>(kDuelRounds, 995)};
    EXPECT_EQ(duel.n_faster(), kDuelRounds);
    EXPECT_FALSE(duel.is_win());
    EXPECT_FALSE(duel.is_loss());
}

TEST(TuneSearch, a_gain_within_the_noise_is_no_win) {
    // Twice as fast in eleven rounds of fifteen, slower in four: by chance once in seventeen times.
    Duel duel{std::vector<double>(15, 100), std::vector<double>(15, 50)};
    for (size_t i = 0; i < 4; i++) duel.after[4 * i] = 101;
    EXPECT_EQ(duel.n_faster(), 11);
    EXPECT_FALSE(duel.is_win());
    EXPECT_TRUE(duel.is_open()) << "more rounds may tell";
    EXPECT_LT(chance_of_heads(15, 13), 0.01);
    EXPECT_GT(chance_of_heads(15, 12), 0.01);
    EXPECT_DOUBLE_EQ(chance_of_heads(5, 5), 1.0 / 32);
    EXPECT_DOUBLE_EQ(chance_of_heads(3, 0), 1);
}

// Other programs made half of the rounds as fast again, a few slower: chance alone would hardly
// give so many that are faster, and yet nothing is known of by how much.
TEST(TuneSearch, a_gain_that_is_less_than_its_spread_is_no_win) {
    Duel duel{std::vector<double>(30, 103), std::vector<double>(30, 100)};
    for (size_t i = 0; i < 12; i++) duel.before[i] = 170;
    for (size_t i = 12; i < 19; i++) duel.before[i] = 40;
    EXPECT_EQ(duel.n_faster(), 23);
    EXPECT_LT(chance_of_heads(30, 23), 0.01);
    EXPECT_DOUBLE_EQ(duel.ratio(), 1.03);
    EXPECT_GT(duel.spread(), 0.6);
    EXPECT_FALSE(duel.is_win());
}

// Of machines on which all candidates take as long, seldom one says that another was faster.
TEST(TuneSearch, equals_seldom_win) {
    Random random(test_seed(), 1);
    int n_wins = 0;
    constexpr int kMachines = 400;
    for (int i = 0; i < kMachines; i++) {
        const auto same = [&](size_t) { return 100 * (1 + 0.1 * random.normal()); };
        n_wins += run_duel(same).is_win() ? 1 : 0;
    }
    EXPECT_LT(n_wins, kMachines / 20) << "RIDGE_SEED=" << test_seed();
}

TunePlan plan_of(const std::string& model, const TuneSteps& steps, std::string_view backend,
                 std::string_view isa) {
    const ModelFile file = open_model_header(model);
    const Config config = read_config(file);
    return plan_tuning(config, read_weights(file, config), steps, backend, isa);
}

TuneSteps usual_steps() {
    TuneSteps steps;
    steps.n_depth = {128, 1000}, steps.n_parallel = {1, 8}, steps.n_prompt = {32, 256};
    return steps;
}

TEST(TuneJobs, have_every_call_of_the_steps_once_the_largest_first) {
    const TunePlan plan = plan_of("synth:smollm2-135m:Q4_0", usual_steps(), "cpu", "avx512");
    int n_one_row = 0, n_several = 0, n_few = 0, n_many = 0;
    for (const MatmulJob& job : plan.matmuls) {
        for (const MatmulJob& other : plan.matmuls) {
            EXPECT_TRUE(&job == &other || job.call != other.call);
        }
        if (job.call.row_class == RowClass::kDecode) {
            (job.call.size == 1 ? n_one_row : n_several)++;
            ASSERT_EQ(job.trials.size(), 2u);
            EXPECT_EQ(job.trials[0].parameter, "ahead_kib");
        } else if (job.call.size == kFewPrompts) {
            n_few++;
            ASSERT_FALSE(job.few_rows.empty());
            EXPECT_EQ(job.few_rows.front().n_rows, 1);
            EXPECT_LT(job.few_rows.back().n_rows, kFewPromptRows);
            EXPECT_TRUE(std::is_sorted(job.few_rows.begin(), job.few_rows.end(),
                                       [](auto& a, auto& b) { return a.n_rows < b.n_rows; }));
            for (const Case& c : job.few_rows) EXPECT_EQ(c.row_class, RowClass::kPrompt);
        } else {
            n_many++;
        }
        EXPECT_EQ(job.cases.size(), 1u) << "of both depths the same";
    }
    EXPECT_EQ(n_one_row, 5) << "QKV, O, gate and up, down, head";
    EXPECT_EQ(n_several, n_one_row);
    EXPECT_EQ(n_few, 4) << "the head has logits of one row";
    EXPECT_EQ(n_many, n_few);
    EXPECT_EQ(plan.matmuls.front().call.weights[0].d_out, 49152) << "the head";
    std::set<int> sizes;
    for (const AttentionJob& job : plan.attentions) {
        if (job.call.row_class == RowClass::kDecode) sizes.insert(job.call.size);
    }
    EXPECT_EQ(sizes, (std::set<int>{0, 2, 3, 5})) << "1 and 4 blocks, of 1 and of 8 sequences";
}

TEST(TuneJobs, leave_out_what_means_nothing_to_the_machine) {
    for (const MatmulJob& job :
         plan_of("synth:tiny-llama3:BF16", usual_steps(), "cpu", "avx512").matmuls) {
        EXPECT_TRUE(job.few_rows.empty()) << "sums of floats have another order";
        for (const TuneTrial& trial : job.trials) EXPECT_NE(trial.parameter, "panels");
    }
    for (const MatmulJob& job :
         plan_of("synth:tiny-llama3:Q4_0", usual_steps(), "cpu", "amx").matmuls) {
        EXPECT_TRUE(job.few_rows.empty()) << "tiles round other operands";
        for (const TuneTrial& trial : job.trials) EXPECT_NE(trial.parameter, "slice_blocks");
    }
    const TunePlan cuda = plan_of("synth:tiny-llama3:Q4_0", usual_steps(), "cuda", "");
    ASSERT_FALSE(cuda.matmuls.empty());
    for (const MatmulJob& job : cuda.matmuls) {
        EXPECT_EQ(job.call.row_class, RowClass::kPrompt);
        ASSERT_EQ(job.trials.size(), 1u);
        EXPECT_EQ(job.trials[0].parameter, "way");
    }
    ASSERT_EQ(cuda.attentions.size(), 1u) << "one threshold for prompts of any size";
    EXPECT_EQ(cuda.attentions[0].cases.size(), 2u);
}

// Every value that is tried is one that a file may have.
template <class Job>
void check_values(const std::vector<Job>& jobs) {
    for (const Job& job : jobs) {
        for (const TuneTrial& trial : job.trials) {
            const auto parameters =
                parameters_of(static_cast<const typename Job::Values*>(nullptr));
            const auto parameter =
                std::find_if(parameters.begin(), parameters.end(),
                             [&](const auto& p) { return p.name == trial.parameter; });
            ASSERT_NE(parameter, parameters.end());
            for (int value : trial.values) {
                EXPECT_GE(value, parameter->min) << trial.parameter;
                EXPECT_LE(value, parameter->max) << trial.parameter;
                EXPECT_EQ(value % parameter->multiple, 0) << trial.parameter;
            }
        }
    }
}

TEST(TuneJobs, try_what_a_file_may_hold) {
    for (const char* isa : {"avx512", "amx"}) {
        const TunePlan plan = plan_of("synth:tiny-llama3:Q4_0", usual_steps(), "cpu", isa);
        check_values(plan.matmuls), check_values(plan.attentions);
    }
    const TunePlan plan = plan_of("synth:tiny-llama3:Q4_0", usual_steps(), "cuda", "");
    check_values(plan.matmuls), check_values(plan.attentions);
}

TEST(TuneReport, shows_each_case_before_and_after) {
    TunedCall call{"matmul", "matmul: 8 x Q4_0 8, 1 row", "ahead_kib 4", {}};
    call.cases.push_back({"matmul: 1 rows x 8 -> 8 Q4_0", "ahead_kib 4", 200, 100, {{}, {}}});
    call.cases.back().duel = {{200, 200, 200}, {100, 100, 100}};
    TunedCall kept{"attention", "attention", "", {}};
    kept.cases.push_back({"attention: x, d1 of 9, d1 of 9", "", 70, 70, {}});
    const std::string table = tune_table({call, kept});
    EXPECT_NE(table.find("| ahead_kib 4 |       0.20 |      0.10 | 2.00 ± 0.00 |    3 of 3 |"),
              std::string::npos)
        << table;
    EXPECT_NE(table.find("| attention: x, 2 x d1 of 9"), std::string::npos) << table;
    EXPECT_NE(table.find("| kept "), std::string::npos) << table;
    const Json json = tune_json({call, kept}, Json::object());
    EXPECT_EQ(json["calls"][0]["cases"][0]["before_samples_ns"].size(), 3u);
    EXPECT_EQ(json["calls"][0]["cases"][0]["times"], 2);
    EXPECT_TRUE(json["calls"][1]["cases"][0]["times"].is_null());
    EXPECT_EQ(json["calls"][1]["chosen"], "");
}

TEST(TuneReport, names_neighbours_that_are_alike_once) {
    EXPECT_EQ(short_name("a: b, c, c, c, d"), "a: b, 3 x c, d");
    EXPECT_EQ(short_name("c, c"), "2 x c");
    EXPECT_EQ(short_name("a"), "a");
    EXPECT_EQ(short_name(""), "");
    EXPECT_EQ(short_name("a, , b"), "a, , b");
}

}  // namespace
}  // namespace ridge
