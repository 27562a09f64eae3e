#pragma once

#include <array>
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
    // monotonic_ns(); of a device that works behind the host, when it came there (DeviceClock)
    int64_t begin_ns = 0, end_ns = 0;
    int64_t children_ns = 0;  // of that, within the calls that it made
    int n_children = 0;
    int n_launches = 0;  // of kernels on a device, those of the calls that it made left out
    bool leads = false;  // to calls that were asked for (StepTrace::only), which itself it was not
    Work work;           // of a default body nothing: it is that of the calls within

    int64_t elapsed_ns() const { return end_ns - begin_ns; }
    int64_t own_ns() const { return elapsed_ns() - children_ns; }
};

// A kernel that a call has started on a device, or a copy to the host (of no threads).
struct Launch {
    int span = -1;  // index of the innermost call under way
    std::string_view name;
    std::array<uint32_t, 3> blocks{};
    uint32_t n_threads = 0;    // of a block
    int64_t shared_bytes = 0;  // of a block, beside what the kernel itself names
};

// A device that works behind the host tells when it comes to a place among what it was given.
class DeviceClock {
  public:
    virtual ~DeviceClock() = default;
    virtual int mark() = 0;  // of all that was given before; its number, from 0 on
    // When all of it is done: rows as they then are, in memory of the host.
    virtual void read(const Rows& rows, float* to) = 0;
};

// Asks for a step to be captured and started as a whole, again and again, in place of being traced:
// where a backend can do that (CUDA graphs). Kernels then follow on one another as in a captured
// step, and nothing waits for the host.
struct GraphTiming {
    int n_times = 0;  // about; 0: the step is traced
    // By their places in the step that was traced before, an equal one: calls whose own kernels are
    // to run, and no others. What the step computes means nothing then. Empty: all of them.
    std::vector<bool> calls;
    // Filled: nanoseconds of each time; or why there are none.
    std::vector<double> samples_ns;
    std::string_view unfit;
};

// Why the entry of a whole step that is captured does not run where it is traced.
inline constexpr std::string_view kTracedByCalls = "a step that is traced runs call by call";

// What happened in one step of a model, call by call, in the order in which calls began. For steps
// of another model, another trace. A backend fills it where a batch asks for it (Batch::trace), and
// does its work no differently.
class StepTrace {
  public:
    // Called by Node: whether the call is to be made, then around it.
    bool wants(std::string_view node, std::string_view checkpoint);
    void begin(std::string_view node, std::string_view checkpoint, std::string_view skipped,
               std::string_view reason, const Work& work);
    void end();
    int64_t bytes_of(const Tensor& weight);  // as it lies in memory; counted once
    // Called before a kernel is started on a device: false where it is not to be.
    bool launches(std::string_view name, std::array<uint32_t, 3> blocks, uint32_t n_threads,
                  int64_t shared_bytes);

    // Of the last step, until the next one begins.
    std::span<const NodeSpan> spans() const { return spans_; }
    int64_t begin_ns() const { return begin_ns_; }
    int64_t elapsed_ns() const { return end_ns_ - begin_ns_; }
    // When threads worked: every loop is a dispatch.
    const LoopRecord& loops() const { return loops_; }
    // Of a step on a device that works behind the host: its kernels, each a dispatch. No threads
    // work then. Times of calls end when their kernels do; between two kernels lies a mark, so that
    // none overlaps with the next.
    bool is_on_device() const { return clock_ != nullptr; }
    std::span<const Launch> all_launches() const { return launches_; }
    // Whether a call did nothing but make others: an entry that leaves its work to those below.
    bool only_calls(const NodeSpan& span) const;
    // A call's rows in memory of the host, in `room` where they were not there.
    struct HostCopy {
        std::vector<float> values;
        Buffer view;
    };
    Rows on_host(const Rows& rows, HostCopy& room) const;

    // Called as a call has ended, while its result is there.
    std::function<void(const NodeSpan&)> on_end;
    // Where it is not empty: nodes of these names alone, with all that they call, do their work. Of
    // others those that lead to them are called: default bodies, and entries that made calls in the
    // step that was last traced whole; on a device they start nothing of their own. What a step
    // then computes means nothing.
    std::vector<std::string> only;
    GraphTiming graph;

    // For a backend with a device that works behind the host: around a step, where the clock has
    // made a mark before anything else. Then the times of all marks, in nanoseconds after the
    // first.
    void begin_on_device(DeviceClock* clock, int n_threads);
    void end_on_device(std::span<const int64_t> ns);
    // Around a step that is captured (`graph`).
    void begin_captured();

  private:
    friend class TracedStep;
    struct Marks {
        int begin = -1, end = -1;  // -1: of one that calls others alone, whose times are theirs
    };
    struct Entry {
        std::string_view node, checkpoint;
        bool operator==(const Entry&) const = default;
    };
    void clear();
    bool is_named(std::string_view node) const;
    bool is_within_named() const;
    void note_callers();
    int mark_now(bool anew);
    void set_times(std::span<const int64_t> ns);
    bool is_captured(size_t span) const;

    std::vector<NodeSpan> spans_;
    std::vector<int> open_;                                           // indices of calls under way
    std::unordered_map<const std::byte*, int64_t> bytes_of_weights_;  // by where they begin
    std::vector<Entry> callers_;  // that made calls in the step that was last traced whole
    LoopRecord loops_;
    int64_t begin_ns_ = 0, end_ns_ = 0;

    DeviceClock* clock_ = nullptr;
    std::vector<Launch> launches_;
    std::vector<Marks> marks_;  // parallel to spans_
    int last_mark_ = -1;        // -1: something was started since
    bool is_capturing_ = false;
    std::vector<bool> is_leaf_;  // of the step that was traced before
};

// A part of an entry's work that elsewhere is a node's of its own, told of as a call of that node,
// and left out where that call would be.
template <class WorkOf, class Body>
void trace_part(StepTrace* trace, std::string_view node, std::string_view checkpoint,
                const WorkOf& work, const Body& body) {
    if (trace == nullptr) return body();
    if (!trace->wants(node, checkpoint)) return;
    trace->begin(node, checkpoint, {}, {}, work());
    body();
    trace->end();
}

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
