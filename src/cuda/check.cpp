#include "cuda/check.h"

#include "base/error.h"

namespace ridge::cuda {

void check(cudaError_t status, std::string_view what) {
    if (status == cudaSuccess) return;
    cudaGetLastError();  // errors that do not last are told once
    throw Error("cuda: {}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace ridge::cuda
