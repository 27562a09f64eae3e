#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/device/mma.cuh"

// What a prompt's attention asks of the machine: operands of tensor units, and how they come there.

namespace ridge::cuda::prefill {

using SharedAddress = uint32_t;
__device__ inline SharedAddress shared_address(const void* at) {
    return static_cast<SharedAddress>(__cvta_generic_to_shared(at));
}

// 16 bytes from global memory beside other work (device/async.cuh); zeros where `wanted` is false,
// and nothing is read then.
__device__ inline void copy_async(SharedAddress to, const void* from, bool wanted) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(wanted ? 16 : 0)
                 : "memory");
}

// Four matrices of 8 x 8 numbers of 16 bits: ldmatrix of PTX ISA 6.5. Lane 8 i + r says where row r
// of matrix i lies, 16 bytes; lane 4 g + t gets of each matrix rows 2 t and 2 t + 1 of column g: as
// an operand b of mma.m16n8k16 has them.
__device__ inline void load_transposed(uint32_t (&x)[4], SharedAddress row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(row)
                 : "memory");
}

// Codes 2 `half` and 2 `half` + 1 of four int8 times two f16 scales, rounded once. A code, of 128
// more, becomes the lowest bits of the mantissa of 1024.
__device__ inline uint32_t scaled_codes(uint32_t codes, int half, uint32_t scales) {
    const uint32_t biased =
        __byte_perm(codes ^ 0x80808080u, 0x64646464u, half == 0 ? 0x4140u : 0x4342u);
    constexpr uint32_t kBias = 0x64806480;  // 1024 + 128, twice
    __half2 x, bias, scale;
    memcpy(&x, &biased, 4), memcpy(&bias, &kBias, 4), memcpy(&scale, &scales, 4);
    const __half2 product = __hmul2(__hsub2(x, bias), scale);
    uint32_t pair;
    memcpy(&pair, &product, 4);
    return pair;
}

}  // namespace ridge::cuda::prefill
