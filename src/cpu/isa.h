#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

// Instruction sets that the CPU's kernels are written for, each adding to those before it (neon
// stands alone). One translation unit each in cpu/isa, compiled for that set and entered only where
// the machine has it.
enum class Isa : uint8_t {
    kScalar,  // what every machine of its kind has
    kAvx2,    // AVX2, FMA, F16C
    kAvx512,  // AVX-512 F, BW, VL, DQ and VNNI; BF16 where present
    kAmx,     // the former with BF16, and AMX tiles of bf16
    kNeon,    // Advanced SIMD with dotprod; i8mm and bf16 where present
};

std::string_view isa_name(Isa isa);  // "avx512"

// What this machine has, the best last: scalar is always there.
std::vector<Isa> available_isas();

// The names of all, as "scalar, avx2".
std::string known_isas();

// The best that the machine has, at most `cap` ("avx2"; empty: no cap). Error for an unknown name,
// and for one that this machine does not have, naming those that it has.
Isa choose_isa(std::string_view cap);

}  // namespace ridge
