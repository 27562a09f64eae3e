#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

// The safetensors format (https://github.com/huggingface/safetensors#format): eight bytes with the
// length of the header, little-endian; the header, a JSON object of tensor names; the data, which
// the tensors cover without holes or overlaps.

struct SafetensorsType {
    std::string_view name;  // "BF16"
    int bits;               // of one element
};
const SafetensorsType* find_safetensors_type(std::string_view name);  // null: not of the format

struct SafetensorsTensor {
    std::string name;
    const SafetensorsType* type;
    int n_dims;  // 0 (a scalar) to 4
    // [n_dims] used, row-major; a dimension may be 0; else the product fits int64
    std::array<int64_t, 4> shape;
    uint64_t offset;  // from the start of the file; not aligned
    uint64_t n_bytes;

    bool empty() const { return n_bytes == 0; }
    std::span<const int64_t> dims() const { return {shape.data(), static_cast<size_t>(n_dims)}; }
};

// Reads and checks everything of the file but the tensors' numbers: Error names `path`, tensor,
// field and value. The tensors come in the order of their data. Time is n log n in the number of
// tensors, memory in proportion to the header.
std::vector<SafetensorsTensor> read_safetensors(std::span<const std::byte> bytes,
                                                const std::string& path);

}  // namespace ridge
