#include "cuda/check.h"
#include "cuda/device/mma.cuh"
#include "cuda/probes.h"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 512, kBlocksPerSm = 2, kLoads = 8;

// One of the two hints; volatile, so that no load is left out as equal to an earlier one.
template <bool stays>
__device__ uint4 load(const uint4* at) {
    uint4 w;
    if constexpr (stays) {
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                     : "l"(at));
    } else {
        asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                     : "l"(at));
    }
    return w;
}
template <bool stays>
__device__ void store(uint4* at, uint4 w) {
    if constexpr (stays) {
        asm volatile("st.global.cg.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(w.x), "r"(w.y),
                     "r"(w.z), "r"(w.w)
                     : "memory");
    } else {
        asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(w.x), "r"(w.y),
                     "r"(w.z), "r"(w.w)
                     : "memory");
    }
}

// n 16-byte words, over and over. What is compared with never comes.
template <bool stays>
__global__ void __launch_bounds__(kThreads)
    read_kernel(const uint4* words, int64_t n, int n_rounds, int* sink) {
    const int64_t stride = int64_t{gridDim.x} * kThreads;
    uint32_t sum = 0;
    for (int round = 0; round < n_rounds; round++) {
        for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
             i += stride * kLoads) {
            uint4 w[kLoads];
#pragma unroll
            for (int l = 0; l < kLoads; l++) {
                const int64_t at = i + l * stride;
                w[l] = at < n ? load<stays>(words + at) : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (int l = 0; l < kLoads; l++) sum += (w[l].x ^ w[l].y) + (w[l].z ^ w[l].w);
        }
    }
    if (sum == 0x9e3779b9u && n_rounds < 0) *sink = 1;
}

template <bool stays>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(const uint4* from, uint4* to, int64_t n, int n_rounds) {
    const int64_t stride = int64_t{gridDim.x} * kThreads;
    for (int round = 0; round < n_rounds; round++) {
        for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
             i += stride * kLoads) {
            uint4 w[kLoads];
#pragma unroll
            for (int l = 0; l < kLoads; l++) {
                const int64_t at = i + l * stride;
                if (at < n) w[l] = load<stays>(from + at);
            }
#pragma unroll
            for (int l = 0; l < kLoads; l++) {
                const int64_t at = i + l * stride;
                if (at < n) store<stays>(to + at, w[l]);
            }
        }
    }
}

constexpr int kSharedWords = 2 * kThreads;  // of 16 bytes: 16 KiB a block

__global__ void __launch_bounds__(kThreads) shared_kernel(int n_rounds, int* sink) {
    __shared__ uint4 words[kSharedWords];
    for (int i = static_cast<int>(threadIdx.x); i < kSharedWords; i += kThreads) {
        words[i] = make_uint4(static_cast<unsigned>(i), 1, 2, 3);
    }
    __syncthreads();  // words are there
    const auto first = static_cast<uint32_t>(__cvta_generic_to_shared(words + threadIdx.x));
    uint32_t sum = 0;
    for (int round = 0; round < n_rounds; round++) {
#pragma unroll
        for (int l = 0; l < kLoads; l++) {
            uint4 w;
            // Volatile for ptxas, too, which would take an equal load's result again.
            asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                         : "r"(first + static_cast<uint32_t>(l % 2) * kThreads * 16));
            sum ^= w.x ^ w.y;
            sum ^= w.z ^ w.w;
        }
    }
    if (sum == 0x9e3779b9u && n_rounds < 0) *sink = 1;
}

constexpr int kSums = 16, kUnrolled = 8;

__global__ void __launch_bounds__(kThreads) f32_kernel(float a, float b, int n_rounds, int* sink) {
    float sum[kSums];
#pragma unroll
    for (int i = 0; i < kSums; i++) sum[i] = static_cast<float>(threadIdx.x + i) * 1e-3f;
    for (int round = 0; round < n_rounds; round++) {
#pragma unroll
        for (int u = 0; u < kUnrolled; u++) {
#pragma unroll
            for (int i = 0; i < kSums; i++) sum[i] = fmaf(sum[i], a, b);
        }
    }
    float all = 0;
#pragma unroll
    for (int i = 0; i < kSums; i++) all += sum[i];
    if (all == -12345.0f && n_rounds < 0) *sink = 1;
}

__device__ inline void mma_int8(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

enum class Operands : uint8_t { kF16, kBF16, kInt8 };
constexpr int kTensorThreads = 256, kTensorBlocksPerSm = 2, kTiles = 8;

// Two numbers of 16 bits from 0.5 up to 1 and their negatives in turns, or four codes of eight.
template <Operands operands>
__device__ uint32_t operand(uint32_t seed) {
    uint32_t bits = (seed + 1) * 0x9e3779b9u;
    bits ^= bits >> 15;
    if constexpr (operands == Operands::kF16) return 0xb8003800u | (bits & 0x03ff03ffu);
    if constexpr (operands == Operands::kBF16) return 0xbf003f00u | (bits & 0x007f007fu);
    return bits | 0x01010101u;
}

template <Operands operands>
__global__ void __launch_bounds__(kTensorThreads) tensor_kernel(int n_rounds, int* sink) {
    using Sum = std::conditional_t<operands == Operands::kInt8, int, float>;
    Sum sum[kTiles][4] = {};
    uint32_t a[4], b[2];
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = operand<operands>(threadIdx.x * 4 + i);
#pragma unroll
    for (int i = 0; i < 2; i++) b[i] = operand<operands>(threadIdx.x * 2 + i + 7777);
    for (int round = 0; round < n_rounds; round++) {
#pragma unroll
        for (int u = 0; u < kUnrolled; u++) {
#pragma unroll
            for (int t = 0; t < kTiles; t++) {
                if constexpr (operands == Operands::kF16) mma_f16(sum[t], a, b);
                if constexpr (operands == Operands::kBF16) mma_bf16(sum[t], a, b);
                if constexpr (operands == Operands::kInt8) mma_int8(sum[t], a, b);
            }
        }
    }
    Sum all = 0;
#pragma unroll
    for (int t = 0; t < kTiles; t++) all += sum[t][0] + sum[t][1] + sum[t][2] + sum[t][3];
    if (all == static_cast<Sum>(-12345) && n_rounds < 0) *sink = 1;
}

template <Operands operands>
int64_t run_tensor(const Probe& probe, int n_rounds) {
    const int n_blocks = kTensorBlocksPerSm * probe.c.n_sms;
    tensor_kernel<operands><<<static_cast<unsigned>(n_blocks), kTensorThreads, 0, probe.c.stream>>>(
        n_rounds, probe.sink);
    check_launch("measuring tensor units");
    constexpr int64_t kDepth = operands == Operands::kInt8 ? 32 : 16, kOps = 2 * 16 * 8 * kDepth;
    return int64_t{n_rounds} * n_blocks * (kTensorThreads / 32) * kUnrolled * kTiles * kOps;
}

}  // namespace

int64_t Probe::read(Level level, const std::byte* from, int64_t n_bytes, int n_rounds) const {
    const auto n_blocks = static_cast<unsigned>(kBlocksPerSm * c.n_sms);
    const auto* words = reinterpret_cast<const uint4*>(from);
    if (level == Level::kL2) {
        read_kernel<true><<<n_blocks, kThreads, 0, c.stream>>>(words, n_bytes / 16, n_rounds, sink);
    } else {
        read_kernel<false>
            <<<n_blocks, kThreads, 0, c.stream>>>(words, n_bytes / 16, n_rounds, sink);
    }
    check_launch("measuring reads");
    return n_bytes / 16 * 16 * n_rounds;
}

int64_t Probe::copy(Level level, const std::byte* from, std::byte* to, int64_t n_bytes,
                    int n_rounds) const {
    const auto n_blocks = static_cast<unsigned>(kBlocksPerSm * c.n_sms);
    const auto* words = reinterpret_cast<const uint4*>(from);
    auto* out = reinterpret_cast<uint4*>(to);
    if (level == Level::kL2) {
        copy_kernel<true><<<n_blocks, kThreads, 0, c.stream>>>(words, out, n_bytes / 16, n_rounds);
    } else {
        copy_kernel<false><<<n_blocks, kThreads, 0, c.stream>>>(words, out, n_bytes / 16, n_rounds);
    }
    check_launch("measuring copies");
    return 2 * (n_bytes / 16 * 16) * n_rounds;
}

int64_t Probe::read_shared(int n_rounds) const {
    const int n_blocks = kBlocksPerSm * c.n_sms;
    shared_kernel<<<static_cast<unsigned>(n_blocks), kThreads, 0, c.stream>>>(n_rounds, sink);
    check_launch("measuring shared memory");
    return int64_t{n_rounds} * n_blocks * kThreads * kLoads * 16;
}

int64_t Probe::f32(int n_rounds) const {
    const int n_blocks = kBlocksPerSm * c.n_sms;
    f32_kernel<<<static_cast<unsigned>(n_blocks), kThreads, 0, c.stream>>>(0.75f, 0.25f, n_rounds,
                                                                           sink);
    check_launch("measuring f32");
    return int64_t{2} * n_rounds * n_blocks * kThreads * kSums * kUnrolled;
}

int64_t Probe::f16_tensor(int n_rounds) const {
    return run_tensor<Operands::kF16>(*this, n_rounds);
}
int64_t Probe::bf16_tensor(int n_rounds) const {
    return run_tensor<Operands::kBF16>(*this, n_rounds);
}
int64_t Probe::int8_tensor(int n_rounds) const {
    return run_tensor<Operands::kInt8>(*this, n_rounds);
}

}  // namespace ridge::cuda
