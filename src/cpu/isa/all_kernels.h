#pragma once

#include "cpu/isa/compact_kernels.h"
#include "cpu/isa/compact_pack.h"
#include "cpu/isa/decode_attention.h"
#include "cpu/isa/gemm_kernels.h"
#include "cpu/isa/group_kernels.h"
#include "cpu/isa/pack_groups.h"
#include "cpu/isa/round_rows.h"
#include "cpu/isa/row_kernels.h"

namespace ridge::cpu {
namespace {

// All of Kernels that every instruction set has, over its vector type V; products with a single row
// over Single, those of float32 over FloatSingle (group_kernel).
template <class V, class Single = V, class FloatSingle = Single>
void fill_all_kernels(Kernels& kernels, bool compact_is_faster) {
    kernels.quantise_row = quantise_row;
    kernels.bf16_row = bf16_row;
    fill_row_kernels(kernels.rows);
    fill_group_kernels<V, Single, FloatSingle>(kernels);
    fill_gemm_kernels<V>(kernels.gemm);
    fill_pack_kernels(kernels.pack);
    fill_compact_kernels<V, FloatSingle>(kernels.compact);
    kernels.compact.measure = measure_compact;
    kernels.compact.pack = pack_compact;
    kernels.compact.faster = compact_is_faster;
    fill_attention_kernels<V>(kernels.attention);
}

}  // namespace
}  // namespace ridge::cpu
