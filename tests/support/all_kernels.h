#pragma once

#include <deque>
#include <string_view>

#include "base/cpu_features.h"
#include "base/error.h"
#include "cpu/isa.h"
#include "cpu/kernels_of_isa.h"
#include "support/thin.h"

namespace ridge {

struct IsaKernels {
    std::string_view name;
    cpu::Kernels kernels;
};

constexpr std::string_view kTilesName = "tiles in plain C++";

// The kernels of every instruction set that this machine has and that RIDGE_TEST_ISA does not leave
// out; of AVX-512 without its BF16, which the machine may have beside it; and AMX's in plain C++.
// BF16 weights become compact with all of them.
inline std::deque<IsaKernels> kernels_of_all_isas() {
    std::deque<IsaKernels> all;
    auto add = [&](std::string_view name, const cpu::Kernels& kernels) {
        all.push_back({name, kernels});
        all.back().kernels.compact.faster = true;
    };
    for (Isa isa : available_isas()) {
        if (isa_is_tested(isa_name(isa))) add(isa_name(isa), cpu::kernels_of_isa(isa));
#if defined(__x86_64__)
        constexpr std::string_view kWithoutBf16 = "avx512 without bf16";
        if (isa != Isa::kAvx512 || !cpu_features().avx512_bf16) continue;
        if (!isa_is_tested(kWithoutBf16)) continue;
        cpu::Kernels kernels = cpu::kernels_of_isa(Isa::kAvx2);
        cpu::add_avx512_kernels(kernels);
        add(kWithoutBf16, kernels);
#endif
    }
    if (isa_is_tested(kTilesName)) {
        cpu::Kernels kernels = cpu::kernels_of_isa(Isa::kScalar);
        cpu::add_scalar_tile_kernels(kernels);
        add(kTilesName, kernels);
    }
    if (all.empty()) {
        throw Error(ErrorKind::kUsage, "RIDGE_TEST_ISA: not a set that this machine has");
    }
    return all;
}

}  // namespace ridge
