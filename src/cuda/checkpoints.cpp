#include "cuda/checkpoints.h"

#include "cuda/plain.h"

namespace ridge {
namespace {

using namespace cuda;

constexpr Checkpoint kCheckpoints[] = {
    {"plain", "one simple kernel for each operator, weights as the file has them",
     [](Tables& tables, const Caps& caps) {
         tables.kernels = caps.kernels;
         add_plain_ops(tables, "plain");
         add_default_bodies(tables);
     }},
};

}  // namespace

std::span<const Checkpoint> cuda_checkpoints() {
    return kCheckpoints;
}

}  // namespace ridge
