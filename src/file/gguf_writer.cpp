#include "file/gguf_writer.h"

#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"

namespace ridge {
namespace {

constexpr size_t kFixedHeaderBytes = 4 + 4 + 8 + 8;  // magic, version, two counts

template <class T>
void append(std::string& out, T value) {
    char bytes[sizeof value];
    memcpy(bytes, &value, sizeof value);
    out.append(bytes, sizeof bytes);
}

void append_string(std::string& out, std::string_view text) {
    append<uint64_t>(out, text.size());
    out += text;
}

void append_array_head(std::string& out, GgufValueType type, size_t n) {
    append(out, static_cast<uint32_t>(type));
    append<uint64_t>(out, n);
}

template <class T>
std::string bytes_of(T value) {
    std::string bytes;
    append(bytes, value);
    return bytes;
}

template <class T>
std::string array_bytes(GgufValueType type, const std::vector<T>& values) {
    std::string bytes;
    append_array_head(bytes, type, values.size());
    for (T value : values) append(bytes, value);
    return bytes;
}

uint64_t padded(uint64_t n) {
    return (n + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

}  // namespace

void GgufWriter::add_raw(std::string_view key, GgufValueType type, std::string_view value) {
    append_string(metadata_, key);
    append(metadata_, static_cast<uint32_t>(type));
    metadata_ += value;
    n_entries_++;
}

void GgufWriter::add_u16(std::string_view key, uint16_t value) {
    add_raw(key, GgufValueType::kUint16, bytes_of(value));
}
void GgufWriter::add_u32(std::string_view key, uint32_t value) {
    add_raw(key, GgufValueType::kUint32, bytes_of(value));
}
void GgufWriter::add_i32(std::string_view key, int32_t value) {
    add_raw(key, GgufValueType::kInt32, bytes_of(value));
}
void GgufWriter::add_u64(std::string_view key, uint64_t value) {
    add_raw(key, GgufValueType::kUint64, bytes_of(value));
}
void GgufWriter::add_f32(std::string_view key, float value) {
    add_raw(key, GgufValueType::kFloat32, bytes_of(value));
}
void GgufWriter::add_bool(std::string_view key, bool value) {
    add_raw(key, GgufValueType::kBool, bytes_of<uint8_t>(value ? 1 : 0));
}

void GgufWriter::add_string(std::string_view key, std::string_view value) {
    std::string bytes;
    append_string(bytes, value);
    add_raw(key, GgufValueType::kString, bytes);
}

void GgufWriter::add_strings(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes;
    append_array_head(bytes, GgufValueType::kString, values.size());
    for (const std::string& value : values) append_string(bytes, value);
    add_raw(key, GgufValueType::kArray, bytes);
}

void GgufWriter::add_i32s(std::string_view key, const std::vector<int32_t>& values) {
    add_raw(key, GgufValueType::kArray, array_bytes(GgufValueType::kInt32, values));
}
void GgufWriter::add_f32s(std::string_view key, const std::vector<float>& values) {
    add_raw(key, GgufValueType::kArray, array_bytes(GgufValueType::kFloat32, values));
}

int GgufWriter::add_tensor(std::string_view name, const Format& format,
                           const std::vector<int64_t>& shape) {
    CHECK(format.gguf_type >= 0);
    CHECK(shape.size() >= 1 && shape.size() <= 4);
    CHECK(shape.back() % format.block_elements == 0);
    append_string(infos_, name);
    append(infos_, static_cast<uint32_t>(shape.size()));
    uint64_t n_rows = 1;
    for (size_t i = shape.size(); i-- > 0;) {  // the file has the contiguous dimension first
        CHECK(shape[i] > 0);
        append(infos_, static_cast<uint64_t>(shape[i]));
        if (i + 1 < shape.size()) n_rows *= static_cast<uint64_t>(shape[i]);
    }
    append(infos_, static_cast<uint32_t>(format.gguf_type));
    append(infos_, data_bytes_);
    uint64_t n_bytes = n_rows * static_cast<uint64_t>(row_bytes(format, shape.back()));
    tensors_.push_back({data_bytes_, n_bytes});
    data_bytes_ = padded(data_bytes_ + n_bytes);
    return n_tensors() - 1;
}

uint64_t GgufWriter::header_bytes() const {
    return padded(kFixedHeaderBytes + metadata_.size() + infos_.size());
}

std::string GgufWriter::header() const {
    std::string out = "GGUF";
    out.reserve(header_bytes());
    append<uint32_t>(out, 3);
    append<uint64_t>(out, tensors_.size());
    append<uint64_t>(out, n_entries_);
    out += metadata_;
    out += infos_;
    out.resize(header_bytes());
    return out;
}

uint64_t GgufWriter::tensor_offset(int index) const {
    return header_bytes() + tensors_.at(static_cast<size_t>(index)).offset;
}

uint64_t GgufWriter::tensor_bytes(int index) const {
    return tensors_.at(static_cast<size_t>(index)).n_bytes;
}

uint64_t GgufWriter::file_bytes() const {
    return header_bytes() + data_bytes_;
}

MappedFile GgufWriter::build(const std::string& name) const {
    MappedFile image = MappedFile::anonymous(file_bytes(), name);
    std::string head = header();
    memcpy(image.writable_bytes().data(), head.data(), head.size());
    return image;
}

}  // namespace ridge
