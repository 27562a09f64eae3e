#pragma once

#include <cstdint>

namespace ridge::cuda {

// Copies from global to shared memory that go on beside other work (cp.async, sm_80 and up). A
// thread's copies are committed as a group, and waited for by how many groups may still be open.
template <int n_bytes>
__device__ inline void copy_async(void* to, const void* from) {
    const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    if constexpr (n_bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from));
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(from),
                     "n"(n_bytes));
    }
}
__device__ inline void commit_copies() {
    asm volatile("cp.async.commit_group;");
}
template <int n_open>
__device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(n_open) : "memory");
}

// Brings what lies there to the first cache.
__device__ inline void prefetch(const void* at) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(at));
}

// Programmatic dependent launch: what lies before wait_for_previous_kernel() may run while the
// kernel before still does, and those before that one, where they let the next start as they begin:
// it may read only what no kernel has written since the last one that was launched plainly
// (embed_rows, with which a step begins). After it, all that they wrote is seen. Where kernels are
// not launched so both do nothing.
__device__ inline void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace ridge::cuda
