#include "cpu/kernels_of_isa.h"

#include "base/cpu_features.h"

namespace ridge::cpu {

Kernels kernels_of_isa(Isa isa) {
    Kernels kernels{};
    add_scalar_kernels(kernels);
#if defined(__x86_64__)
    if (isa == Isa::kAvx2 || isa == Isa::kAvx512 || isa == Isa::kAmx) add_avx2_kernels(kernels);
    if (isa == Isa::kAvx512 || isa == Isa::kAmx) {
        add_avx512_kernels(kernels);
        if (cpu_features().avx512_bf16) add_avx512_bf16_kernels(kernels);
        if (isa == Isa::kAmx) {
            add_amx_kernels(kernels);
            if (!cpu_features().amx_int8) kernels.probes.arithmetic[kInt8Matrix] = {};
        }
    }
#elif defined(__aarch64__)
    if (isa == Isa::kNeon) {
        add_neon_kernels(kernels);
        if (cpu_features().neon_bf16) add_neon_bf16_kernels(kernels);
        if (cpu_features().neon_i8mm) add_neon_i8mm_kernels(kernels);
    }
#endif
    return kernels;
}

const Kernels& kernels_of(const Step& s) {
    CHECK(s.tables.kernels != nullptr);
    return *static_cast<const Kernels*>(s.tables.kernels);
}

}  // namespace ridge::cpu
