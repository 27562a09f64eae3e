#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

// What CUDA kernels need to run on a host, a block at a time: its threads take turns, each until it
// waits for others. What C++ does is what a device does; the instructions that C++ has no name for
// are in the twins of device headers beside this one. To be included before any kernel.

#undef __launch_bounds__
#undef __grid_constant__
#undef __forceinline__
#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline
#define __global__ inline
#define __device__
#define __host__
#define __shared__

using std::max;
using std::min;

namespace ridge::host_device {

// Where n_bytes lie in the shared memory of the block that runs, which kernels have as `shared`.
// The process ends where the block has less, or where they are not aligned.
uint8_t* in_shared_memory(uint32_t address, size_t n_bytes);
uint32_t shared_address_of(const void* at);

// Runs kernel() as each thread of each block of a grid. Shared memory is all ones at first.
void run_grid(unsigned n_blocks, int n_threads, int n_shared_bytes,
              const std::function<void()>& kernel);

// What each lane of the thread's warp gives; every one of them calls it.
using LaneWords = std::array<uint32_t, 12>;
const std::array<LaneWords, 32>& exchange(const LaneWords& mine);
// All lanes have read what they exchanged.
void end_exchange();
int lane();
void sync_warp();
void sync_block();

}  // namespace ridge::host_device

inline uint3 threadIdx, blockIdx;
inline dim3 gridDim, blockDim;

inline void __syncwarp(unsigned = 0) {
    ridge::host_device::sync_warp();
}
inline void __syncthreads() {
    ridge::host_device::sync_block();
}
template <class T>
T __shfl_sync(unsigned, T x, int from) {
    using namespace ridge::host_device;
    x = std::bit_cast<T>(exchange({std::bit_cast<uint32_t>(x)})[static_cast<size_t>(from)][0]);
    end_exchange();
    return x;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T x, int lanes) {
    return __shfl_sync(mask, x, ridge::host_device::lane() ^ lanes);
}
template <class T>
T __shfl_up_sync(unsigned mask, T x, int lanes) {
    const int lane = ridge::host_device::lane();
    return __shfl_sync(mask, x, lane < lanes ? lane : lane - lanes);
}
inline uint32_t __reduce_max_sync(unsigned, uint32_t x) {
    using namespace ridge::host_device;
    for (const LaneWords& words : exchange({x})) x = std::max(x, words[0]);
    end_exchange();
    return x;
}
inline float __uint_as_float(uint32_t bits) {
    return std::bit_cast<float>(bits);
}
inline uint32_t __float_as_uint(float x) {
    return std::bit_cast<uint32_t>(x);
}
inline float __fdividef(float a, float b) {
    return a / b;
}
inline float __expf(float x) {
    return std::exp(x);
}
inline float rsqrtf(float x) {
    return 1 / std::sqrt(x);
}
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t from = selector >> (4 * i) & 7;
        result |= static_cast<uint32_t>(bytes >> (8 * from) & 255) << (8 * i);
    }
    return result;
}
