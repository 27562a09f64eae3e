#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/context.h"
#include "cuda/event.h"
#include "cuda/graph.h"
#include "model/step_trace.h"

namespace ridge::cuda {

// A kernel that keeps the stream waiting until the host has put more behind it, so that what
// follows is not timed while it waits for the host. It gives up by itself after some 20 ms: nothing
// hangs where the host waits for the stream first.
class Hold {
  public:
    Hold();
    void begin(cudaStream_t stream);  // after the one before has ended
    void release();

  private:
    Buffer go_;  // pinned: int
};

// Marks of a stream that is traced: events, which are made once and used by one step after another.
class StepClock : public DeviceClock {
  public:
    explicit StepClock(cudaStream_t stream) : stream_(stream) {}

    void begin();  // the stream waits, then comes the first mark
    int mark() override;
    void read(const Rows& rows, float* to) override;
    // Waits for the stream: of each mark, nanoseconds after the first.
    std::vector<int64_t> finish();

  private:
    cudaStream_t stream_;
    Hold hold_;
    std::vector<std::unique_ptr<Event>> events_;
    size_t n_used_ = 0;
};

// Times of graphs as they run behind other work: nothing waits for the host. What a graph takes to
// begin and to end, measured with kernels that do nothing, is taken off.
class GraphTimer {
  public:
    explicit GraphTimer(const Context& c);

    // Nanoseconds of each of about n_times starts, fewer where they are long, after some that warm
    // up. `flush_bytes`: of other memory that is read before each, so that the second cache holds
    // nothing of what the graph reads.
    std::vector<double> time(const Graph& graph, int n_times, int64_t flush_bytes);
    // Of a kernel that does nothing, launched as the kernels of a decode step are: behind the one
    // before.
    double dispatch_ns() const { return dispatch_ns_; }

  private:
    std::vector<double> time_whole(const Graph& graph, int n_times, int64_t flush_bytes);
    void flush(int64_t n_bytes);

    const Context& context_;
    Hold hold_;
    Event begin_, end_;
    Buffer memory_;  // to be read
    double start_ns_ = 0, dispatch_ns_ = 0;
};

}  // namespace ridge::cuda
