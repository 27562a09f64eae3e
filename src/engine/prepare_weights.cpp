#include "engine/prepare_weights.h"

#include <string_view>
#include <utility>

#include "base/error.h"
#include "model/cost.h"

namespace ridge {
namespace {

// Counts what weights take beside the KV cache, of which nothing has been touched yet.
class MemoryBudget {
  public:
    // to_take: bytes that all weights will take at the least; to_give: that are given back by then.
    MemoryBudget(std::string_view device, uint64_t n_bytes, const KvCache& kv, bool packs,
                 int64_t to_take, int64_t to_give)
        : device_(device),
          n_bytes_(n_bytes),
          kv_(kv),
          packs_(packs),
          to_take_(to_take),
          to_give_(to_give) {
        check(to_take_ + static_cast<int64_t>(kv_.n_bytes()), to_give_);
    }

    // Before n_bytes are taken for weights of which at least so many were known.
    void take(int64_t n_bytes, int64_t n_known) {
        to_take_ += n_bytes - n_known;
        check(to_take_ + static_cast<int64_t>(kv_.n_bytes()), to_give_);
        taken_ += n_bytes;
        check(taken_, given_);
    }
    void give(int64_t n_bytes) { given_ += n_bytes; }

  private:
    void check(int64_t needed_bytes, int64_t given_bytes) const {
        if (n_bytes_ == 0) return;
        const auto needed = static_cast<uint64_t>(needed_bytes);
        const uint64_t free = n_bytes_ + static_cast<uint64_t>(given_bytes);
        if (needed <= free) return;
        throw Error("{}: {:.1f} GB needed for {} and the KV cache at -c {}, {:.1f} GB free; try {}",
                    device_, 1e-9 * static_cast<double>(needed),
                    packs_ ? "packed weights" : "norms and biases", kv_.n_slots,
                    1e-9 * static_cast<double>(free),
                    !packs_            ? "a smaller -c"
                    : device_ == "cpu" ? "--no-repack, which is slow, or a model of fewer bits"
                                       : "a smaller -c, or a model of fewer bits");
    }

    const std::string_view device_;
    const uint64_t n_bytes_;  // 0: unknown
    const KvCache& kv_;
    const bool packs_;
    int64_t to_take_, to_give_, taken_ = 0, given_ = 0;
};

}  // namespace

void prepare_weights(const ModelFile& file, const PrepareOptions& options, const KvCache& kv,
                     Backend& backend, Model& model, const Progress& progress) {
    const bool tied = model.config.tied_head;
    const Layout& packed = options.repack ? *model.tables.matmul_layout : row_major_layout();
    // Matrices of matmuls go into the layout that the tables want; an embedding that is no LM head
    // stays as it is, since a step reads single rows of it.
    auto layout_of = [&](const Tensor& tensor) -> const Layout& {
        const bool lookup = &tensor == &model.weights.embedding && !tied;
        return lookup ? row_major_layout() : packed;
    };
    auto known_bytes = [&](const Tensor& tensor) {
        return backend.least_bytes(tensor, layout_of(tensor));
    };

    int64_t to_take = 0, to_give = 0;
    for_each_tensor(model.weights, tied, [&](const Tensor& tensor) {
        const int64_t n = known_bytes(tensor);
        to_take += n;
        if (n > 0 && options.in_memory) to_give += tensor.n_bytes();
    });
    MemoryBudget budget(backend.name(), options.memory_bytes, kv, packed.rows_in_part > 0, to_take,
                        to_give);

    const auto total = static_cast<double>(total_weight_bytes(model.config, model.weights));
    double done = 0;
    for_each_side_by_side(model.weights, tied, [&](std::span<Tensor* const> tensors) {
        int64_t n_known = 0;
        for (const Tensor* tensor : tensors) {
            n_known += known_bytes(*tensor);
            done += static_cast<double>(tensor->n_bytes());
        }
        PrepareEvents events;
        events.taking = [&](int64_t n_bytes) { budget.take(n_bytes, std::exchange(n_known, 0)); };
        // What the file holds of a copied weight is not needed again, and leaves memory.
        events.copied = [&](const Tensor& original) {
            file.discard(original);
            if (options.in_memory) budget.give(original.n_bytes());
        };
        backend.prepare(tensors, layout_of(*tensors[0]), events);
        if (progress) progress("packing weights", done / total);
    });
    if (tied) model.weights.head.weight = model.weights.embedding;
}

}  // namespace ridge
