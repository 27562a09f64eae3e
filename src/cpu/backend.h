#pragma once

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "model/backend.h"

namespace ridge {

struct CpuOptions {
    ThreadPoolOptions threads{1};
    std::string isa{};  // cap on the instruction set: "avx2"; empty: the best that the machine has
    uint64_t memory_bytes = 0;  // that weights and the KV cache may take; 0: what the system has
};

// The CPU: steps run on a pool of threads when they are submitted. Weights stay where the file maps
// them, or are packed for the kernels. Error for an instruction set that is not there.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

}  // namespace ridge
