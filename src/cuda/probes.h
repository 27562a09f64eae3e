#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/context.h"

namespace ridge::cuda {

// Kernels that do one thing alone, on all multiprocessors, n_rounds times over: what the device can
// at most do. Each starts one kernel on the context's stream, and returns what it does: bytes, or
// multiplications and additions.
//
// `sink` [1] is of device memory and is never written: it keeps the work alive.
struct Probe {
    const Context& c;
    int* sink;

    // All bytes by 16-byte loads past the first cache, eight in flight a thread. Level 2: so that
    // they stay in the second cache; memory: so that they are the first to leave it.
    enum class Level : uint8_t { kL2, kMemory };
    int64_t read(Level level, const std::byte* from, int64_t n_bytes, int n_rounds) const;
    // Counted: what is read and what is written.
    int64_t copy(Level level, const std::byte* from, std::byte* to, int64_t n_bytes,
                 int n_rounds) const;
    // 16-byte loads of shared memory, in which no two lanes of a quarter of a warp meet a bank.
    int64_t read_shared(int n_rounds) const;

    int64_t f32(int n_rounds) const;  // fmaf, 16 sums a thread
    // mma.sync, eight tiles of sums a warp: m16n8k16 of f16 or bf16 into f32, m16n8k32 of int8.
    int64_t f16_tensor(int n_rounds) const;
    int64_t bf16_tensor(int n_rounds) const;
    int64_t int8_tensor(int n_rounds) const;
};

}  // namespace ridge::cuda
