#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <vector>

namespace ridge::cuda {

// Rate of reading these runs of device memory over and over, the median of some passes: what decode
// could at most reach with as many bytes. In GB/s.
double measure_read_gbps(std::span<const std::span<const std::byte>> runs, cudaStream_t stream);

}  // namespace ridge::cuda
