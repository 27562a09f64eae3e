#pragma once

#include <string>
#include <vector>

#include "cases/case.h"
#include "model/tables.h"

namespace ridge {

// The tables at one checkpoint of the CPU, on one instruction set.
struct CheckpointTables {
    std::string name;  // "gemm on avx2"
    Tables tables;
};

// The checkpoints that change what runs for `op`, on every instruction set that this machine has
// where they depend on it; but not the reference itself where others do.
std::vector<CheckpointTables> checkpoints_of(Op op, int n_threads);

// The reference for one checkpoint: as ref/, but a matmul or an attention whose operands the
// checkpoint's kernels round gets operands that are rounded so, and is exact from there on.
Tables reference_for(const CheckpointTables& checkpoint);

// Whether the checkpoint's attention rounds what the case's prompt rows multiply.
bool rounds_attention(const CheckpointTables& checkpoint, const Case& c);

}  // namespace ridge
