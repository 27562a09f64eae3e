#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "cuda/fault.h"
#include "model/backend.h"

namespace ridge {

struct CudaOptions {
    int device = 0;             // as the driver counts them
    uint64_t memory_bytes = 0;  // of the device's memory that may be used; 0: all that is free
    ThreadPoolOptions threads;  // that pack weights on their way to the device
    Fault fault = fault_from_environment();
};

struct CudaDevice {
    int index = 0;
    std::string name;
    int capability = 0;  // 90 for 9.0
    int n_sms = 0;
    uint64_t memory_bytes = 0, free_bytes = 0;
    std::string unusable;  // why Ridge cannot run on it; empty: it can
};

// What CUDA knows of this machine.
struct CudaDevices {
    std::vector<CudaDevice> devices;
    std::string missing;  // why there are none: no driver, no GPU; empty where there are some
    // `missing` tells of a driver that does not work, not of a machine without driver or GPU.
    bool driver_fails = false;
};
CudaDevices find_cuda_devices(const Fault& fault = fault_from_environment());

// One of them. Error where it is not there, or cannot run Ridge's kernels.
CudaDevice open_cuda_device(int index, const Fault& fault);
DeviceFacts cuda_facts(const CudaDevice& device);

// One GPU. Errors as of open_cuda_device.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);

}  // namespace ridge
