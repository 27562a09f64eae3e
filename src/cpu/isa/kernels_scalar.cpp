#include "cpu/isa/attention.h"
#include "cpu/isa/compact_kernels.h"
#include "cpu/isa/compact_pack.h"
#include "cpu/isa/gemm_kernels.h"
#include "cpu/isa/group_kernels.h"
#include "cpu/isa/row_kernels.h"
#include "cpu/isa/step_kernels.h"
#include "cpu/isa/vector_scalar.h"

namespace ridge::cpu {

void add_scalar_kernels(Kernels& kernels) {
    kernels.quantise_row = quantise_row;
    fill_row_kernels(kernels.rows);
    kernels.bf16_row = bf16_row;
    fill_group_kernels<Scalar>(kernels);
    fill_gemm_kernels<Scalar>(kernels.gemm);
    fill_compact_kernels<Scalar>(kernels.compact);
    fill_pack_kernels(kernels.pack);
    kernels.compact.measure = measure_compact;
    kernels.compact.pack = pack_compact;
    kernels.compact.faster = false;
    fill_attention_kernels<Scalar>(kernels.attention);
}

}  // namespace ridge::cpu
