#pragma once

#include <cstdint>

namespace ridge::cpu {

// Loops that do one thing alone, as fast as the machine can: what the ceilings of a roofline are
// measured with (cpu/ceilings.cpp). Numbers that are returned depend on all that was read or
// computed, so that nothing is left out.

constexpr int64_t kProbeBytes = 512;     // what loops over memory do at a time
constexpr int64_t kOperandBytes = 4096;  // of an ArithmeticProbe

enum ProbeIndex : int { kF32Fma, kBf16Dot, kInt8Dot, kBf16Matrix, kInt8Matrix, kNumProbes };

struct ArithmeticProbe {
    const char* instruction;  // "vfmadd"; null: the instruction set has none of this kind
    int64_t ops_per_round;    // a multiplication and an addition are two
    // operands [kOperandBytes]: float32 for kF32Fma, bf16, or int8 codes, none of them zero,
    // infinite or NaN.
    uint64_t (*run)(const uint8_t* operands, int64_t n_rounds);
};

struct ProbeKernels {
    // data [n_bytes], whole runs of kProbeBytes; what is behind the last one is left out.
    uint64_t (*read)(const uint8_t* data, int64_t n_bytes);
    // The same, with the lines 4 KiB further on asked for: faster from memory, slower from a cache.
    uint64_t (*read_ahead)(const uint8_t* data, int64_t n_bytes);
    void (*copy)(const uint8_t* from, uint8_t* to, int64_t n_bytes);
    ArithmeticProbe arithmetic[kNumProbes];
};

}  // namespace ridge::cpu
