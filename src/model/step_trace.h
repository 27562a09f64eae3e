#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/thread_pool.h"
#include "model/work.h"

namespace ridge {

// One call of a node in a step: which entry ran, how long, and what it had to do. Texts and tensors
// are the tables' and the model's.
struct NodeSpan {
    std::string_view node;             // "matmul"
    std::string_view checkpoint;       // of the entry that ran: "gemm"; of a default body: "ops"
    std::string_view skipped, reason;  // the topmost entry and why it did not run; empty: it did
    int parent = -1;                   // index of the call that it lies within
    int layer = -1;                    // -1: of none
    int64_t begin_ns = 0, end_ns = 0;  // monotonic_ns()
    int64_t children_ns = 0;           // of that, within the calls that it made
    int n_children = 0;
    Work work;  // of a default body nothing: it is that of the calls within

    int64_t elapsed_ns() const { return end_ns - begin_ns; }
    int64_t own_ns() const { return elapsed_ns() - children_ns; }
};

// What happened in one step of a model, call by call, in the order in which calls began. For steps
// of another model, another trace. A backend fills it where a batch asks for it (Batch::trace), and
// does its work no differently.
class StepTrace {
  public:
    // Called by Node: whether the call is to be made, then around it.
    bool wants(std::string_view node, std::string_view checkpoint) const;
    void begin(std::string_view node, std::string_view checkpoint, std::string_view skipped,
               std::string_view reason, const Work& work);
    void end();
    int64_t bytes_of(const Tensor& weight);  // as it lies in memory; counted once

    // Of the last step, until the next one begins.
    std::span<const NodeSpan> spans() const { return spans_; }
    int64_t begin_ns() const { return begin_ns_; }
    int64_t elapsed_ns() const { return end_ns_ - begin_ns_; }
    // When threads worked: every loop is a dispatch.
    const LoopRecord& loops() const { return loops_; }

    // Called as a call has ended, while its result is there.
    std::function<void(const NodeSpan&)> on_end;
    // Where it is not empty: nodes of these names alone, with all that they call, do their work; of
    // others only default bodies, which lead to them. What a step then computes means nothing.
    std::vector<std::string> only;

  private:
    friend class TracedStep;

    std::vector<NodeSpan> spans_;
    std::vector<int> open_;                                           // indices of calls under way
    std::unordered_map<const std::byte*, int64_t> bytes_of_weights_;  // by where they begin
    LoopRecord loops_;
    int64_t begin_ns_ = 0, end_ns_ = 0;
};

// For a backend: the life of a step that runs on the pool. Does nothing where `trace` is null.
class TracedStep {
  public:
    TracedStep(StepTrace* trace, ThreadPool& pool);
    ~TracedStep();
    TracedStep(const TracedStep&) = delete;

  private:
    StepTrace* trace_;
    ThreadPool& pool_;
};

}  // namespace ridge
