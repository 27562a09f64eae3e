#include <cuda_runtime_api.h>

#include "base/error.h"
#include "base/printable.h"
#include "base/system.h"
#include "cuda/backend.h"
#include "cuda/check.h"
#include "cuda/probe.h"

namespace ridge {
namespace {

using cuda::check;

constexpr int kLeastCapability = 80;

std::string capability_text(int capability) {
    return fmt::format("{}.{}", capability / 10, capability % 10);
}

bool has_driver(const Fault& fault) {
    if (fault.kind == Fault::kNoDriver) return false;
    int version = 0;  // stays so where none is installed
    return cudaDriverGetVersion(&version) == cudaSuccess && version > 0;
}

// Devices that the driver shows; `found` gets the reason why there are none.
int count_devices(const Fault& fault, CudaDevices& found) {
    int n = 1;
    cudaError_t status = cudaSuccess;
    switch (fault.kind) {
        case Fault::kNoDriver:
            status = cudaErrorInsufficientDriver;
            break;
        case Fault::kBadDriver:
            status = cudaErrorSystemDriverMismatch;
            break;
        case Fault::kNoGpu:
            status = cudaErrorNoDevice;
            break;
        case Fault::kTooOld:
        case Fault::kNoContext:
            break;
        default:
            status = cudaGetDeviceCount(&n);
    }
    if (status == cudaSuccess && n > 0) return n;
    cudaGetLastError();
    if (status == cudaErrorNoDevice || status == cudaSuccess) {
        found.missing = "no GPU that the driver shows";
    } else if (status == cudaErrorInsufficientDriver && !has_driver(fault)) {
        found.missing = "no NVIDIA driver";
    } else {
        found.missing = cuda::error_text(status), found.driver_fails = true;
    }
    return 0;
}

// What can be said of a device before anything is set up on it.
CudaDevice look_at_device(int index, const Fault& fault) {
    CudaDevice device;
    device.index = index;
    if (fault.kind == Fault::kTooOld || fault.kind == Fault::kNoContext) {
        device.name = "a GPU made up for tests";
        device.capability = fault.kind == Fault::kTooOld ? 75 : 90;
        return device;
    }
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, index), "properties of a device");
    device.name = properties.name;
    device.capability = 10 * properties.major + properties.minor;
    device.n_sms = properties.multiProcessorCount;
    device.memory_bytes = properties.totalGlobalMem;
    return device;
}

// Sets the driver's own things up on it, which takes some of its memory.
cudaError_t enter_device(CudaDevice& device, const Fault& fault) {
    if (fault.kind == Fault::kNoContext) return cudaErrorMemoryAllocation;
    if (cudaError_t status = cudaSetDevice(device.index); status != cudaSuccess) return status;
    size_t free = 0, total = 0;
    if (cudaError_t status = cudaMemGetInfo(&free, &total); status != cudaSuccess) return status;
    device.free_bytes = free;
    return cudaSuccess;
}

CudaDevice describe_device(int index, const Fault& fault) {
    CudaDevice device = look_at_device(index, fault);
    if (device.capability < kLeastCapability) {
        device.unusable =
            fmt::format("compute capability {}, expected {} or higher",
                        capability_text(device.capability), capability_text(kLeastCapability));
        return device;
    }
    const cudaError_t status = enter_device(device, fault);
    if (status == cudaErrorMemoryAllocation) {
        device.unusable = "its memory is full";
    } else if (status != cudaSuccess) {
        device.unusable = cuda::error_text(status);
    } else if (!cuda::has_kernels_for_device()) {
        device.unusable = fmt::format("this build has no kernels for compute capability {}",
                                      capability_text(device.capability));
    }
    cudaGetLastError();
    return device;
}

}  // namespace

CudaDevices find_cuda_devices(const Fault& fault) {
    CudaDevices found;
    const int n = count_devices(fault, found);
    for (int i = 0; i < n; i++) found.devices.push_back(describe_device(i, fault));
    return found;
}

// Looks at no other device: that alone takes time, and some of its memory.
CudaDevice open_cuda_device(int index, const Fault& fault) {
    CudaDevices found;
    const int n = count_devices(fault, found);
    if (n == 0) throw Error("cuda:{}: {}", index, found.missing);
    if (index < 0 || index >= n) {
        throw Error(ErrorKind::kUsage, "cuda:{}: this machine has {}", index, counted(n, "GPU"));
    }
    CudaDevice device = describe_device(index, fault);
    if (!device.unusable.empty()) {
        throw Error("cuda:{}: {}: {}", index, device.name, device.unusable);
    }
    return device;
}

DeviceFacts cuda_facts(const CudaDevice& device) {
    int runtime = 0, sm_khz = 0, memory_khz = 0;
    check(cudaRuntimeGetVersion(&runtime), "version of the runtime");
    check(cudaDeviceGetAttribute(&sm_khz, cudaDevAttrClockRate, device.index), "clocks");
    check(cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, device.index), "clocks");
    return {device.name, nvidia_driver_version(),
            fmt::format("CUDA {}.{}", runtime / 1000, runtime % 1000 / 10), sm_khz / 1000,
            memory_khz / 1000};
}

}  // namespace ridge
