#include "base/cpu_features.h"

#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace ridge {
namespace {

#if defined(__x86_64__)
// Tiles are state of 8 KiB a thread, which Linux grants on request alone.
bool request_amx_tiles() {
#if defined(__linux__)
    constexpr int kArchReqXcompPerm = 0x1023, kXfeatureTileData = 18;
    return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
#else
    return false;
#endif
}

CpuFeatures find_features() {
    CpuFeatures f;
    __builtin_cpu_init();  // its answers include whether the system saves the registers
    f.avx2 = __builtin_cpu_supports("avx2");
    f.fma = __builtin_cpu_supports("fma");
    f.avx512f = __builtin_cpu_supports("avx512f");
    f.avx512bw = __builtin_cpu_supports("avx512bw");
    f.avx512vl = __builtin_cpu_supports("avx512vl");
    f.avx512dq = __builtin_cpu_supports("avx512dq");
    f.avx512_vnni = __builtin_cpu_supports("avx512vnni");
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) != 0) f.f16c = (c >> 29 & 1) != 0;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) {
        f.avx512_bf16 = f.avx512f && (a >> 5 & 1) != 0;
    }
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
        const bool bf16 = (d >> 22 & 1) != 0, tile = (d >> 24 & 1) != 0, int8 = (d >> 25 & 1) != 0;
        if (bf16 && tile && request_amx_tiles()) f.amx_bf16 = true, f.amx_int8 = int8;
    }
    return f;
}
#elif defined(__aarch64__)
CpuFeatures find_features() {
    CpuFeatures f;
#if defined(__linux__)
    const unsigned long one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
    f.neon_dotprod = (one & HWCAP_ASIMDDP) != 0;
    f.neon_i8mm = (two & HWCAP2_I8MM) != 0;
    f.neon_bf16 = (two & HWCAP2_BF16) != 0;
#elif defined(__APPLE__)
    auto has = [](const char* name) {
        int value = 0;
        size_t size = sizeof value;
        return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
    };
    f.neon_dotprod = has("hw.optional.arm.FEAT_DotProd");
    f.neon_i8mm = has("hw.optional.arm.FEAT_I8MM");
    f.neon_bf16 = has("hw.optional.arm.FEAT_BF16");
#endif
    return f;
}
#else
CpuFeatures find_features() {
    return {};
}
#endif

}  // namespace

const CpuFeatures& cpu_features() {
    static const CpuFeatures features = find_features();
    return features;
}

std::vector<std::string_view> cpu_feature_names() {
    const CpuFeatures& f = cpu_features();
    const std::pair<bool, std::string_view> all[] = {
        {f.avx2, "avx2"},
        {f.fma, "fma"},
        {f.f16c, "f16c"},
        {f.avx512f, "avx512f"},
        {f.avx512bw, "avx512bw"},
        {f.avx512vl, "avx512vl"},
        {f.avx512dq, "avx512dq"},
        {f.avx512_vnni, "avx512_vnni"},
        {f.avx512_bf16, "avx512_bf16"},
        {f.amx_bf16, "amx_bf16"},
        {f.amx_int8, "amx_int8"},
        {f.neon_dotprod, "dotprod"},
        {f.neon_i8mm, "i8mm"},
        {f.neon_bf16, "bf16"},
    };
    std::vector<std::string_view> names;
    for (const auto& [there, name] : all) {
        if (there) names.push_back(name);
    }
    return names;
}

}  // namespace ridge
