#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/device/fragments.cuh"
#include "cuda/device/numbers.cuh"

// What decode attention asks of the machine beside what all attention does (device/fragments.cuh).
// Lane 4 g + t of a matrix of 8 x 8 numbers of 16 bits holds numbers 2 t and 2 t + 1 of row g.

namespace ridge::cuda::decode {

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
