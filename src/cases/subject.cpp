#include "cases/subject.h"

#include "base/check.h"
#include "ref/ref.h"

namespace ridge {

std::string Subject::name() const {
    return isa.empty() ? checkpoint : checkpoint + " on " + isa;
}

Tables exact_reference() {
    Tables tables;
    ref::add_ref_ops(tables, "ref");
    return tables;
}

Standard exact_standard(const Subject&, const Case& c) {
    return {.element = c.tolerance};
}

size_t n_entries(const Tables& tables, Op op) {
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

std::vector<Subject> subjects_of(std::span<const Checkpoint> list, Op op,
                                 std::span<const NamedCaps> machines) {
    CHECK(!machines.empty());
    std::vector<Subject> subjects;
    const bool reads_weights = op == Op::kMatmul || op == Op::kEmbedRows;
    size_t n_before = 0;
    const Layout* layout_before = nullptr;
    auto add = [&](const Checkpoint& checkpoint, const NamedCaps& machine, bool named) {
        subjects.push_back({.checkpoint = std::string(checkpoint.name),
                            .isa = named ? machine.isa : "",
                            .tables = resolve_tables(list, checkpoint.name, machine.caps),
                            .reference = exact_reference(),
                            .standard = exact_standard});
    };
    for (const Checkpoint& checkpoint : list) {
        const Tables tables = resolve_tables(list, checkpoint.name, machines[0].caps);
        const size_t n = n_entries(tables, op);
        const bool changes =
            n > n_before || (reads_weights && tables.matmul_layout != layout_before);
        n_before = n, layout_before = tables.matmul_layout;
        if (!changes) continue;
        if (tables.kernels == nullptr) {
            add(checkpoint, machines[0], false);
            continue;
        }
        for (const NamedCaps& machine : machines) add(checkpoint, machine, true);
    }
    return subjects;
}

}  // namespace ridge
