#include "cuda/checkpoints.h"

#include "cuda/matvec.h"
#include "cuda/plain.h"
#include "cuda/tiles.h"

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
    {"matvec",
     "weights in tiles stream once, multiplied in bf16 on tensor units, eight rows at a time",
     [](Tables& tables, const Caps&) {
         tables.matmul_layout = &tiles_layout();
         tables.ops.matmul.set("matvec", matmul_tiles, unfit_for_tiles);
         tables.ops.embed_rows.set("matvec", embed_rows_tiles, unfit_for_embedding);
     }},
};

}  // namespace

std::span<const Checkpoint> cuda_checkpoints() {
    return kCheckpoints;
}

}  // namespace ridge
