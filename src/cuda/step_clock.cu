#include <algorithm>
#include <cmath>

#include "base/middle.h"
#include "cuda/check.h"
#include "cuda/device/async.cuh"
#include "cuda/memory.h"
#include "cuda/probes.h"
#include "cuda/step_clock.h"

namespace ridge::cuda {
namespace {

// The stream is kept waiting for so many looks at the host's memory, each a microsecond or two.
constexpr int kMostLooks = 10000;
// What waits behind it has room for about a thousand launches: it must not wait for more.
constexpr size_t kMostHeld = 256;

__global__ void hold_kernel(const volatile int* go) {
    for (int i = 0; i < kMostLooks && *go == 0; i++) __nanosleep(1000);
}

// Of a decode step's kernels, what each takes that does nothing.
__global__ void empty_kernel(int) {
    wait_for_previous_kernel();
    let_next_kernel_start();
}

}  // namespace

Hold::Hold() : go_(pinned_buffer(sizeof(int), "timing")) {
    *reinterpret_cast<volatile int*>(go_.data()) = 1;
}

void Hold::begin(cudaStream_t stream) {
    *reinterpret_cast<volatile int*>(go_.data()) = 0;
    hold_kernel<<<1, 1, 0, stream>>>(reinterpret_cast<const volatile int*>(go_.data()));
    check_launch("timing");
}

void Hold::release() {
    *reinterpret_cast<volatile int*>(go_.data()) = 1;
}

void StepClock::begin() {
    check(cudaStreamSynchronize(stream_), "step");
    hold_.begin(stream_);
    n_used_ = 0;
    mark();
}

int StepClock::mark() {
    if (n_used_ == events_.size()) {
        events_.push_back(std::make_unique<Event>("tracing a step", cudaEventDefault));
    }
    check(cudaEventRecord(events_[n_used_]->get(), stream_), "tracing a step");
    if (++n_used_ == kMostHeld) hold_.release();
    return static_cast<int>(n_used_) - 1;
}

void StepClock::read(const Rows& rows, float* to) {
    hold_.release();
    const auto row_bytes = static_cast<size_t>(rows.n_cols) * sizeof(float);
    check(cudaMemcpy2DAsync(to, row_bytes, device_rows<float>(rows),
                            static_cast<size_t>(rows.stride) * sizeof(float), row_bytes,
                            static_cast<size_t>(rows.n_rows), cudaMemcpyDeviceToHost, stream_),
          "reading what a node computed");
    check(cudaStreamSynchronize(stream_), "reading what a node computed");
}

std::vector<int64_t> StepClock::finish() {
    hold_.release();
    check(cudaStreamSynchronize(stream_), "step");
    std::vector<int64_t> ns(n_used_);
    for (size_t i = 1; i < n_used_; i++) {
        ns[i] = std::llround(1e6 * elapsed_ms(*events_[0], *events_[i], "tracing a step"));
    }
    return ns;
}

GraphTimer::GraphTimer(const Context& c)
    : context_(c), begin_("timing", cudaEventDefault), end_("timing", cudaEventDefault) {
    constexpr int kFew = 1, kMany = 65, kTimes = 21;
    const auto ns_of = [&](int n) {
        const Graph graph(c.stream, [&] {
            for (int i = 0; i < n; i++) {
                launch_dependent(c, empty_kernel, dim3(static_cast<unsigned>(c.n_sms)), 32, 0,
                                 "a kernel that does nothing", i);
            }
        });
        return middle_of(time_whole(graph, kTimes, 0));
    };
    ns_of(kMany);  // warms up
    const double few_ns = ns_of(kFew), many_ns = ns_of(kMany);
    dispatch_ns_ = std::max(0.0, (many_ns - few_ns) / (kMany - kFew));
    start_ns_ = std::max(0.0, few_ns - dispatch_ns_);
}

std::vector<double> GraphTimer::time(const Graph& graph, int n_times, int64_t flush_bytes) {
    std::vector<double> all = time_whole(graph, n_times, flush_bytes);
    for (double& ns : all) ns = std::max(ns - start_ns_, 0.5 * ns);
    return all;
}

std::vector<double> GraphTimer::time_whole(const Graph& graph, int n_times, int64_t flush_bytes) {
    constexpr int kWarmUp = 2, kLeast = 3;
    constexpr double kMostNs = 3e8;
    std::vector<double> all;
    double sum_ns = 0;
    for (int i = 0; i < kWarmUp + n_times; i++) {
        if (i >= kWarmUp + kLeast && sum_ns > kMostNs) break;
        hold_.begin(context_.stream);
        if (flush_bytes > 0) flush(flush_bytes);
        check(cudaEventRecord(begin_.get(), context_.stream), "timing a graph");
        graph.launch(context_.stream);
        check(cudaEventRecord(end_.get(), context_.stream), "timing a graph");
        hold_.release();
        check(cudaStreamSynchronize(context_.stream), "timing a graph");
        const double ns = 1e6 * elapsed_ms(begin_, end_, "timing a graph");
        sum_ns += ns;
        if (i >= kWarmUp) all.push_back(ns);
    }
    return all;
}

void GraphTimer::flush(int64_t n_bytes) {
    const auto n = static_cast<size_t>(n_bytes);
    if (memory_.n_bytes() < n + sizeof(int)) {
        memory_ = {};
        memory_ = device_buffer(n + 16, "memory to be read between measurements");
        check(cudaMemsetAsync(memory_.data(), 1, memory_.n_bytes(), context_.stream),
              "memory to be read between measurements");
    }
    const Probe probe{context_, reinterpret_cast<int*>(memory_.data() + n)};
    probe.read(Probe::Level::kL2, memory_.data(), n_bytes, 1);
}

}  // namespace ridge::cuda
