#pragma once

#include <cstdint>

// Sums, maxima and prefix sums over the threads of a warp or a block of whole warps, each in one
// order that the number of threads alone decides.

namespace ridge::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline int lane_of_thread() {
    return static_cast<int>(threadIdx.x % 32);
}
__device__ inline int warp_of_thread() {
    return static_cast<int>(threadIdx.x / 32);
}

// In every lane.
template <class T>
__device__ T warp_sum(T x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
    return x;
}
template <class T>
__device__ T warp_max(T x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        const T other = __shfl_xor_sync(kAllLanes, x, lanes);
        x = x < other ? other : x;
    }
    return x;
}
// x of this lane and of those before it.
template <class T>
__device__ T warp_prefix_sum(T x) {
    for (int lanes = 1; lanes < 32; lanes *= 2) {
        const T before = __shfl_up_sync(kAllLanes, x, lanes);
        if (lane_of_thread() >= lanes) x += before;
    }
    return x;
}

// The following hand x from warp to warp in `partial` [32] of shared memory, which may be used
// again when they return.

template <class T>
__device__ T block_sum(T x, T* partial) {
    x = warp_sum(x);
    if (lane_of_thread() == 0) partial[warp_of_thread()] = x;
    __syncthreads();  // partial is complete
    x = warp_sum(lane_of_thread() < static_cast<int>(blockDim.x / 32) ? partial[lane_of_thread()]
                                                                      : T(0));
    __syncthreads();  // and has been read
    return x;
}
// T(0) where nothing is greater.
template <class T>
__device__ T block_max(T x, T* partial) {
    x = warp_max(x);
    if (lane_of_thread() == 0) partial[warp_of_thread()] = x;
    __syncthreads();  // partial is complete
    x = warp_max(lane_of_thread() < static_cast<int>(blockDim.x / 32) ? partial[lane_of_thread()]
                                                                      : T(0));
    __syncthreads();  // and has been read
    return x;
}
// x of this thread and of those before it.
template <class T>
__device__ T block_prefix_sum(T x, T* partial) {
    x = warp_prefix_sum(x);
    if (lane_of_thread() == 31) partial[warp_of_thread()] = x;
    __syncthreads();  // partial is complete
    const T sums = warp_prefix_sum(
        lane_of_thread() < static_cast<int>(blockDim.x / 32) ? partial[lane_of_thread()] : T(0));
    const T before = __shfl_sync(kAllLanes, sums, max(warp_of_thread() - 1, 0));
    __syncthreads();  // and has been read
    return warp_of_thread() == 0 ? x : before + x;
}

}  // namespace ridge::cuda
