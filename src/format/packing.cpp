#include "format/packing.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"

namespace ridge {
namespace {

// Of fewer bytes than this much of the other layout's, the smaller one is worth what it costs.
constexpr double kWorthwhile = 0.95;

}  // namespace

Packing::Packing(std::span<const Tensor> tensors, const Layout& layout, const void* kernels)
    : kernels_(kernels) {
    CHECK(layout.rows_in_part > 0 && !tensors.empty());
    n_parts_ = layout.n_parts(tensors[0]);
    for (const Tensor& tensor : tensors) {
        CHECK(tensor.layout == &row_major_layout() && layout.n_parts(tensor) == n_parts_);
        Item& item = items_.emplace_back(Item{tensor, &layout, nullptr, {}});
        if (layout.smaller != nullptr) item.smaller = layout.smaller(tensor, kernels);
        int64_t least = layout.part_bytes(tensor);
        if (item.smaller != nullptr)
            least = std::min(least, item.smaller->least_part_bytes(tensor));
        least_bytes_ += n_parts_ * least;
        if (item.smaller == nullptr) continue;
        CHECK(item.smaller->rows_in_part == layout.rows_in_part);
        item.plans.resize(static_cast<size_t>(n_parts_));
        n_to_measure_ += n_parts_;
    }
}

void Packing::measure(int64_t i) {
    for (Item& item : items_) {
        if (item.smaller == nullptr) continue;
        if (i < n_parts_) {
            item.plans[static_cast<size_t>(i)] =
                item.smaller->measure_part(item.tensor, i, kernels_);
            return;
        }
        i -= n_parts_;
    }
    CHECK(!"a part that is not to be measured");
}

// Of the offsets of so many parts, and of their end; they lie before the parts.
int64_t Packing::index_bytes(int64_t n_parts) {
    return round_up((n_parts + 1) * static_cast<int64_t>(sizeof(int64_t)), 64);
}

void Packing::choose(Item& item) const {
    if (item.smaller == nullptr) return;
    int64_t n_smaller = index_bytes(n_parts_);
    for (const PartPlan& plan : item.plans) n_smaller += plan.n_bytes;
    const int64_t n_alike = n_parts_ * item.layout->part_bytes(item.tensor);
    if (static_cast<double>(n_smaller) < kWorthwhile * static_cast<double>(n_alike)) {
        item.layout = item.smaller;
    } else {
        item.plans.clear();
    }
}

void Packing::place(std::span<Item> items) {
    Run& run = runs_.emplace_back();
    run.start = n_bytes_;
    run.n_items = static_cast<int64_t>(items.size());
    const bool measured = !items[0].plans.empty();
    for (size_t t = 0; t < items.size(); t++) {
        items[t].run = runs_.size() - 1;
        items[t].first = measured ? static_cast<int64_t>(t) : run.stride;
        if (!measured) run.stride += items[t].layout->part_bytes(items[t].tensor);
    }
    if (!measured) {
        n_bytes_ += n_parts_ * run.stride;
        return;
    }
    run.offsets = {0};
    for (size_t part = 0; part < static_cast<size_t>(n_parts_); part++) {
        for (const Item& item : items) {
            run.offsets.push_back(run.offsets.back() + item.plans[part].n_bytes);
        }
    }
    n_bytes_ += index_bytes(n_parts_ * run.n_items) + run.offsets.back();
}

void Packing::settle() {
    for (Item& item : items_) choose(item);
    const bool in_turns = std::all_of(items_.begin(), items_.end(), [&](const Item& item) {
        return item.plans.empty() == items_[0].plans.empty();
    });
    if (in_turns) return place(items_);
    for (Item& item : items_) place({&item, 1});
}

void Packing::pack(int64_t part, std::byte* data, size_t tensor) const {
    const Item& item = items_[tensor];
    const Run& run = runs_[item.run];
    PartPlan plan;
    int64_t at = run.start;
    if (run.offsets.empty()) {
        at += item.first + part * run.stride;
    } else {
        plan = item.plans[static_cast<size_t>(part)];
        at += index_bytes(n_parts_ * run.n_items) +
              run.offsets[static_cast<size_t>(part * run.n_items + item.first)];
    }
    item.layout->pack_part(item.tensor, part, plan, kernels_, data + at);
}

Tensor Packing::view(std::byte* data, size_t tensor) const {
    const Item& item = items_[tensor];
    const Run& run = runs_[item.run];
    Tensor packed = item.tensor;
    packed.layout = item.layout;
    std::byte* start = data + run.start;
    if (run.offsets.empty()) {
        packed.planes = {Plane{start + item.first, run.stride}};
        return packed;
    }
    constexpr auto kEntryBytes = static_cast<int64_t>(sizeof(int64_t));
    memcpy(start, run.offsets.data(), run.offsets.size() * sizeof(int64_t));
    packed.planes = {Plane{start + index_bytes(n_parts_ * run.n_items), 0},
                     Plane{start + item.first * kEntryBytes, run.n_items * kEntryBytes}};
    return packed;
}

std::vector<std::span<const std::byte>> spans_in_memory(const Tensor& tensor) {
    std::vector<std::span<const std::byte>> spans;
    const Layout& layout = *tensor.layout;
    if (layout.rows_in_part > 0) {
        const int64_t n_parts = layout.n_parts(tensor);
        for (int64_t part = 0; part < n_parts; part++) spans.push_back(part_of(tensor, part));
        return spans;
    }
    for (const Plane& plane : tensor.planes) {
        if (plane.data == nullptr) continue;
        spans.emplace_back(plane.data, static_cast<size_t>(tensor.n_rows() * plane.stride_bytes));
    }
    return spans;
}

int64_t bytes_in_memory(const Tensor& tensor) {
    int64_t n = 0;
    for (const auto& span : spans_in_memory(tensor)) n += static_cast<int64_t>(span.size());
    return n;
}

}  // namespace ridge
