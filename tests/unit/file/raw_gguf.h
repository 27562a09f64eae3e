#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace ridge {

template <class T>
std::string raw(T value) {
    std::string bytes(sizeof value, '\0');
    memcpy(bytes.data(), &value, sizeof value);
    return bytes;
}

inline std::string raw_string(const std::string& text) {
    return raw<uint64_t>(text.size()) + text;
}

inline std::string raw_array(uint32_t element_type, uint64_t n, const std::string& elements) {
    return raw(element_type) + raw(n) + elements;
}

struct RawEntry {
    std::string key;
    uint32_t type;
    std::string value;
    std::optional<uint64_t> key_bytes = {};  // other than key's own length
};

struct RawTensor {
    std::string name;
    std::vector<uint64_t> dims;  // as in the file: contiguous first
    uint32_t type;
    uint64_t offset;
    std::optional<uint32_t> n_dims = {};  // other than dims has
};

// The parts of a GGUF file, each free to be wrong. By default: a valid file of two tensors, F32
// [2, 4] and Q4_0 [1, 32], whose last byte is the last tensor's.
struct RawGguf {
    std::string magic = "GGUF";
    std::string version = raw<uint32_t>(3);
    std::optional<uint64_t> n_tensors, n_entries;  // other than there are
    std::vector<RawEntry> entries = {
        {"general.architecture", 8, raw_string("llama")},
        {"tokenizer.ggml.tokens", 9, raw_array(8, 2, raw_string("a") + raw_string("b"))},
    };
    std::vector<RawTensor> tensors = {
        {"first.weight", {4, 2}, 0, 0},
        {"second.weight", {32}, 2, 32},
    };
    std::string data = std::string(32 + 18, 'x');
    size_t alignment = 32;

    std::string header() const {
        std::string out = magic + version + raw(n_tensors.value_or(tensors.size())) +
                          raw(n_entries.value_or(entries.size()));
        for (const RawEntry& entry : entries) {
            out += raw(entry.key_bytes.value_or(entry.key.size())) + entry.key + raw(entry.type) +
                   entry.value;
        }
        for (const RawTensor& tensor : tensors) {
            out += raw_string(tensor.name);
            out += raw(tensor.n_dims.value_or(static_cast<uint32_t>(tensor.dims.size())));
            for (uint64_t dim : tensor.dims) out += raw(dim);
            out += raw(tensor.type) + raw(tensor.offset);
        }
        return out;
    }

    std::string bytes() const {
        std::string out = header();
        out.resize((out.size() + alignment - 1) / alignment * alignment);
        return out + data;
    }
};

}  // namespace ridge
