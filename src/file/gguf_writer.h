#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "file/gguf.h"
#include "format/format.h"

namespace ridge {

// Lays out a GGUF v3 file: metadata first, then tensors in the order added, each aligned to
// kGgufAlignment bytes. The header is small and is built in memory; tensor data is filled in place
// by the caller, in the image that build() returns or in a file that it writes itself from header()
// and tensor_offset(). A key or a tensor is added once.
constexpr uint64_t kGgufAlignment =
    32;  // the format's default, so general.alignment is not written

class GgufWriter {
  public:
    void add_u16(std::string_view key, uint16_t value);
    void add_u32(std::string_view key, uint32_t value);
    void add_i32(std::string_view key, int32_t value);
    void add_u64(std::string_view key, uint64_t value);
    void add_f32(std::string_view key, float value);
    void add_bool(std::string_view key, bool value);
    void add_string(std::string_view key, std::string_view value);
    void add_strings(std::string_view key, const std::vector<std::string>& values);
    void add_i32s(std::string_view key, const std::vector<int32_t>& values);
    void add_f32s(std::string_view key, const std::vector<float>& values);
    // A value already in the file's encoding, for types that have no function here.
    void add_raw(std::string_view key, GgufValueType type, std::string_view value);

    // shape is row-major ([out, in]), 1 to 4 dimensions, whole blocks in a row; the format is one
    // that GGUF has. Returns the tensor's index.
    int add_tensor(std::string_view name, const Format& format, const std::vector<int64_t>& shape);

    int n_tensors() const { return static_cast<int>(tensors_.size()); }
    std::string header() const;               // up to the first tensor's byte, padding included
    uint64_t tensor_offset(int index) const;  // in the file
    uint64_t tensor_bytes(int index) const;
    uint64_t file_bytes() const;  // the last tensor is padded, too

    // The whole file in memory: header written, tensor data zero and ready to be filled through
    // writable_bytes().
    MappedFile build(const std::string& name) const;

  private:
    struct TensorPlace {
        uint64_t offset;  // from the start of the data
        uint64_t n_bytes;
    };
    uint64_t header_bytes() const;

    uint64_t n_entries_ = 0;
    std::string metadata_;  // as in the file
    std::string infos_;     // as in the file
    std::vector<TensorPlace> tensors_;
    uint64_t data_bytes_ = 0;
};

}  // namespace ridge
