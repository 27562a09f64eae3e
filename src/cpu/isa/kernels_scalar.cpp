#include "cpu/isa/all_kernels.h"
#include "cpu/isa/vector_scalar.h"

namespace ridge::cpu {

void add_scalar_kernels(Kernels& kernels) {
    fill_all_kernels<Scalar>(kernels, false);
}

}  // namespace ridge::cpu
