#include "cpu/isa/all_kernels.h"
#include "cpu/isa/probes.h"
#include "cpu/isa/vector_avx512.h"

namespace ridge::cpu {
namespace {

struct VnniProduct {
    using Sum = __m512i;
    static constexpr int kSums = 24;
    static constexpr int64_t kOps = 2 * 64;
    static Sum load_sum(const uint8_t* p) { return Avx512::load(p); }
    static Sum load(const uint8_t* p) { return Avx512::load(p); }
    static Sum multiply(Sum sum, Sum a, Sum b) { return _mm512_dpbusd_epi32(sum, a, b); }
};

}  // namespace

void add_avx512_kernels(Kernels& kernels) {
    fill_all_kernels<Avx512>(kernels, true);
    fill_probe_kernels<Avx512, 24>(kernels.probes, "vfmadd, 512 bits");
    kernels.probes.arithmetic[kInt8Dot] = arithmetic_probe<VnniProduct>("vpdpbusd, 512 bits");
}

}  // namespace ridge::cpu
