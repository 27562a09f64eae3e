#pragma once

#include "kernels_on_host/host_device.h"

// The twin of src/cuda/device/fragments.cuh, of what matvec needs.

namespace ridge::cuda {

using SharedAddress = uint32_t;
inline SharedAddress shared_address(const void* at) {
    return host_device::shared_address_of(at);
}
inline void copy_once(SharedAddress to, const void* from) {
    memcpy(host_device::in_shared_memory(to, 16), from, 16);
}

}  // namespace ridge::cuda
