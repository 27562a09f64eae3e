#include "cuda/check.h"
#include "cuda/probe.h"

namespace ridge::cuda {
namespace {

__global__ void trap_kernel() {
    asm volatile("trap;");
}

}  // namespace

bool has_kernels_for_device() {
    cudaFuncAttributes attributes{};
    const cudaError_t status = cudaFuncGetAttributes(&attributes, trap_kernel);
    if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
        cudaGetLastError();
        return false;
    }
    check(status, "looking for kernels");
    return true;
}

void lose_device(cudaStream_t stream) {
    trap_kernel<<<1, 1, 0, stream>>>();
}

}  // namespace ridge::cuda
