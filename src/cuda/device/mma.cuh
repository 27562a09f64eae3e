#pragma once

#include <cstdint>

namespace ridge::cuda {

// d[16 x 8] += a[16 x 16] b[16 x 8], bf16 operands, f32 sums: mma.m16n8k16 of PTX ISA 7.0, sm_80
// and up. Lane 4 g + t holds of a, two elements a register, rows g, g + 8, g, g + 8 at columns 2 t,
// 2 t, 2 t + 8, 2 t + 8 and the ones beside them; of b rows 2 t and 2 t + 8 of column g; of d
// columns 2 t and 2 t + 1 of row g, then of row g + 8.
__device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same of f16.
__device__ inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same of 32 elements along k, u8 times s8, sums s32: mma.m16n8k32, sm_80 and up. Lane 4 g + t
// holds of a, four elements a register, rows g, g + 8, g, g + 8 at columns 4 t, 4 t, 4 t + 16 and
// 4 t + 16; of b rows 4 t and 4 t + 16 of column g.
__device__ inline void mma_codes(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// The same of 16 elements.
__device__ inline void mma_codes(int (&d)[4], const uint32_t (&a)[2], uint32_t b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

// (a & mask) | bits, one instruction.
template <uint32_t mask, uint32_t bits>
__device__ inline uint32_t and_or(uint32_t a) {
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(a), "n"(mask), "n"(bits));
    return result;
}
template <uint32_t mask>
__device__ inline uint32_t and_or(uint32_t a, uint32_t bits) {
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(a), "n"(mask), "r"(bits));
    return result;
}

}  // namespace ridge::cuda
