#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "format/format.h"

namespace ridge {

// Lays out a GGUF v3 file: metadata first, then tensors in the order added, each aligned to 32
// bytes. The header is small and is built in memory; tensor data is filled in place by the caller,
// in the image that build() returns or in a file that it writes itself from `header()` and
// `tensor_offset()`.
class GgufWriter {
  public:
    void add_u32(const std::string& key, uint32_t value);
    void add_i32(const std::string& key, int32_t value);
    void add_u64(const std::string& key, uint64_t value);
    void add_f32(const std::string& key, float value);
    void add_bool(const std::string& key, bool value);
    void add_string(const std::string& key, const std::string& value);
    void add_strings(const std::string& key, const std::vector<std::string>& values);
    void add_i32s(const std::string& key, const std::vector<int32_t>& values);
    void add_f32s(const std::string& key, const std::vector<float>& values);

    // shape is row-major ([out, in]); returns the tensor's index.
    int add_tensor(const std::string& name, const Format& format,
                   const std::vector<int64_t>& shape);

    std::string header() const;               // up to the first tensor's byte, padding included
    uint64_t tensor_offset(int index) const;  // in the file
    uint64_t tensor_bytes(int index) const;
    uint64_t file_bytes() const;

    // The whole file in memory: header written, tensor data zero and ready to be filled through
    // writable_bytes().
    MappedFile build(const std::string& name) const;
};

}  // namespace ridge
