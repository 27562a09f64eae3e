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

}  // namespace ridge::cuda
