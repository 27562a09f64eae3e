#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

namespace ridge::cuda {

// "out of memory (cudaErrorMemoryAllocation)"
std::string error_text(cudaError_t status);

// Throws Error "cuda: WHAT: what the runtime says" where `status` is not success.
void check(cudaError_t status, std::string_view what);

// Error "WHAT take N bytes of shared memory, this device has M for a block" where that is so.
void check_shared_memory(int n_bytes, int available, std::string_view what);

// Of the launch just made: a configuration that the device refuses. What goes wrong while a kernel
// runs shows when the stream is waited for.
inline void check_launch(std::string_view kernel) {
    check(cudaGetLastError(), kernel);
}

}  // namespace ridge::cuda
