#include "cuda/device/decode_kernel.cuh"

// Kernels of decode attention for every d_head. A file of their own, which cmake/RidgeCuda.cmake
// has nvcc optimise less: at its usual level nvcc 13.0 makes kernels of them whose results are
// wrong.

namespace ridge::cuda::decode {
namespace {

template <DType type>
Kernel kernel_of_heads(int heads, int d) {
    return heads == 4 ? kernel_of_shape<TensorShape<kAny, type, 4, 4>>(d)
                      : kernel_of_shape<TensorShape<kAny, type, 8, 4>>(d);
}

}  // namespace

Kernel kernel_of_any_head(DType type, int heads, int d) {
    if (type == DType::kF16) return kernel_of_heads<DType::kF16>(heads, d);
    if (type == DType::kBF16) return kernel_of_heads<DType::kBF16>(heads, d);
    return kernel_of_heads<DType::kQ8_0>(heads, d);
}

}  // namespace ridge::cuda::decode
