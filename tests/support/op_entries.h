#pragma once

#include <cstddef>

#include "cases/case.h"
#include "model/tables.h"

namespace ridge {

// How many bodies the node of an operator has: a checkpoint that adds one changes what runs.
inline size_t n_entries(const Tables& tables, Op op) {
    const Ops& ops = tables.ops;
    switch (op) {
        case Op::kEmbedRows:
            return ops.embed_rows.entries().size();
        case Op::kRmsNorm:
            return ops.rms_norm.entries().size();
        case Op::kMatmul:
            return ops.matmul.entries().size();
        case Op::kRope:
            return ops.rope.entries().size();
        case Op::kKvAppend:
            return ops.kv_append.entries().size();
        case Op::kAttention:
            return ops.attention.entries().size();
        case Op::kSwiglu:
            return ops.swiglu.entries().size();
        case Op::kAdd:
            return ops.add.entries().size();
        case Op::kSample:
            return ops.sample.entries().size();
    }
    return 0;
}

}  // namespace ridge
