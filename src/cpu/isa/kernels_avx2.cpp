#include "cpu/isa/all_kernels.h"
#include "cpu/isa/vector_avx2.h"

namespace ridge::cpu {

void add_avx2_kernels(Kernels& kernels) {
    fill_all_kernels<Avx2, Avx2, Avx2Group>(kernels, true);
}

}  // namespace ridge::cpu
