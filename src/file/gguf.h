#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "file/name_index.h"
#include "format/format.h"

namespace ridge {

// GGUF, versions 2 and 3, little-endian
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). The reader takes the bytes of a
// mapped file and gives views into them: every key, string and name below is valid while the bytes
// are. It runs in time linear in the header (tensors are sorted by offset) and allocates in
// proportion to entries that it has seen, never to a count that it has only been told.

enum class GgufValueType : uint32_t {
    kUint8 = 0,
    kInt8 = 1,
    kUint16 = 2,
    kInt16 = 3,
    kUint32 = 4,
    kInt32 = 5,
    kFloat32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9,
    kUint64 = 10,
    kInt64 = 11,
    kFloat64 = 12,
};
constexpr uint32_t kNumGgufValueTypes = 13;

std::string_view gguf_value_type_name(GgufValueType type);  // "UINT32"
uint64_t gguf_value_bytes(GgufValueType type);              // of one value; 0: they differ

struct GgufEntry {
    std::string_view key;
    GgufValueType type;
    GgufValueType element_type;  // arrays: of their elements; else the type itself
    uint64_t n_elements;         // arrays: how many; else 1
    const std::byte* value;      // the first element, not aligned
};

// The metadata of one file. A look-up of an absent key gives nothing; one of a value that is of
// another type throws Error with file, key, the type found and the type expected. Integers of any
// width and sign convert where the value fits and throw where it does not; FLOAT64 converts to
// float.
class GgufMetadata {
  public:
    // `file` names the file in errors. Throws Error for a key given twice. Values are checked
    // before (read_gguf).
    GgufMetadata(std::string file, std::vector<GgufEntry> entries);

    const std::string& file() const { return file_; }
    std::span<const GgufEntry> entries() const { return entries_; }  // in file order
    const GgufEntry* find(std::string_view key) const;
    bool contains(std::string_view key) const { return find(key) != nullptr; }

    std::optional<uint32_t> find_u32(std::string_view key) const;
    std::optional<uint64_t> find_u64(std::string_view key) const;
    std::optional<int64_t> find_i64(std::string_view key) const;
    std::optional<float> find_f32(std::string_view key) const;
    std::optional<bool> find_bool(std::string_view key) const;
    std::optional<std::string_view> find_string(std::string_view key) const;
    std::optional<std::vector<std::string_view>> find_strings(std::string_view key) const;
    std::optional<std::vector<int32_t>> find_i32s(std::string_view key) const;
    std::optional<std::vector<float>> find_f32s(std::string_view key) const;

  private:
    std::string file_;
    std::vector<GgufEntry> entries_;
    NameIndex index_;
};

std::string gguf_type_text(const GgufEntry& entry);  // "UINT32", "ARRAY of STRING"
// The value as one line for a terminal, cut to about `max_bytes`: text in quotes and escaped, the
// first elements of an array in brackets.
std::string gguf_value_text(const GgufEntry& entry, size_t max_bytes = 80);

struct GgufTensorInfo {
    std::string_view name;
    const Format* format;
    int n_dims;                    // 1 to 4
    std::array<int64_t, 4> shape;  // row-major, all > 0, the product fits int64
    uint64_t offset;               // of the data, from the start of the file; aligned
    uint64_t n_bytes;              // offset + n_bytes is within the file
};

struct GgufFile {
    GgufMetadata metadata;
    std::vector<GgufTensorInfo> tensors;  // in file order; no two overlap, no two share a name
};

// Reads and checks everything of the file but the tensors' numbers. `path` names it in errors.
GgufFile read_gguf(std::span<const std::byte> bytes, const std::string& path);

}  // namespace ridge
