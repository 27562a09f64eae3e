#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "format/tensor.h"

namespace ridge {

// A tensor on its way into a layout. Sizes are known before anything is packed, and parts are
// measured and packed in any order, on any thread:
//
//     Packing packing(tensor, layout, kernels);
//     for each i < n_to_measure():    measure(i)
//     settle()
//     for each i < n_parts():         pack(i, data)      data [n_bytes()], 64-byte aligned
//     view(data)
//
// Where the layout knows of one that may take fewer bytes, the parts are measured for that one, and
// settle() chooses between the two.
class Packing {
  public:
    // `kernels` is what the layout's functions are given: the backend's own.
    Packing(const Tensor& row_major, const Layout& layout, const void* kernels);

    int64_t n_to_measure() const { return static_cast<int64_t>(plans_.size()); }
    void measure(int64_t part);
    void settle();

    int64_t n_parts() const { return n_parts_; }
    int64_t n_bytes() const { return n_bytes_; }  // a multiple of 64
    void pack(int64_t part, std::byte* data) const;
    // The tensor as it is once its parts have been packed to `data`.
    Tensor view(std::byte* data) const;

  private:
    int64_t index_bytes() const;

    Tensor tensor_;  // row_major
    const Layout* layout_;
    const Layout* smaller_;
    const void* kernels_;
    int64_t n_parts_, n_bytes_ = 0;
    std::vector<PartPlan> plans_;   // of each part; empty where all are alike
    std::vector<int64_t> offsets_;  // [n_parts + 1] where parts differ
};

// Bytes that the tensor takes where it lies, in any layout.
int64_t bytes_in_memory(const Tensor& tensor);

}  // namespace ridge
