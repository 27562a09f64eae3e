#pragma once

#include <cstdint>

// What attention, and in part matvec, ask of the machine: operands of mma.m16n8k16
// (device/mma.cuh), how they come there by way of shared memory, and what leaves the second cache.

namespace ridge::cuda {

using SharedAddress = uint32_t;
__device__ inline SharedAddress shared_address(const void* at) {
    return static_cast<SharedAddress>(__cvta_generic_to_shared(at));
}

// 16 bytes from global memory beside other work (device/async.cuh); zeros where `wanted` is false,
// and nothing is read then. kWholeLines: whoever reads 64 bytes of a line of 128 leaves the rest to
// another warp, which will want it next, so that the second cache fetches it whole.
constexpr bool kWholeLines = true;
template <bool whole_lines = false>
__device__ inline void copy_async(SharedAddress to, const void* from, bool wanted = true) {
    if constexpr (whole_lines) {
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                     "r"(wanted ? 16 : 0)
                     : "memory");
    } else {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                     "r"(wanted ? 16 : 0)
                     : "memory");
    }
}

// For what is read once a step, such as weights: it leaves the second cache before all else does.
// A step reads more than the cache holds, and would push out what its kernels share: their
// instructions and arguments, norms, rows of x, the youngest positions of the KV cache.
__device__ inline uint64_t leaves_first() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ inline void copy_once(SharedAddress to, const void* from) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(from), "l"(leaves_first())
                 : "memory");
}

// Four matrices of 8 x 8 numbers of 16 bits: ldmatrix of PTX ISA 6.5. Lane 8 i + r says where row r
// of matrix i lies, 16 bytes; lane 4 g + t gets of each matrix numbers 2 t and 2 t + 1 of row g; or
// transposed, rows 2 t and 2 t + 1 of column g, as an operand b of mma.m16n8k16 has them.
__device__ inline void load_matrices(uint32_t (&x)[4], SharedAddress row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(row)
                 : "memory");
}
__device__ inline void load_transposed(uint32_t (&x)[4], SharedAddress row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(row)
                 : "memory");
}

}  // namespace ridge::cuda
