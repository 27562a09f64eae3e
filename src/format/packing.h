#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format/tensor.h"

namespace ridge {

// Tensors on their way into a layout. Sizes are known before anything is packed, and parts are
// measured and packed in any order, on any thread:
//
//     Packing packing(tensors, layout, kernels);
//     for each i < n_to_measure():                            measure(i)
//     settle()
//     for each tensor t: for each i < n_parts():              pack(i, data, t)
//     for each tensor t:                                      view(data, t)
//
// with data [n_bytes()], 64-byte aligned.
//
// Where the layout knows of one that may take fewer bytes, the parts are measured for that one, and
// settle() chooses between the two.
//
// Several tensors are such as are read side by side, part i of each and then the next: so they lie,
// one stream of memory, where all have parts that are alike or all have parts that were measured.
// Else one tensor lies behind the other.
class Packing {
  public:
    // Row_major tensors of the same number of parts. `kernels` is what the layout's functions are
    // given: the backend's own.
    Packing(std::span<const Tensor> tensors, const Layout& layout, const void* kernels);
    Packing(const Tensor& tensor, const Layout& layout, const void* kernels)
        : Packing(std::span(&tensor, 1), layout, kernels) {}

    // That n_bytes() will be, as far as is known before anything is measured.
    int64_t least_bytes() const { return least_bytes_; }

    int64_t n_to_measure() const { return n_to_measure_; }
    void measure(int64_t i);
    void settle();

    int64_t n_parts() const { return n_parts_; }  // of each tensor
    int64_t n_bytes() const { return n_bytes_; }  // a multiple of 64
    void pack(int64_t part, std::byte* data, size_t tensor = 0) const;
    // The tensor as it is once its parts have been packed to `data`.
    Tensor view(std::byte* data, size_t tensor = 0) const;

  private:
    struct Item {
        Tensor tensor;  // row_major
        const Layout* layout;
        const Layout* smaller;
        std::vector<PartPlan> plans;  // of each part; empty where all are alike
        size_t run = 0;               // that it is in
        // Alike: from the start of the run to the first part; measured: which of the run's offsets
        // is that of the first part.
        int64_t first = 0;
    };
    // Tensors in turns.
    struct Run {
        int64_t start = 0;             // in `data`
        int64_t stride = 0;            // alike: from a tensor's part to its next
        std::vector<int64_t> offsets;  // measured: of each part behind them, and of the end
        int64_t n_items = 0;
    };

    void choose(Item& item) const;
    void place(std::span<Item> items);
    static int64_t index_bytes(int64_t n_parts);

    std::vector<Item> items_;
    std::vector<Run> runs_;
    const void* kernels_;
    int64_t n_parts_ = 0, least_bytes_ = 0, n_to_measure_ = 0, n_bytes_ = 0;
};

// Where the tensor's bytes lie, in any layout.
std::vector<std::span<const std::byte>> spans_in_memory(const Tensor& tensor);
// Bytes that it takes there.
int64_t bytes_in_memory(const Tensor& tensor);

}  // namespace ridge
