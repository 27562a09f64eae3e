#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "format/format.h"

namespace ridge {

struct Layout;

// One run of bytes of a tensor: row i starts at data + i * stride_bytes, in a packed layout part i.
struct Plane {
    const std::byte* data = nullptr;
    int64_t stride_bytes = 0;
};

// A view of a weight: it owns nothing. Shapes are row-major, the contiguous dimension last: a
// matrix is [out, in], as safetensors write it (GGUF lists dimensions the other way round; the
// reader turns them).
struct Tensor {
    std::string name;  // as the file has it
    const Format* format = nullptr;
    const Layout* layout =
        nullptr;     // how rows are placed in the planes; row_major_layout() as files have it
    int n_dims = 0;  // 1 to 4
    std::array<int64_t, 4> shape{};  // [n_dims] used; all > 0
    std::array<Plane, 3> planes;     // blocks; affine: codes, scales, biases
    int group_size = 0;              // affine formats: elements that share a scale and a bias
    FormatId scale_format = FormatId::kF16;  // affine formats: how scales and biases are stored

    int64_t n_cols() const { return n_dims == 0 ? 0 : shape[n_dims - 1]; }
    int64_t n_rows() const {
        int64_t n = 1;
        for (int i = 0; i + 1 < n_dims; i++) n *= shape[i];
        return n;
    }
    int64_t n_elements() const { return n_rows() * n_cols(); }
    int64_t n_bytes() const;  // of all planes, as stored
    explicit operator bool() const { return format != nullptr; }
};

// What was found of a part before it is packed, in layouts whose parts differ.
struct PartPlan {
    int64_t n_bytes = 0;  // a multiple of 64
    uint32_t how = 0;     // the layout's own
};

// A way to place a tensor's rows in memory. `row_major` is the files' own; backends add others
// (interleaved rows, tiles), each with the function that reads one row back, so that plain kernels
// and tests read any of them. A packed tensor is a run of parts, of rows_in_part rows each, in
// turns with those of other tensors or alone (format/packing.h). `kernels` is the backend's own:
// what packs fast on this machine.
struct Layout {
    std::string_view name;
    void (*unpack_row)(const Tensor& tensor, int64_t row, float* out);  // out [n_cols] f32
    // Null in row_major: nothing is packed.
    int rows_in_part = 0;
    void (*pack_part)(const Tensor& row_major, int64_t part, const PartPlan& plan,
                      const void* kernels, std::byte* out) = nullptr;
    // All parts of a tensor are alike, this long;
    int64_t (*part_bytes)(const Tensor& tensor) = nullptr;
    // or each is measured, and none is found to be shorter than this. Then planes[1] of the packed
    // tensor has their offsets in planes[0], planes[1].stride_bytes apart; the int64 after a part's
    // offset is where it ends.
    PartPlan (*measure_part)(const Tensor& row_major, int64_t part, const void* kernels) = nullptr;
    int64_t (*least_part_bytes)(const Tensor& tensor) = nullptr;
    // A layout of measured parts that may take fewer bytes of this tensor; null: there is none.
    const Layout* (*smaller)(const Tensor& row_major, const void* kernels) = nullptr;

    int64_t n_parts(const Tensor& tensor) const {
        return (tensor.n_rows() + rows_in_part - 1) / rows_in_part;
    }
};

const Layout& row_major_layout();

// Where part `part` of a packed tensor lies, and how long it is.
inline const std::byte* part_data(const Tensor& tensor, int64_t part) {
    const Plane &parts = tensor.planes[0], &offsets = tensor.planes[1];
    if (offsets.data == nullptr) return parts.data + part * parts.stride_bytes;
    return parts.data +
           *reinterpret_cast<const int64_t*>(offsets.data + part * offsets.stride_bytes);
}
std::span<const std::byte> part_of(const Tensor& tensor, int64_t part);

// Row `row` of a tensor in any layout, as float32. out [n_cols].
void unpack_row(const Tensor& tensor, int64_t row, float* out);

std::string shape_text(std::span<const int64_t> shape);  // "[2048, 512]"
std::string shape_text(const Tensor& tensor);

}  // namespace ridge
