#pragma once

#include <cuda_runtime_api.h>

namespace ridge::cuda {

// Whether this build has machine code for the current device.
bool has_kernels_for_device();

// Launches a kernel that fails. Nothing on this device succeeds afterwards, in this process: as
// where a device was lost.
void lose_device(cudaStream_t stream);

}  // namespace ridge::cuda
