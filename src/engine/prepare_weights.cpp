#include "engine/prepare_weights.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/system.h"
#include "model/cost.h"

namespace ridge {
namespace {

// Matrices of matmuls go into the layout that the tables want.
const Layout& layout_of(const Model& model, const Tensor& tensor, bool repack) {
    const bool packs = repack && !is_looked_up(model.weights, tensor, model.config.tied_head);
    return packs ? *model.tables.matmul_layout : row_major_layout();
}

double gb(uint64_t n_bytes) {
    return 1e-9 * static_cast<double>(n_bytes);
}

// Counts what weights take beside the KV cache, of which nothing has been touched yet.
class MemoryBudget {
  public:
    // to_take: bytes that all weights will take at the least; to_give: that are given back by then.
    MemoryBudget(std::string_view device, const PrepareOptions& options, size_t kv_bytes,
                 bool packs, int64_t to_take, int64_t to_give)
        : device_(device),
          options_(options),
          kv_bytes_(static_cast<int64_t>(kv_bytes)),
          packs_(packs),
          to_take_(to_take),
          to_give_(to_give) {
        check(to_take_ + kv_bytes_, to_give_);
    }

    // Before n_bytes are taken for weights of which at least so many were known.
    void take(int64_t n_bytes, int64_t n_known) {
        to_take_ += n_bytes - n_known;
        check(to_take_ + kv_bytes_, to_give_);
        taken_ += n_bytes;
        check(taken_, given_);
    }
    void give(int64_t n_bytes) { given_ += n_bytes; }

  private:
    void check(int64_t needed_bytes, int64_t given_bytes) const {
        if (options_.memory_bytes == 0) return;
        const auto needed = static_cast<uint64_t>(needed_bytes);
        const uint64_t free = options_.memory_bytes + static_cast<uint64_t>(given_bytes);
        if (needed <= free) return;
        throw Error(
            "{}: {:.1f} GB needed for {} and {}, {:.1f} GB free; try {}", device_, gb(needed),
            packs_ ? "packed weights" : "norms and biases", options_.cache, gb(free),
            packs_ ? "--no-repack, which is slow, or a model of fewer bits" : "a smaller -c");
    }

    const std::string_view device_;
    const PrepareOptions& options_;
    const int64_t kv_bytes_;
    const bool packs_;
    int64_t to_take_, to_give_, taken_ = 0, given_ = 0;
};

// What backend.prepare() will take for the weights, at the least.
struct WeightBytes {
    std::vector<int64_t> layers;
    int64_t other = 0;
    int64_t sources = 0;  // of those that are packed, as they lie in the file

    WeightBytes(const Backend& backend, const Model& model, bool repack)
        : layers(model.weights.layers.size()) {
        const bool tied = model.config.tied_head;
        for_each_side_by_side(model.weights, tied, [&](auto tensors, int layer) {
            for (const Tensor* tensor : tensors) {
                const int64_t n = backend.least_bytes(*tensor, layout_of(model, *tensor, repack));
                (layer < 0 ? other : layers[static_cast<size_t>(layer)]) += n;
                if (n > 0) sources += tensor->n_bytes();
            }
        });
    }
};

// Where weights go on a device with memory of its own; layer_bytes and other_bytes are exact there.
// An Error where its memory or the host's does not hold them, before any of it is taken.
WeightPlacement place_on(const Backend& backend, const PrepareOptions& options, size_t kv_bytes,
                         std::span<const int64_t> layer_bytes, int64_t other_bytes) {
    const int64_t beside = static_cast<int64_t>(kv_bytes) + options.step_bytes;
    const int64_t room = static_cast<int64_t>(options.memory_bytes) - beside;
    WeightPlacement placement = place_weights(layer_bytes, other_bytes, room, options.stream);
    if (placement.device_bytes() > room) {
        throw Error(
            "{}: {:.2f} GB needed for {} and the weights, with layers streamed through memory for "
            "two of them, {:.2f} GB free; try {}a model of fewer bits",
            backend.name(), gb(static_cast<uint64_t>(placement.device_bytes() + beside)),
            options.cache, gb(options.memory_bytes),
            placement.device_bytes() > room + static_cast<int64_t>(kv_bytes) ? ""
                                                                             : "a smaller -c, or ");
    }
    const auto streamed = static_cast<uint64_t>(placement.streamed_bytes);
    const uint64_t host = available_memory_bytes();
    if (host > 0 && streamed > host) {
        throw Error(
            "{}: {:.1f} GB of the host's memory needed for layers that are streamed, {:.1f} GB "
            "free; try a model of fewer bits",
            backend.name(), gb(streamed), gb(host));
    }
    return placement;
}

}  // namespace

int64_t least_weight_bytes(const Backend& backend, const Model& model, bool repack) {
    const WeightBytes n_bytes(backend, model, repack);
    if (backend.can_stream()) {
        return place_weights(n_bytes.layers, n_bytes.other, 0, false).device_bytes();
    }
    return std::accumulate(n_bytes.layers.begin(), n_bytes.layers.end(), n_bytes.other);
}

int choose_step_rows(const PrepareOptions& options, const KvCache& kv, const Backend& backend,
                     const Model& model, int n_wanted,
                     const std::function<int64_t(int)>& step_bytes) {
    if (n_wanted <= kStepRows || !backend.can_stream()) return n_wanted;
    const WeightBytes n_bytes(backend, model, options.repack);
    const auto n_streamed = [&](int n_rows) {
        const int64_t room = static_cast<int64_t>(options.memory_bytes) -
                             static_cast<int64_t>(kv.n_bytes()) - step_bytes(n_rows);
        const WeightPlacement placement =
            place_weights(n_bytes.layers, n_bytes.other, room, options.stream);
        // Where not even two layers find room, the error is told of the fewest rows.
        return placement.device_bytes() > room ? SIZE_MAX : placement.streamed.size();
    };
    const size_t n_least = n_streamed(kStepRows);
    if (n_least == SIZE_MAX) return kStepRows;
    int n_rows = n_wanted;
    while (n_rows > kStepRows && n_streamed(n_rows) > n_least) n_rows /= 2;
    return std::max(n_rows, kStepRows);
}

WeightPlacement prepare_weights(const ModelFile& file, const PrepareOptions& options,
                                const KvCache& kv, Backend& backend, Model& model,
                                const Progress& progress) {
    const bool tied = model.config.tied_head;
    const WeightBytes n_bytes(backend, model, options.repack);
    WeightPlacement placement;
    std::optional<MemoryBudget> budget;
    if (backend.can_stream()) {
        placement = place_on(backend, options, kv.n_bytes(), n_bytes.layers, n_bytes.other);
        backend.place(placement);
    } else {
        const bool packs = options.repack && model.tables.matmul_layout->rows_in_part > 0;
        budget.emplace(backend.name(), options, kv.n_bytes(), packs,
                       std::accumulate(n_bytes.layers.begin(), n_bytes.layers.end(), n_bytes.other),
                       options.in_memory ? n_bytes.sources : 0);
    }

    const auto total = static_cast<double>(total_weight_bytes(model.config, model.weights));
    double done = 0;
    for_each_side_by_side(model.weights, tied, [&](std::span<Tensor* const> tensors, int layer) {
        int64_t n_known = 0;
        for (const Tensor* tensor : tensors) {
            n_known += backend.least_bytes(*tensor, layout_of(model, *tensor, options.repack));
            done += static_cast<double>(tensor->n_bytes());
        }
        PrepareEvents events;
        events.taking = [&](int64_t n_taken) {
            if (budget) budget->take(n_taken, std::exchange(n_known, 0));
        };
        // What the file holds of a copied weight is not needed again, and leaves memory.
        events.copied = [&](const Tensor& original) {
            file.discard(original);
            if (budget && options.in_memory) budget->give(original.n_bytes());
        };
        backend.prepare(tensors, layout_of(model, *tensors[0], options.repack), layer, events);
        if (progress) progress("packing weights", done / total);
    });
    if (tied) model.weights.head.weight = model.weights.embedding;
    return placement;
}

}  // namespace ridge
