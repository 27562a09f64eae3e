#include "cuda/check.h"

#include "base/error.h"

namespace ridge::cuda {

std::string error_text(cudaError_t status) {
    return fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
}

void check(cudaError_t status, std::string_view what) {
    if (status == cudaSuccess) return;
    cudaGetLastError();  // errors that do not last are told once
    throw Error("cuda: {}: {}", what, error_text(status));
}

void check_shared_memory(int n_bytes, int available, std::string_view what) {
    if (n_bytes <= available) return;
    throw Error("cuda: {} take {} bytes of shared memory, this device has {} for a block", what,
                n_bytes, available);
}

}  // namespace ridge::cuda
