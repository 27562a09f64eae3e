#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cmd/step_profile.h"
#include "engine/engine.h"

namespace ridge {

// What `trace` has measured, and how it is written.

// One kind of step of one model at one checkpoint.
struct TracedStepKind {
    int64_t n_prompt = 0;  // tokens of a prompt's step, from position 0 on; 0: a decode step
    int n_parallel = 1;    // sequences of a decode step, each with n_depth positions before
    int64_t n_depth = 0;
    StepProfile profile;
    StepProfile alone;  // of what was replayed; empty: nothing was

    int64_t n_tokens() const { return n_prompt > 0 ? n_prompt : n_parallel; }
    std::string name() const;  // "decode step of 1 sequence at position 128"
};

struct TracedCheckpoint {
    ModelInfo model;
    double read_gbps = 0;  // of the weights from memory: the wall
    std::vector<TracedStepKind> steps;
};

// A table of the step's kernels, and its totals.
std::string step_table(const TracedStepKind& step, double read_gbps);
// What was replayed alone, beside its time within the step.
std::string replay_table(const TracedStepKind& step, double read_gbps);

// A step's time by groups, one column a checkpoint: "attn_in", ..., "sample", and "between". The
// steps are of one kind.
struct Attribution {
    std::vector<std::string> groups;
    std::vector<std::vector<double>> ns;  // [checkpoint][group] medians
    std::vector<double> least_ns;         // [group] of the last one: its bytes at the wall's rate
    // The group of the last checkpoint that is farthest above least_ns: where a decode step's next
    // gain lies. A prompt's is not bound by memory.
    std::string next_gap;
    double next_gap_ns = 0;
};
Attribution attribution_of(std::span<const TracedCheckpoint> checkpoints, size_t step);
std::string attribution_table(std::span<const TracedCheckpoint> checkpoints, size_t step);

nlohmann::ordered_json trace_json(std::span<const TracedCheckpoint> checkpoints);

}  // namespace ridge
