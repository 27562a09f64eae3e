#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ridge {

// What `bench progression` has measured: the checkpoints of one model in turns, each beside the one
// before it.

// A decode or a prompt at one checkpoint, as a trace of its step sees it.
struct StepFacts {
    int64_t n_dispatches = 0;
    double idle_share = 0;
    bool on_device = false;        // dispatches are kernels, and idle is the device
    std::string whole;             // the entry of the whole step, which a trace takes apart
    int64_t activation_bytes = 0;  // rows that kernels hand on to each other
    struct Group {
        std::string stage, node, checkpoint;
        double ns = 0;
    };
    std::vector<Group> groups;
};

// Rates of one test: one a round.
struct ProgressionTest {
    std::string name;                // "pp128", "tg32"
    std::vector<double> samples_ts;  // [round]
    std::vector<StepFacts> facts;    // [round]; empty where a device cannot be traced
};

struct ProgressionEntry {
    std::string checkpoint;
    std::vector<ProgressionTest> tests;  // the same ones in every entry that was timed
    std::string fault;                   // of its kernels against the reference; empty: none
    bool verified = false;               // whether they were held against it at all
};

// How much faster than the entry before it, in the rounds of both: on a shared machine rates of one
// round belong together.
struct Gain {
    double median = 1;
    double spread = 0;  // median of the rounds' distances from it
    int n_rounds = 0, n_faster = 0, n_slower = 0;
    // A sign test: by chance alone so many rounds would be faster in one case of twenty at the
    // most. Of fewer than kLeastRounds none is.
    bool is_clear() const;
    bool is_loss() const;
};
constexpr int kLeastRounds = 5;
Gain gain_of(const ProgressionTest& before, const ProgressionTest& after);

// How much faster the kernels of `checkpoint` are than what did their work in the entry before: the
// same nodes, and where a kernel is a whole stage's all of that stage; the median over the rounds.
// None where none of them ran, or a trace is missing.
std::optional<double> operator_gain(const ProgressionTest& before, const ProgressionTest& after,
                                    const std::string& checkpoint);

// "keep", or "drop: " and why: correct, and in one of the tests faster, its kernels and the whole
// model. "mixed: " where another test is slower. "unknown: " where the rounds are too few.
std::string verdict_of(const ProgressionEntry& before, const ProgressionEntry& entry);

// How often it has been timed.
int64_t n_rounds_of(const ProgressionEntry& entry);

// Of `n_rounds` that were asked for: where an entry has fewer, the run was stopped, and it is said
// how many each has. The first has one at the least. `about` the model and the machine: the fields
// that every benchmark's JSON has.
std::string progression_table(const std::vector<ProgressionEntry>& entries, int64_t n_rounds);
nlohmann::ordered_json progression_json(const std::vector<ProgressionEntry>& entries,
                                        const nlohmann::ordered_json& about, int64_t n_rounds);

}  // namespace ridge
