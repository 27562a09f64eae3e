#include "cpu/isa/all_kernels.h"
#include "cpu/isa/vector_neon.h"

namespace ridge::cpu {

void add_neon_kernels(Kernels& kernels) {
    fill_all_kernels<Neon8, Neon16>(kernels, true);
}

}  // namespace ridge::cpu
