#pragma once

#include <string_view>
#include <vector>

namespace ridge {

// What this machine's processor can do, and the operating system lets it, as far as kernels ask.
struct CpuFeatures {
    bool avx2 = false, fma = false, f16c = false;
    bool avx512f = false, avx512bw = false, avx512vl = false, avx512dq = false;
    bool avx512_vnni = false, avx512_bf16 = false;
    bool amx_bf16 = false, amx_int8 = false;  // tiles granted to this process, too
    bool neon_dotprod = false, neon_i8mm = false, neon_bf16 = false;
};

// Asked once; the first call asks Linux for the use of AMX tiles, which holds for every thread.
const CpuFeatures& cpu_features();
// Those that are there, as their makers write them: "avx2", "avx512_vnni", "amx_bf16".
std::vector<std::string_view> cpu_feature_names();

}  // namespace ridge
