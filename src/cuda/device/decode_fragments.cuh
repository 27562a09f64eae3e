#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/device/numbers.cuh"
#include "cuda/device/prefill_fragments.cuh"

// What decode attention asks of the machine: operands of mma.m16n8k16 (device/mma.cuh), and how
// they come there. Lane 4 g + t of a matrix of 8 x 8 numbers of 16 bits holds numbers 2 t and
// 2 t + 1 of row g.

namespace ridge::cuda::decode {

using prefill::load_transposed;
using prefill::shared_address;
using prefill::SharedAddress;

// 16 bytes from global memory beside other work; zeros where `wanted` is false, and nothing is read
// then. Whoever reads 64 bytes of a line of 128 leaves the rest to another warp, which will want it
// next: the second cache fetches it whole.
__device__ inline void copy_async(SharedAddress to, const void* from, bool wanted = true) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(wanted ? 16 : 0)
                 : "memory");
}

// Four matrices (ldmatrix of PTX ISA 6.5). Lane 8 i + r says where row r of matrix i lies.
__device__ inline void load_matrices(uint32_t (&x)[4], SharedAddress row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(row)
                 : "memory");
}

__device__ inline void store_shared(SharedAddress to, uint16_t x) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(x) : "memory");
}
__device__ inline void store_shared(SharedAddress to, uint8_t x) {
    asm volatile("st.shared.u8 [%0], %1;" ::"r"(to), "r"(uint32_t{x}) : "memory");
}
__device__ inline uint32_t load_shared(SharedAddress from) {
    uint32_t x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
    return x;
}
__device__ inline uint16_t load_shared_half(SharedAddress from) {
    uint16_t x;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(from) : "memory");
    return x;
}

// A matrix to its transpose, without memory (movmatrix of PTX ISA 7.8).
__device__ inline uint32_t transposed(uint32_t x) {
    uint32_t result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(x));
    return result;
}

// x is computed here, not where it is used: before a wait rather than behind it.
template <class T>
__device__ inline void settle(T& x) {
    static_assert(sizeof x == 4);
    asm volatile("" : "+r"(x));
}

// How many have arrived before: all that this thread has seen written comes before its arrival for
// those that arrive later, and what they had seen before theirs for this one.
__device__ inline uint32_t count_arrival(uint32_t* counter) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(counter)
                 : "memory");
    return before;
}

// Of four int8 codes, bytes `first` and `first` + 2 in f16, exactly: a code, of 128 more, becomes
// the lowest bits of the mantissa of 1024.
__device__ inline uint32_t two_codes(uint32_t codes, int first) {
    const uint32_t biased =
        __byte_perm(codes ^ 0x80808080u, 0x64646464u, first == 0 ? 0x4240u : 0x4341u);
    constexpr uint32_t kBias = 0x64806480;  // 1024 + 128, twice
    __half2 x, bias;
    memcpy(&x, &biased, 4), memcpy(&bias, &kBias, 4);
    const __half2 difference = __hsub2(x, bias);
    uint32_t pair;
    memcpy(&pair, &difference, 4);
    return pair;
}

}  // namespace ridge::cuda::decode
