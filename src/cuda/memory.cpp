#include "cuda/memory.h"

#include <cuda_runtime_api.h>

#include "cuda/check.h"

namespace ridge::cuda {

Buffer device_buffer(size_t n_bytes, std::string_view what) {
    if (n_bytes == 0) return {};
    void* data = nullptr;
    check(cudaMalloc(&data, n_bytes), what);
    return {data, n_bytes, [](void* at, size_t) { cudaFree(at); }};
}

Buffer pinned_buffer(size_t n_bytes, std::string_view what) {
    if (n_bytes == 0) return {};
    void* data = nullptr;
    check(cudaMallocHost(&data, n_bytes), what);
    return {data, n_bytes, [](void* at, size_t) { cudaFreeHost(at); }};
}

}  // namespace ridge::cuda
