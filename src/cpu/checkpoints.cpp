#include "cpu/checkpoints.h"

#include "cpu/group_matmul.h"
#include "cpu/interleaved.h"
#include "cpu/plain.h"
#include "ref/ref.h"

namespace ridge {
namespace {

constexpr Checkpoint kCheckpoints[] = {
    {"ref", "the equations in scalar float32 with float64 sums, on one thread",
     [](Tables& t, const Caps&) {
         ref::add_ref_ops(t, "ref");
         add_default_bodies(t, "ref");
     }},
    {"plain", "one simple kernel for each operator, on all threads",
     [](Tables& t, const Caps&) { add_plain_ops(t, "plain"); }},
    {"matvec",
     "weights in groups of 16 rows stream once, multiplied with int8 blocks of activations",
     [](Tables& t, const Caps& caps) {
         t.kernels = caps.kernels;
         t.matmul_layout = &cpu::interleaved_layout();
         t.ops.matmul.set("matvec", cpu::matmul_groups);
     }},
};

}  // namespace

std::span<const Checkpoint> cpu_checkpoints() {
    return kCheckpoints;
}

}  // namespace ridge
