#include "cuda/ceilings.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/middle.h"
#include "cuda/check.h"
#include "cuda/event.h"
#include "cuda/memory.h"
#include "cuda/probes.h"
#include "cuda/step_clock.h"
#include "cuda/tiles.h"

namespace ridge::cuda {
namespace {

constexpr int kRepetitions = 9;
constexpr double kSampleMs = 4;  // of a repetition, about
constexpr int kMostRounds = 1 << 20;
constexpr int64_t kMostMemoryBytes = int64_t{1} << 30;

// What is measured; `run` returns how much it has put into the stream.
struct Measured {
    Ceiling ceiling;
    std::function<int64_t(int n_rounds)> run;
    int n_rounds = 1;
};

class Timed {
  public:
    explicit Timed(cudaStream_t stream)
        : stream_(stream),
          begin_("measuring", cudaEventDefault),
          end_("measuring", cudaEventDefault) {}

    struct Sample {
        double ms, rate;  // rate: amounts of 1e9 a second
    };
    Sample time(const Measured& measured) {
        check(cudaEventRecord(begin_.get(), stream_), "measuring");
        const int64_t amount = measured.run(measured.n_rounds);
        check(cudaEventRecord(end_.get(), stream_), "measuring");
        check(cudaEventSynchronize(end_.get()), "measuring");
        const double at_least_ms = std::max(elapsed_ms(begin_, end_, "measuring"), 1e-3);
        return {at_least_ms, 1e-6 * static_cast<double>(amount) / at_least_ms};
    }
    // Rounds that take about so long as a sample is to.
    void choose_rounds(Measured& measured) {
        time(measured);  // warms up
        while (measured.n_rounds < kMostRounds) {
            const double ms = time(measured).ms;
            if (ms >= kSampleMs / 4) {
                const double wanted = measured.n_rounds * kSampleMs / ms;
                measured.n_rounds = std::clamp(static_cast<int>(wanted), 1, kMostRounds);
                return;
            }
            measured.n_rounds *= 4;
        }
    }

  private:
    cudaStream_t stream_;
    Event begin_, end_;
};

class List {
  public:
    void add(CeilingKind kind, std::string_view name, std::string_view how, double theoretical,
             std::function<int64_t(int)> run) {
        Measured& one = all_.emplace_back();
        one.ceiling.kind = kind, one.ceiling.name = name, one.ceiling.how = how;
        one.ceiling.n_threads = 0, one.ceiling.theoretical = theoretical;
        one.run = std::move(run);
    }
    Ceiling& last() { return all_.back().ceiling; }
    std::vector<Measured>& all() { return all_; }

  private:
    std::vector<Measured> all_;
};

void add_memory(List& list, const Probe& probe, const Buffer& memory, int64_t l2_bytes,
                const Peaks& peaks) {
    list.add(CeilingKind::kRead, "shared memory", "", 0,
             [&probe](int n_rounds) { return probe.read_shared(n_rounds); });
    list.last().level_bytes = int64_t{probe.c.n_sms} * probe.c.shared_bytes_an_sm;
    list.last().is_scratchpad = true;
    const auto n_memory = static_cast<int64_t>(memory.n_bytes());
    for (const Probe::Level level : {Probe::Level::kL2, Probe::Level::kMemory}) {
        const bool is_memory = level == Probe::Level::kMemory;
        // Well within the second cache, whose halves may each hold what the other does.
        const int64_t n = is_memory ? n_memory : std::min(n_memory, l2_bytes / 4);
        const int64_t half = n / 32 * 16;
        const char* name = is_memory ? "memory" : "L2";
        std::byte* data = memory.data();
        list.add(CeilingKind::kRead, name, "", is_memory ? peaks.memory : 0,
                 [=, &probe](int n_rounds) { return probe.read(level, data, n, n_rounds); });
        list.last().level_bytes = is_memory ? 0 : l2_bytes, list.last().buffer_bytes = n;
        list.add(CeilingKind::kCopy, name, "", is_memory ? peaks.memory : 0,
                 [=, &probe](int n_rounds) {
                     return probe.copy(level, data, data + half, half, n_rounds);
                 });
        list.last().level_bytes = is_memory ? 0 : l2_bytes, list.last().buffer_bytes = n;
    }
}

void add_arithmetic(List& list, const Probe& probe, const Peaks& peaks) {
    list.add(CeilingKind::kArithmetic, "f32", "fma", peaks.f32,
             [&probe](int n_rounds) { return probe.f32(n_rounds); });
    list.add(CeilingKind::kArithmetic, "f16 tensor", "mma.sync m16n8k16, f32 sums", peaks.tensor_16,
             [&probe](int n_rounds) { return probe.f16_tensor(n_rounds); });
    list.add(CeilingKind::kArithmetic, "bf16 tensor", "mma.sync m16n8k16, f32 sums",
             peaks.tensor_16, [&probe](int n_rounds) { return probe.bf16_tensor(n_rounds); });
    list.add(CeilingKind::kArithmetic, "int8 tensor", "mma.sync m16n8k32, s32 sums",
             peaks.tensor_int8, [&probe](int n_rounds) { return probe.int8_tensor(n_rounds); });
}

}  // namespace

// Sources: NVIDIA's data sheets "H200 Tensor Core GPU" and "H100 Tensor Core GPU" (SXM), "A100
// Tensor Core GPU" (80 GB SXM). Where a sheet gives figures of tensor units with sparsity alone,
// half of them.
Peaks peaks_of(std::string_view name) {
    constexpr std::pair<std::string_view, Peaks> kKnown[] = {
        {"NVIDIA H200", {4800, 67e3, 989.5e3, 1979e3}},
        {"NVIDIA H100 80GB HBM3", {3350, 67e3, 989.5e3, 1979e3}},
        {"NVIDIA A100-SXM4-80GB", {2039, 19.5e3, 312e3, 624e3}},
    };
    for (const auto& [known, peaks] : kKnown) {
        if (name == known) return peaks;
    }
    return {};
}

Ceilings measure_ceilings(const Context& c, std::string_view device_name, int64_t n_free_bytes,
                          const CeilingEvents& events) {
    int device = 0, l2_bytes = 0;
    check(cudaGetDevice(&device), "measuring");
    check(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device), "measuring");
    const int64_t n_memory = std::min(kMostMemoryBytes, n_free_bytes / 2) / 4096 * 4096;
    if (n_memory < 2 * int64_t{l2_bytes}) {
        throw Error("cuda:{}: {:.3f} GB of memory free, measuring it takes {:.3f} GB or more",
                    device, 1e-9 * static_cast<double>(n_free_bytes), 4e-9 * l2_bytes);
    }
    const Buffer memory = device_buffer(static_cast<size_t>(n_memory), "memory to be measured"),
                 sink = device_buffer(sizeof(int), "measuring");
    check(cudaMemsetAsync(memory.data(), 0x35, memory.n_bytes(), c.stream), "measuring");
    const Probe probe{c, reinterpret_cast<int*>(sink.data())};
    const Peaks peaks = peaks_of(device_name);
    List list;
    add_memory(list, probe, memory, l2_bytes, peaks);
    add_arithmetic(list, probe, peaks);
    Timed timed(c.stream);
    for (Measured& measured : list.all()) {
        if (events.progress) events.progress(0);
        timed.choose_rounds(measured);
    }
    std::vector<double> dispatch_us;
    for (int repetition = 0; repetition < kRepetitions; repetition++) {
        const double share = static_cast<double>(repetition) / kRepetitions;
        if (events.between) events.between(share);
        for (Measured& measured : list.all()) {
            if (events.progress) events.progress(share);
            measured.ceiling.rates.push_back(timed.time(measured).rate);
        }
        dispatch_us.push_back(1e-3 * GraphTimer(c).dispatch_ns());
    }
    Ceilings ceilings;
    ceilings.isa = "cuda";
    ceilings.dispatch_us = middle_of(dispatch_us);
    for (Measured& measured : list.all()) {
        measured.ceiling.rate = middle_of(measured.ceiling.rates);
        ceilings.list.push_back(std::move(measured.ceiling));
    }
    return ceilings;
}

std::string_view arithmetic_of(std::string_view node, std::string_view checkpoint,
                               const Format* format) {
    constexpr std::string_view kF32 = "f32", kF16Tensor = "f16 tensor";
    if (checkpoint == "plain") return kF32;
    if (node == "attention" || node == "attn") return kF16Tensor;
    if (format == nullptr || node == "embed_rows") return kF32;
    return has_tiles(format->id) ? kF16Tensor : kF32;
}

}  // namespace ridge::cuda
