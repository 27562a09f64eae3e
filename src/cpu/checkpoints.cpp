#include "cpu/checkpoints.h"

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
};

}  // namespace

std::span<const Checkpoint> cpu_checkpoints() {
    return kCheckpoints;
}

}  // namespace ridge
