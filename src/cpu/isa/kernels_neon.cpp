#include "cpu/isa/all_kernels.h"
#include "cpu/isa/probes.h"
#include "cpu/isa/vector_neon.h"

namespace ridge::cpu {
namespace {

struct DotProduct {
    using Sum = int32x4_t;
    static constexpr int kSums = 24;
    static constexpr int64_t kOps = 2 * 16;
    static Sum load_sum(const uint8_t* p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
    static int8x16_t load(const uint8_t* p) { return vreinterpretq_s8_u8(vld1q_u8(p)); }
    static Sum multiply(Sum sum, int8x16_t a, int8x16_t b) { return vdotq_s32(sum, a, b); }
};

}  // namespace

void add_neon_kernels(Kernels& kernels) {
    fill_all_kernels<Neon8, Neon16>(kernels, true);
    fill_probe_kernels<Neon4, 24>(kernels.probes, "fmla");
    kernels.probes.arithmetic[kInt8Dot] = arithmetic_probe<DotProduct>("sdot");
}

}  // namespace ridge::cpu
