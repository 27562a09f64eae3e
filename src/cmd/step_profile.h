#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/step_trace.h"

namespace ridge {

// Calls of one step that are alike but for their layer: the same node and kernel, in the same
// stage, on weights of the same shapes and formats.
struct NodeGroup {
    std::string stage;            // "ffn_in"; of a node outside of stages its own name
    std::string node;             // "matmul"
    std::string checkpoint;       // of the entry that ran: "gemm"
    std::string weights;          // "2 x Q4_0 [8192, 2048]"; empty: none, or vectors alone
    std::string skipped, reason;  // see NodeSpan
    int64_t n_calls = 0;          // in one step
    Work work;  // of these together; its rows are the first's, and its operands left out
    struct Matrix {
        std::string_view format;
        int64_t n_rows, n_cols;
    };
    std::vector<Matrix> matrices;    // of one call
    std::vector<double> samples_ns;  // of these together, one for each step

    // On a device that works behind the host.
    int64_t n_launches = 0;        // of kernels, in one step
    std::vector<Launch> launches;  // those of the first call
    std::vector<int> calls;        // their places in the step
    // Whether samples_ns are of these kernels alone, in a graph of their own; of steps launched one
    // call after the other those are in one_by_one_ns then.
    bool in_graph = false;
    std::vector<double> one_by_one_ns;
    // False of one that copies something to the host, which does the rest.
    bool runs_kernels() const;

    double median_ns() const;
};

// Where a step's time goes: the same step, traced several times.
class StepProfile {
  public:
    void add(const StepTrace& trace);
    // After all steps have been added; where the device works behind the host: times the kernels of
    // each group, and the whole step, in graphs, where the step can be captured. `step` runs the
    // step that was added, traced; `run_ns` are times of such steps as they run without a trace.
    // From then on samples are these.
    void time_on_device(StepTrace& trace, const std::function<void()>& step,
                        std::vector<double> run_ns);

    // In the order in which they first ran. What a call hands on to another is counted there, so
    // that nothing is counted twice.
    const std::vector<NodeGroup>& groups() const { return groups_; }
    size_t n_samples() const { return samples_ns_.size(); }
    const std::vector<double>& samples_ns() const { return samples_ns_; }
    double median_ns() const;
    double between_ns() const;  // median of what is within no group: calls, and the host's own work
    // Of all threads' time, the share in which they waited: workers outside of loops, the caller
    // for the last pieces of a loop. On a device, of the step as it runs, what the kernels alone do
    // not take: neighbours may overlap, which makes it smaller, down to 0.
    double idle_share() const;
    int64_t n_dispatches() const { return n_dispatches_; }  // loops over the pool, or kernels
    Work work() const;                                      // of all groups
    // Rows that kernels read and write: what they hand on to each other goes through memory twice.
    int64_t activation_bytes() const { return work().activation_bytes; }

    bool is_on_device() const { return is_on_device_; }
    double kernels_ns() const;  // medians of all groups together
    // On a device: the whole step in one graph, or why there is none, and launched one call after
    // the other.
    const std::vector<double>& graph_ns() const { return graph_ns_; }
    const std::string& why_no_graph() const { return why_no_graph_; }
    const std::vector<double>& one_by_one_ns() const { return one_by_one_ns_; }
    // The entry of the whole step that runs where it is not traced: "graph"; or empty.
    const std::string& whole() const { return whole_; }

  private:
    NodeGroup& group_of(const NodeSpan& span, std::string_view stage, const Work& own);
    void note_launches(const StepTrace& trace, int span, NodeGroup& group);

    std::vector<NodeGroup> groups_;
    std::vector<double> samples_ns_, between_ns_, idle_shares_;
    int64_t n_dispatches_ = 0;
    bool is_on_device_ = false, is_timed_on_device_ = false;
    std::vector<double> graph_ns_, one_by_one_ns_;
    std::string why_no_graph_, whole_;
};

// Decode steps in a row, of which each is timed as it runs: a device runs ahead of the host between
// them.
constexpr int64_t kStepsInARow = 16;

// "matvec 264 x 288, 66 KiB": kernels with their blocks, threads of a block and shared memory that
// the launch gives to each.
std::string launches_text(std::span<const Launch> launches);
// "2 x Q4_0 [8192, 2048]", "Q4_K [2048, 2048], Q6_K [512, 2048]"
std::string weights_text(const Work& work);

// What can be replayed alone: a layer, the stages, the head, the ops.
std::vector<std::string> replayable_nodes();
// Error where one of `names` was not called in a step: what a fused stage does within one kernel
// has no time of its own. It tells what was. `step`: "decode step of 1 sequence at position 128".
void check_replay(std::span<const std::string> names, std::span<const NodeSpan> spans,
                  std::string_view step);

// The stages of a layer and the head, in their order.
std::span<const std::string_view> stage_names();
// The stage that a call is of, by its name; of a node outside of stages its own.
std::string_view stage_of(std::span<const NodeSpan> spans, const NodeSpan& span);

// "prompt step of 512 tokens"; where n_prompt is 0 "decode step of 1 sequence at position 128".
std::string step_name(int64_t n_prompt, int n_parallel, int64_t n_depth);

double median_of(const std::vector<double>& samples);  // of at least one
// Of the time of all threads, the share in which they waited: see StepProfile::idle_share.
double idle_share_of(const StepTrace& trace);

}  // namespace ridge
