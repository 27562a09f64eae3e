#pragma once

#include "cuda/device/block.cuh"
#include "cuda/sample_order.h"

// Candidates in shared memory, on all threads of a block of kSampleThreads.

namespace ridge::cuda {

constexpr int kSampleThreads = 1024, kSampleWarps = kSampleThreads / 32;
constexpr int kListRoom = 2 * kSampleThreads;  // candidates, two for each thread

// Descending; n is a power of two, at most kListRoom. The list is complete for all threads before,
// and when it returns. A bitonic network: what one warp compares at distances up to 32 lies within
// its own 64 elements, so that only wider steps wait for the other warps.
__device__ inline void sort_descending(Candidate* list, int n) {
    for (int size = 2; size <= n; size *= 2) {
        for (int distance = size / 2; distance > 0; distance /= 2) {
            for (int i = static_cast<int>(threadIdx.x); i < n / 2; i += kSampleThreads) {
                const int low = first_of_pair(i, distance), high = low + distance;
                const Candidate a = list[low], b = list[high];
                const bool descending = (low & size) == 0;
                if ((a < b) == descending) list[low] = b, list[high] = a;
            }
            const int next = distance > 1 ? distance / 2 : size;
            if (max(distance, next) > 32) {
                __syncthreads();  // elements change from warp to warp
            } else {
                __syncwarp();  // and here from lane to lane
            }
        }
    }
    __syncthreads();  // the list is in order
}

// prefix[i] = the sum of weight_of(list[0]) to weight_of(list[i]), for i below n, at most
// kListRoom; a thread adds the two weights of its own. `prefix` is complete when it returns.
__device__ inline void sum_weights(const Candidate* list, int n, float highest, float temperature,
                                   double* prefix, double* partial) {
    const int i = 2 * static_cast<int>(threadIdx.x);
    const double a = i < n ? weight_of(logit_of(list[i]), highest, temperature) : 0;
    const double b = i + 1 < n ? weight_of(logit_of(list[i + 1]), highest, temperature) : 0;
    const double sum = block_prefix_sum(a + b, partial);
    if (i < n) prefix[i] = sum - b;
    if (i + 1 < n) prefix[i + 1] = sum;
    __syncthreads();  // prefix is complete
}

}  // namespace ridge::cuda
