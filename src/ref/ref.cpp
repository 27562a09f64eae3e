#include "ref/ref.h"

namespace ridge::ref {

void add_ref_ops(Tables& tables, std::string_view checkpoint) {
    Ops& ops = tables.ops;
    ops.embed_rows.set(checkpoint, embed_rows);
    ops.rms_norm.set(checkpoint, rms_norm);
    ops.matmul.set(checkpoint, matmul);
    ops.rope.set(checkpoint, rope);
    ops.kv_append.set(checkpoint, kv_append);
    ops.attention.set(checkpoint, attention);
    ops.swiglu.set(checkpoint, swiglu);
    ops.add.set(checkpoint, add);
    ops.sample.set(checkpoint, sample);
}

}  // namespace ridge::ref
