#include "cpu/isa/group_kernels.h"
#include "cpu/isa/row_kernels.h"
#include "cpu/isa/vector_scalar.h"

namespace ridge::cpu {

void add_scalar_kernels(Kernels& kernels) {
    kernels.quantise_row = quantise_row;
    fill_group_kernels<Scalar>(kernels.group);
}

}  // namespace ridge::cpu
