#include "cpu/isa/all_kernels.h"
#include "cpu/isa/probes.h"
#include "cpu/isa/vector_avx2.h"

namespace ridge::cpu {
namespace {

// As the kernels have it: pairs to int16, pairs of those to int32, and the sum.
struct Avx2Int8Product {
    using Sum = __m256i;
    static constexpr int kSums = 10;
    static constexpr int64_t kOps = 2 * 32;
    static Sum load_sum(const uint8_t* p) { return Avx2::load(p); }
    static Sum load(const uint8_t* p) { return Avx2::load(p); }
    static Sum multiply(Sum sum, Sum a, Sum b) {
        asm volatile("" : "+x"(a));  // each product is the same, and is computed all the same
        return Avx2::add_pairs(sum, _mm256_maddubs_epi16(a, b));
    }
};

}  // namespace

void add_avx2_kernels(Kernels& kernels) {
    fill_all_kernels<Avx2, Avx2, Avx2Group>(kernels, true);
    fill_probe_kernels<Avx2, 12>(kernels.probes, "vfmadd, 256 bits");
    kernels.probes.arithmetic[kInt8Dot] =
        arithmetic_probe<Avx2Int8Product>("vpmaddubsw, vpmaddwd, vpaddd, 256 bits");
}

}  // namespace ridge::cpu
