#pragma once

#include <cstdint>

#include "cuda/device/fragments.cuh"

// Single instructions that C++ has no name for. Those of device/async.cuh, device/fragments.cuh,
// device/mma.cuh and these have twins in tests/kernels_on_host, by which kernels run on a host.

namespace ridge::cuda {

// Two float32 rounded to nearest even, the first in the lower half.
__device__ inline uint32_t two_f16(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
__device__ inline uint32_t two_bf16(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// The greater of x and |y|; NaN if one of them is.
__device__ inline float greater_or_nan(float x, float y) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(fabsf(y)));
    return result;
}

// 2^x within 2 ulp (ex2.approx of PTX ISA 1.4); 0 below 2^-126, 0 of -inf, NaN of NaN.
__device__ inline float exp2_near(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// What is read once a step, where it is wanted; loads of 16 bytes pass the first cache by and leave
// the second one first. Volatile, so that it stays before the wait for the kernel before; without a
// branch, so that one piece of code serves the last chunks, too.
template <class T>
__device__ inline void load_once(T& x, const uint8_t* at, bool wanted) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
    if constexpr (sizeof(T) == 16) {
        asm volatile(
            "{.reg .pred p; setp.ne.b32 p, %5, 0;\n"
            "@p ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %6;}"
            : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w)
            : "l"(at), "r"(static_cast<int>(wanted)), "l"(leaves_first()));
    } else if constexpr (sizeof(T) == 8) {
        asm volatile(
            "{.reg .pred p; setp.ne.b32 p, %3, 0;\n"
            "@p ld.global.nc.v2.u32 {%0, %1}, [%2];}"
            : "+r"(x.x), "+r"(x.y)
            : "l"(at), "r"(static_cast<int>(wanted)));
    } else {
        asm volatile(
            "{.reg .pred p; setp.ne.b32 p, %2, 0;\n"
            "@p ld.global.nc.u32 %0, [%1];}"
            : "+r"(x)
            : "l"(at), "r"(static_cast<int>(wanted)));
    }
}

// What lies at an address in shared memory. Volatile, so that it stays behind the wait for the
// copies that bring it.
template <class T>
__device__ inline void load_shared(T& x, SharedAddress at) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
    if constexpr (sizeof(T) == 16) {
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "r"(at));
    } else if constexpr (sizeof(T) == 8) {
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(at));
    } else {
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(at));
    }
}

// The same in lanes that have it; others keep what they have.
template <int n>
__device__ inline void load_where(uint32_t (&x)[n], SharedAddress at, bool wanted) {
    static_assert(n == 2 || n == 4);
    if constexpr (n == 4) {
        asm volatile(
            "{.reg .pred p; setp.ne.b32 p, %5, 0;\n"
            "@p ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];}"
            : "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3])
            : "r"(at), "r"(static_cast<int>(wanted)));
    } else {
        asm volatile(
            "{.reg .pred p; setp.ne.b32 p, %3, 0;\n"
            "@p ld.shared.v2.u32 {%0, %1}, [%2];}"
            : "+r"(x[0]), "+r"(x[1])
            : "r"(at), "r"(static_cast<int>(wanted)));
    }
}

// Four numbers of what a kernel before has written. Volatile, so that all of several are asked for
// before one is used.
__device__ inline void load_quad(float4& x, const float* at) {
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "l"(at));
}

}  // namespace ridge::cuda
