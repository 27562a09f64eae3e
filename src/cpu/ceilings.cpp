#include "cpu/ceilings.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/middle.h"
#include "base/split_mix.h"
#include "base/system.h"
#include "base/timer.h"

namespace ridge::cpu {
namespace {

constexpr int kRepetitions = 9;
constexpr double kSampleMs = 15;  // of a repetition, about
// Where there are more threads than CPUs, or other programs have them: a sample is not tried again
// after so long, nor a launch timed once more.
constexpr double kMostTriesMs = 100, kMostDispatchMs = 100;
constexpr int kDispatches = 500;
// A buffer for memory: at 4 times the last cache a part of it is still found there.
constexpr int64_t kMinMemoryBytes = int64_t{64} << 20, kManyMemoryBytes = int64_t{512} << 20;
constexpr int64_t kPageBytes = 4096;

int64_t whole_probes(int64_t n_bytes) {
    return n_bytes / (2 * kPageBytes) * (2 * kPageBytes);
}

// Memory of one thread, which has touched it first, full of numbers.
class ProbeBuffer {
  public:
    explicit ProbeBuffer(int64_t n_bytes) : n_bytes_(static_cast<size_t>(n_bytes)) {
        data_ = static_cast<uint8_t*>(reserve_memory(n_bytes_));
        if (data_ == nullptr) {
            throw Error("cpu: the system gives no {:.3f} GB for measuring memory",
                        1e-9 * static_cast<double>(n_bytes));
        }
        advise_huge_pages(data_, n_bytes_);
    }
    ~ProbeBuffer() { release_memory(data_, n_bytes_); }
    ProbeBuffer(const ProbeBuffer&) = delete;

    // What lies between two offsets, which are multiples of 8.
    void fill(size_t begin, size_t end) {
        for (size_t i = begin; i < std::min(end, n_bytes_); i += 8) {
            const uint64_t word = split_mix((i + 1) * kSplitMixStep);
            std::memcpy(data_ + i, &word, sizeof word);
        }
    }
    uint8_t* data() const { return data_; }
    size_t n_bytes() const { return n_bytes_; }

  private:
    size_t n_bytes_;
    uint8_t* data_;
};

// What a probe does on each of its threads, `n_rounds` times.
struct Probe {
    Ceiling ceiling;
    std::function<uint64_t(uint8_t* buffer, int64_t n_rounds)> run;
    double work_a_round = 0;  // of one thread: bytes, or operations
    int64_t n_rounds = 1;
};

// Until all have come. A thread that waits takes no other piece of a loop: each is another's.
void meet(std::atomic<int>& n_there, int n_threads) {
    n_there++;
    while (n_there < n_threads) std::this_thread::yield();
}

struct Together {
    int64_t elapsed_ns = 1;  // from the first thread's start to the last one's end
    int64_t cpu_ns = 0;      // of that, that each thread had a CPU, at the least

    double share_run() const {
        return static_cast<double>(cpu_ns) / static_cast<double>(elapsed_ns);
    }
};

// Runs `body` on threads of a pool at the same moment.
template <class Body>
Together time_together(ThreadPool& pool, int n_threads, const Body& body) {
    struct alignas(128) Thread {
        int64_t begin_ns, end_ns, cpu_ns;
    };
    std::vector<Thread> threads(static_cast<size_t>(n_threads));
    auto run_on = [&](int thread) {
        Thread& own = threads[static_cast<size_t>(thread)];
        own.cpu_ns = -thread_cpu_ns();
        own.begin_ns = monotonic_ns();
        body(thread);
        own.end_ns = monotonic_ns();
        own.cpu_ns += thread_cpu_ns();
    };
    std::atomic<int> n_there{0};
    if (n_threads == 1) {
        run_on(0);
    } else {
        pool.parallel_for(n_threads, 1, [&](int64_t first, int64_t last, int worker) {
            for (int64_t i = first; i < last; i++) {
                meet(n_there, n_threads);
                run_on(worker);
            }
        });
    }
    Thread all = threads[0];
    for (const Thread& thread : threads) {
        all.begin_ns = std::min(all.begin_ns, thread.begin_ns);
        all.end_ns = std::max(all.end_ns, thread.end_ns);
        all.cpu_ns = std::min(all.cpu_ns, thread.cpu_ns);
    }
    return {std::max<int64_t>(all.end_ns - all.begin_ns, 1), all.cpu_ns};
}

// Numbers of the three kinds: float32 and bf16 from 0.5 up to 1, codes of int8 that are not 0.
std::vector<uint8_t> operands_of(ProbeIndex index) {
    std::vector<uint8_t> bytes(kOperandBytes);
    for (size_t i = 0; i < bytes.size(); i += 4) {
        const uint64_t random = split_mix((i + 1) * kSplitMixStep);
        uint32_t word = 0x3f000000u | (static_cast<uint32_t>(random) & 0x7fffffu);
        if (index == kBf16Dot || index == kBf16Matrix) {
            word = 0x3f003f00u | (static_cast<uint32_t>(random) & 0x007f007fu);
        } else if (index == kInt8Dot || index == kInt8Matrix) {
            word = static_cast<uint32_t>(random) | 0x01010101u;
        }
        std::memcpy(bytes.data() + i, &word, sizeof word);
    }
    return bytes;
}

constexpr const char* kArithmeticNames[kNumProbes] = {"f32", "bf16", "int8", "bf16 matrix",
                                                      "int8 matrix"};

void add_arithmetic(const ProbeKernels& kernels, int n_threads, std::vector<Probe>& probes) {
    for (int i = 0; i < kNumProbes; i++) {
        const ArithmeticProbe& arithmetic = kernels.arithmetic[i];
        if (arithmetic.run == nullptr) continue;
        Probe& probe = probes.emplace_back();
        probe.ceiling.kind = CeilingKind::kArithmetic;
        probe.ceiling.name = kArithmeticNames[i], probe.ceiling.how = arithmetic.instruction;
        probe.ceiling.n_threads = n_threads;
        probe.work_a_round = static_cast<double>(arithmetic.ops_per_round);
        probe.run = [run = arithmetic.run, operands = operands_of(static_cast<ProbeIndex>(i))](
                        uint8_t*, int64_t n_rounds) { return run(operands.data(), n_rounds); };
    }
}

void add_memory(const ProbeKernels& kernels, int n_threads, const ProbedLevel& level,
                std::vector<Probe>& probes) {
    const int64_t n_bytes = level.buffer_bytes;
    auto add = [&](CeilingKind kind, int64_t bytes_a_round, auto once) {
        Probe& probe = probes.emplace_back();
        probe.ceiling.kind = kind;
        probe.ceiling.name = level.name;
        probe.ceiling.n_threads = n_threads;
        probe.ceiling.level_bytes = level.level_bytes;
        probe.ceiling.buffer_bytes = n_bytes;
        probe.work_a_round = static_cast<double>(bytes_a_round);
        probe.run = [once](uint8_t* buffer, int64_t n_rounds) {
            uint64_t seen = 0;
            for (int64_t i = 0; i < n_rounds; i++) seen += once(buffer);
            return seen;
        };
    };
    auto add_read = [&](auto read) {
        add(CeilingKind::kRead, n_bytes, [=](uint8_t* buffer) { return read(buffer, n_bytes); });
    };
    add_read(kernels.read);
    // Memory in two ways, one behind the other: the faster one counts.
    if (level.level_bytes == 0) add_read(kernels.read_ahead);
    const int64_t half = n_bytes / 2 - kPageBytes / 2;  // loads and stores half a page apart
    add(CeilingKind::kCopy, 2 * half, [half, copy = kernels.copy](uint8_t* buffer) {
        copy(buffer, buffer + half, half);
        return uint64_t{buffer[half]};
    });
}

// The probes of one thread, and of all.
std::vector<Probe> probes_of(const ProbeKernels& kernels, int n_all_threads,
                             uint64_t memory_bytes) {
    const std::vector<DataCache> caches = data_caches();
    std::vector<Probe> probes;
    for (int n_threads : {1, n_all_threads}) {
        if (n_threads == 1 && !probes.empty()) break;
        for (const ProbedLevel& level : probed_levels(caches, n_threads, memory_bytes)) {
            if (level.buffer_bytes > 0) add_memory(kernels, n_threads, level, probes);
        }
        add_arithmetic(kernels, n_threads, probes);
    }
    return probes;
}

// A buffer for each thread of a pool, as large as the largest that a probe wants of it.
class Buffers {
  public:
    // `alive` is called every now and then, here and below, and may throw.
    Buffers(std::span<const Probe> probes, ThreadPool& pool, std::function<void()> alive)
        : alive_(std::move(alive)) {
        for (int thread = 0; thread < pool.size(); thread++) {
            int64_t n_bytes = 0;
            for (const Probe& probe : probes) {
                if (thread < probe.ceiling.n_threads)
                    n_bytes = std::max(n_bytes, probe.ceiling.buffer_bytes);
            }
            buffers_.push_back(std::make_unique<ProbeBuffer>(n_bytes));
        }
        constexpr size_t kPieceBytes = size_t{16} << 20;
        for (size_t at = 0; at < of(0).n_bytes(); at += kPieceBytes) {  // no other is larger
            alive_();
            time_together(pool, pool.size(),
                          [&](int thread) { of(thread).fill(at, at + kPieceBytes); });
        }
    }

    // Again where another program had a CPU meanwhile, some times; the fastest one counts.
    Together time(const Probe& probe, ThreadPool& pool) const {
        constexpr int kTries = 3;
        constexpr double kUndisturbed = 0.97;
        std::atomic<uint64_t> sink{0};  // keeps the work alive
        Together best{INT64_MAX, 0};
        const Timer timer;
        for (int i = 0; i < kTries && best.share_run() < kUndisturbed; i++) {
            if (i > 0 && timer.elapsed_ms() > kMostTriesMs) break;
            alive_();
            const Together run = time_together(pool, probe.ceiling.n_threads, [&](int thread) {
                const uint64_t seen = probe.run(of(thread).data(), probe.n_rounds);
                sink.fetch_add(seen, std::memory_order_relaxed);
            });
            if (run.elapsed_ns < best.elapsed_ns) best = run;
        }
        return best;
    }

  private:
    ProbeBuffer& of(int thread) const { return *buffers_[static_cast<size_t>(thread)]; }

    std::function<void()> alive_;
    std::vector<std::unique_ptr<ProbeBuffer>> buffers_;
};

// By the time for which threads had CPUs: on a busy machine most of a short sample may be waiting
// for them. Where there are more threads than CPUs, these together take as long as one.
int64_t rounds_of_a_sample(Probe probe, const Buffers& buffers, ThreadPool& pool) {
    const double n_turns = std::max(
        1.0, static_cast<double>(probe.ceiling.n_threads) / static_cast<double>(n_allowed_cpus()));
    const double wanted_ms = kSampleMs / n_turns;
    for (;; probe.n_rounds *= 4) {
        const double ms = 1e-6 * static_cast<double>(buffers.time(probe, pool).cpu_ns);
        if (ms < wanted_ms / 4) continue;
        const double n_rounds = static_cast<double>(probe.n_rounds) * wanted_ms / ms;
        return std::max<int64_t>(1, static_cast<int64_t>(n_rounds));
    }
}

// Of a loop in which each thread has nothing to do but to come: from the call to its return.
double time_dispatch_us(ThreadPool& pool) {
    std::vector<double> us;
    const Timer all;
    while (us.empty() || (us.size() < kDispatches && all.elapsed_ms() < kMostDispatchMs)) {
        std::atomic<int> n_there{0};
        const Timer timer;
        pool.parallel_for(pool.size(), 1, [&](int64_t first, int64_t last, int) {
            for (int64_t piece = first; piece < last; piece++) meet(n_there, pool.size());
        });
        us.push_back(1e-3 * static_cast<double>(timer.elapsed_ns()));
    }
    return middle_of(us);
}

// With their medians, the faster one of two ways to read alone.
std::vector<Ceiling> fastest_of(std::vector<Probe> probes) {
    std::vector<Ceiling> ceilings;
    for (Probe& probe : probes) {
        Ceiling& ceiling = probe.ceiling;
        ceiling.rate = middle_of(ceiling.rates);
        const bool other_way = ceiling.kind == CeilingKind::kRead && !ceilings.empty() &&
                               ceilings.back().kind == CeilingKind::kRead;
        if (!other_way) {
            ceilings.push_back(std::move(ceiling));
        } else if (ceilings.back().rate < ceiling.rate) {
            ceilings.back() = std::move(ceiling);
        }
    }
    return ceilings;
}

}  // namespace

std::vector<ProbedLevel> probed_levels(std::span<const DataCache> caches, int n_threads,
                                       uint64_t memory_bytes) {
    std::vector<ProbedLevel> levels;
    int64_t before = 0, share = 0;
    for (const DataCache& cache : caches) {
        share = cache.n_bytes / std::min(n_threads, cache.n_sharers);
        const int64_t buffer =
            before == 0 ? share / 2 : std::max(share / 4, std::min(3 * before, before + share / 2));
        levels.push_back({"L" + std::to_string(cache.level), share, whole_probes(buffer)});
        before = share;
    }
    int64_t buffer = std::max({kMinMemoryBytes, std::min(16 * share, kManyMemoryBytes), 4 * share});
    if (memory_bytes > 0) {
        const auto most = static_cast<int64_t>(std::min<uint64_t>(memory_bytes, uint64_t{1} << 62));
        buffer = std::min(buffer, most / 4 / n_threads);
    }
    levels.push_back({"memory", 0, whole_probes(buffer)});
    return levels;
}

Ceilings measure_ceilings(const ProbeKernels& kernels, ThreadPool& pool, uint64_t memory_bytes,
                          const CeilingEvents& events, double most_ms) {
    std::vector<Probe> probes = probes_of(kernels, pool.size(), memory_bytes);
    double share = 0;
    const Buffers buffers(probes, pool, [&] {
        if (events.progress) events.progress(share);
    });
    std::vector<double> dispatch_us, shares_run;
    for (Probe& probe : probes) probe.n_rounds = rounds_of_a_sample(probe, buffers, pool);
    double own_ms = 0;  // without what goes on in between
    for (int repetition = 0; share < 1; repetition++) {
        if (events.between) events.between(share);
        const Timer timer;
        for (Probe& probe : probes) {
            const double work =
                probe.work_a_round * static_cast<double>(probe.n_rounds) * probe.ceiling.n_threads;
            const Together run = buffers.time(probe, pool);
            probe.ceiling.rates.push_back(work / static_cast<double>(run.elapsed_ns));
            shares_run.push_back(run.share_run());
        }
        dispatch_us.push_back(time_dispatch_us(pool));
        own_ms += timer.elapsed_ms();
        share = std::max((repetition + 1.0) / kRepetitions, own_ms / most_ms);
    }
    const double share_run = std::accumulate(shares_run.begin(), shares_run.end(), 0.0) /
                             static_cast<double>(shares_run.size());
    return {{}, fastest_of(std::move(probes)), middle_of(dispatch_us), share_run};
}

std::string_view arithmetic_of(const Kernels& kernels, std::string_view node,
                               std::string_view checkpoint, const Format* format,
                               RowClass row_class) {
    const auto& known = kernels.probes.arithmetic;
    // Without instructions of its own it is done in float32.
    auto best_of = [&](ProbeIndex dot, ProbeIndex matrix, bool on_matrix_unit) {
        ProbeIndex best = known[dot].run != nullptr ? dot : kF32Fma;
        if (on_matrix_unit && known[matrix].run != nullptr) best = matrix;
        return std::string_view(kArithmeticNames[best]);
    };
    if (checkpoint == "ref" || checkpoint == "plain") return kArithmeticNames[kF32Fma];
    const bool is_prompt = row_class == RowClass::kPrompt;
    if (node == "attention") {
        const bool is_bf16 = is_prompt && kernels.attention.prompt_bf16.attend != nullptr;
        if (!is_bf16) return kArithmeticNames[kF32Fma];
        return best_of(kBf16Dot, kBf16Matrix, kernels.tiles.begin != nullptr);
    }
    if (format == nullptr || node == "embed_rows") return kArithmeticNames[kF32Fma];
    const auto row = static_cast<size_t>(format->id);
    const bool by_panels = is_prompt && checkpoint != "matvec";
    switch (by_panels ? kernels.gemm[row].operands : kernels.group_operands[row]) {
        case Operands::kF32:
            return kArithmeticNames[kF32Fma];
        case Operands::kInt8:
            return best_of(kInt8Dot, kInt8Matrix, by_panels);
        case Operands::kBF16:
            return best_of(kBf16Dot, kBf16Matrix, by_panels);
    }
    return {};
}

}  // namespace ridge::cpu
