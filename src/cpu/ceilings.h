#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/caches.h"
#include "base/thread_pool.h"
#include "cpu/kernels.h"
#include "model/batch.h"
#include "model/ceiling.h"

namespace ridge::cpu {

// A level of memory as it is measured: its share of each thread, and the bytes of each thread's
// buffer. Buffers are well inside a cache and well beyond the caches before it: half of the first;
// of the others no more than three times what came before, no less than a quarter; of memory 16
// times the last cache, or 4 times where that is more than 512 MiB, and no less than 64 MiB.
struct ProbedLevel {
    std::string name;         // "L1", "memory"
    int64_t level_bytes = 0;  // 0: memory
    int64_t buffer_bytes = 0;
};
// `memory_bytes`: what all buffers together may take; at most a quarter is taken.
std::vector<ProbedLevel> probed_levels(std::span<const DataCache> caches, int n_threads,
                                       uint64_t memory_bytes);

// For one thread and for all of the pool, caches as plain loads find them and memory also with
// lines asked for ahead, whichever is faster: the rates of reading and copying in each cache and in
// memory, and of each kind of arithmetic that the probes have. Some seconds. Repetitions of all go
// in turns, so that what else the machine does falls on each alike; those of about `most_ms`, and
// one in any case. Between two samples events.progress is called.
constexpr double kMostCeilingsMs = 15'000;
Ceilings measure_ceilings(const ProbeKernels& probes, ThreadPool& pool, uint64_t memory_bytes,
                          const CeilingEvents& events, double most_ms = kMostCeilingsMs);

// See Backend::arithmetic_of.
std::string_view arithmetic_of(const Kernels& kernels, std::string_view node,
                               std::string_view checkpoint, const Format* format,
                               RowClass row_class);

}  // namespace ridge::cpu
