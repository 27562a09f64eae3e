#include "cpu/isa/all_kernels.h"
#include "cpu/isa/vector_avx512.h"

namespace ridge::cpu {

void add_avx512_kernels(Kernels& kernels) {
    fill_all_kernels<Avx512>(kernels, true);
}

}  // namespace ridge::cpu
