#include "ref/ref.h"

namespace ridge {

void add_ref_ops(Tables& tables, std::string_view checkpoint) {
    Ops& ops = tables.ops;
    ops.embed_rows.set(checkpoint, ref::embed_rows);
    ops.rms_norm.set(checkpoint, ref::rms_norm);
    ops.matmul.set(checkpoint, ref::matmul);
    ops.rope.set(checkpoint, ref::rope);
    ops.kv_append.set(checkpoint, ref::kv_append);
    ops.attention.set(checkpoint, ref::attention);
    ops.swiglu.set(checkpoint, ref::swiglu);
    ops.add.set(checkpoint, ref::add);
    ops.sample.set(checkpoint, ref::sample);
}

}  // namespace ridge
