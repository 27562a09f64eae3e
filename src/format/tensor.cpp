#include "format/tensor.h"

#include <fmt/format.h>

#include "base/check.h"
#include "format/affine.h"

namespace ridge {
namespace {

void unpack_row_major(const Tensor& tensor, int64_t row, float* out) {
    auto at = [&](int plane) {
        const Plane& p = tensor.planes[plane];
        return p.data == nullptr ? nullptr : p.data + row * p.stride_bytes;
    };
    tensor.format->decode_row({at(0), at(1), at(2), tensor.group_size, tensor.scale_format},
                              tensor.n_cols(), out);
}

constexpr Layout kRowMajor = {.name = "row_major", .unpack_row = unpack_row_major};

}  // namespace

int64_t Tensor::n_bytes() const {
    CHECK(format != nullptr);
    int64_t bytes_per_row = row_bytes(*format, n_cols());
    if (is_affine(format->id)) {
        CHECK(is_affine_group_size(group_size) && n_cols() % group_size == 0);
        bytes_per_row += 2 * row_bytes(format_of(scale_format), n_cols() / group_size);
    }
    return n_rows() * bytes_per_row;
}

const Layout& row_major_layout() {
    return kRowMajor;
}

std::span<const std::byte> part_of(const Tensor& tensor, int64_t part) {
    const Layout& layout = *tensor.layout;
    CHECK(layout.rows_in_part > 0 && part >= 0 && part < layout.n_parts(tensor));
    const std::byte* data = part_data(tensor, part);
    if (layout.part_bytes != nullptr) {
        return {data, static_cast<size_t>(layout.part_bytes(tensor))};
    }
    const Plane& offsets = tensor.planes[1];
    const auto* at = reinterpret_cast<const int64_t*>(offsets.data + part * offsets.stride_bytes);
    return {data, static_cast<size_t>(at[1] - at[0])};
}

void unpack_row(const Tensor& tensor, int64_t row, float* out) {
    CHECK(tensor.format != nullptr && tensor.layout != nullptr);
    CHECK(row >= 0 && row < tensor.n_rows());
    tensor.layout->unpack_row(tensor, row, out);
}

std::string shape_text(std::span<const int64_t> shape) {
    std::string text;
    for (int64_t dim : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", dim);
    return '[' + text + ']';
}

std::string shape_text(const Tensor& tensor) {
    return shape_text(std::span(tensor.shape).first(static_cast<size_t>(tensor.n_dims)));
}

}  // namespace ridge
