#include "format/packing.h"

#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"

namespace ridge {
namespace {

// Of fewer bytes than this much of the other layout's, the smaller one is worth what it costs.
constexpr double kWorthwhile = 0.95;

}  // namespace

Packing::Packing(const Tensor& row_major, const Layout& layout, const void* kernels)
    : tensor_(row_major), layout_(&layout), smaller_(nullptr), kernels_(kernels) {
    CHECK(layout.rows_in_part > 0 && row_major.layout == &row_major_layout());
    n_parts_ = layout.n_parts(row_major);
    if (layout.smaller != nullptr) smaller_ = layout.smaller(row_major, kernels);
    if (smaller_ == nullptr) return;
    CHECK(smaller_->rows_in_part == layout.rows_in_part);
    plans_.resize(static_cast<size_t>(n_parts_));
}

void Packing::measure(int64_t part) {
    plans_[static_cast<size_t>(part)] = smaller_->measure_part(tensor_, part, kernels_);
}

// Offsets of parts [n_parts + 1], which lie before them.
int64_t Packing::index_bytes() const {
    return round_up((n_parts_ + 1) * static_cast<int64_t>(sizeof(int64_t)), 64);
}

void Packing::settle() {
    const int64_t n_alike = n_parts_ * layout_->part_bytes(tensor_);
    n_bytes_ = n_alike;
    if (smaller_ == nullptr) return;
    offsets_.resize(plans_.size() + 1);
    for (size_t i = 0; i < plans_.size(); i++) offsets_[i + 1] = offsets_[i] + plans_[i].n_bytes;
    const int64_t n_smaller = index_bytes() + offsets_.back();
    if (static_cast<double>(n_smaller) < kWorthwhile * static_cast<double>(n_alike)) {
        n_bytes_ = n_smaller;
        layout_ = smaller_;
    } else {
        plans_.clear(), offsets_.clear();
    }
}

void Packing::pack(int64_t part, std::byte* data) const {
    if (offsets_.empty()) {
        layout_->pack_part(tensor_, part, {}, kernels_, data + part * layout_->part_bytes(tensor_));
        return;
    }
    const auto i = static_cast<size_t>(part);
    layout_->pack_part(tensor_, part, plans_[i], kernels_, data + index_bytes() + offsets_[i]);
}

Tensor Packing::view(std::byte* data) const {
    if (offsets_.empty()) return packed_view(tensor_, *layout_, data);
    memcpy(data, offsets_.data(), offsets_.size() * sizeof(int64_t));
    Tensor packed = tensor_;
    packed.layout = layout_;
    packed.planes = {Plane{data + index_bytes(), 0}, Plane{data, 0}};
    return packed;
}

int64_t bytes_in_memory(const Tensor& tensor) {
    const Layout& layout = *tensor.layout;
    if (layout.rows_in_part == 0) return tensor.n_bytes();
    const int64_t n_parts = layout.n_parts(tensor);
    if (layout.part_bytes != nullptr) return n_parts * layout.part_bytes(tensor);
    return part_offset(tensor, n_parts);
}

}  // namespace ridge
