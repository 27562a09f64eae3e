#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "file/gguf.h"

namespace ridge {
namespace {

template <class T>
T load(const std::byte* at) {
    T value;
    memcpy(&value, at, sizeof value);
    return value;
}

constexpr std::string_view kTypeNames[kNumGgufValueTypes] = {
    "UINT8", "INT8",   "UINT16", "INT16",  "UINT32", "INT32",  "FLOAT32",
    "BOOL",  "STRING", "ARRAY",  "UINT64", "INT64",  "FLOAT64"};

bool is_integer(GgufValueType type) {
    switch (type) {
        case GgufValueType::kFloat32:
        case GgufValueType::kFloat64:
        case GgufValueType::kBool:
        case GgufValueType::kString:
        case GgufValueType::kArray:
            return false;
        default:
            return true;
    }
}

bool is_float(GgufValueType type) {
    return type == GgufValueType::kFloat32 || type == GgufValueType::kFloat64;
}

// An integer of any width. UINT64 is the one type whose values need not fit int64.
struct Integer {
    bool negative;
    uint64_t bits;  // two's complement
};

Integer load_integer(GgufValueType type, const std::byte* at) {
    auto of = [](auto value) {
        return Integer{value < 0, static_cast<uint64_t>(static_cast<int64_t>(value))};
    };
    switch (type) {
        case GgufValueType::kUint8:
            return of(load<uint8_t>(at));
        case GgufValueType::kInt8:
            return of(load<int8_t>(at));
        case GgufValueType::kUint16:
            return of(load<uint16_t>(at));
        case GgufValueType::kInt16:
            return of(load<int16_t>(at));
        case GgufValueType::kUint32:
            return of(load<uint32_t>(at));
        case GgufValueType::kInt32:
            return of(load<int32_t>(at));
        case GgufValueType::kInt64:
            return of(load<int64_t>(at));
        default:
            CHECK(type == GgufValueType::kUint64);
            return {false, load<uint64_t>(at)};
    }
}

std::string integer_text(Integer value) {
    return value.negative ? std::to_string(static_cast<int64_t>(value.bits))
                          : std::to_string(value.bits);
}

double load_float(GgufValueType type, const std::byte* at) {
    return type == GgufValueType::kFloat32 ? load<float>(at) : load<double>(at);
}

// A string's length stands before its bytes; the reader has checked that both are in the file.
std::string_view load_string(const std::byte* at) {
    return {reinterpret_cast<const char*>(at + 8), load<uint64_t>(at)};
}

[[noreturn]] void wrong_type(const GgufMetadata& metadata, const GgufEntry& entry,
                             std::string_view expected) {
    throw Error("{}: {} is of type {}, expected {}", metadata.file(), printable(entry.key),
                gguf_type_text(entry), expected);
}

template <class T>
T convert_integer(const GgufMetadata& metadata, const GgufEntry& entry, const std::byte* at) {
    using Limits = std::numeric_limits<T>;
    Integer value = load_integer(entry.element_type, at);
    bool fits = value.negative
                    ? std::is_signed_v<T> &&
                          static_cast<int64_t>(value.bits) >=
                              static_cast<int64_t>(std::is_signed_v<T> ? Limits::min() : 0)
                    : value.bits <= static_cast<uint64_t>(Limits::max());
    if (!fits) {
        throw Error("{}: {}{} is {}, expected {} to {}", metadata.file(),
                    entry.type == GgufValueType::kArray ? "an element of " : "",
                    printable(entry.key), integer_text(value), Limits::min(), Limits::max());
    }
    return static_cast<T>(value.bits);
}

template <class T>
std::optional<T> find_integer(const GgufMetadata& metadata, std::string_view key) {
    const GgufEntry* entry = metadata.find(key);
    if (entry == nullptr) return std::nullopt;
    if (!is_integer(entry->type)) wrong_type(metadata, *entry, "an integer");
    return convert_integer<T>(metadata, *entry, entry->value);
}

void append_element(std::string& out, GgufValueType type, const std::byte* at, size_t max_bytes) {
    if (is_integer(type)) {
        out += integer_text(load_integer(type, at));
    } else if (is_float(type)) {
        out += type == GgufValueType::kFloat32 ? fmt::format("{}", load<float>(at))
                                               : fmt::format("{}", load<double>(at));
    } else if (type == GgufValueType::kBool) {
        out += load<uint8_t>(at) != 0 ? "true" : "false";
    } else {
        out += '"' + printable(load_string(at), max_bytes) + '"';
    }
}

}  // namespace

std::string_view gguf_value_type_name(GgufValueType type) {
    return kTypeNames[static_cast<uint32_t>(type)];
}

uint64_t gguf_value_bytes(GgufValueType type) {
    constexpr uint64_t kBytes[kNumGgufValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kBytes[static_cast<uint32_t>(type)];
}

GgufMetadata::GgufMetadata(std::string file, std::vector<GgufEntry> entries)
    : file_(printable(file, 0)), entries_(std::move(entries)), index_(entries_.size()) {
    for (const GgufEntry& entry : entries_) index_.add(entry.key);
    if (auto twice = index_.sort()) {
        throw Error("{}: metadata key {} is given twice", file_, printable(entries_[*twice].key));
    }
}

const GgufEntry* GgufMetadata::find(std::string_view key) const {
    auto found = index_.find(key);
    return found ? &entries_[*found] : nullptr;
}

std::optional<uint32_t> GgufMetadata::find_u32(std::string_view key) const {
    return find_integer<uint32_t>(*this, key);
}

std::optional<uint64_t> GgufMetadata::find_u64(std::string_view key) const {
    return find_integer<uint64_t>(*this, key);
}

std::optional<int64_t> GgufMetadata::find_i64(std::string_view key) const {
    return find_integer<int64_t>(*this, key);
}

std::optional<float> GgufMetadata::find_f32(std::string_view key) const {
    const GgufEntry* entry = find(key);
    if (entry == nullptr) return std::nullopt;
    if (!is_float(entry->type)) wrong_type(*this, *entry, "FLOAT32");
    return static_cast<float>(load_float(entry->type, entry->value));
}

std::optional<bool> GgufMetadata::find_bool(std::string_view key) const {
    const GgufEntry* entry = find(key);
    if (entry == nullptr) return std::nullopt;
    if (entry->type != GgufValueType::kBool) wrong_type(*this, *entry, "BOOL");
    return load<uint8_t>(entry->value) != 0;
}

std::optional<std::string_view> GgufMetadata::find_string(std::string_view key) const {
    const GgufEntry* entry = find(key);
    if (entry == nullptr) return std::nullopt;
    if (entry->type != GgufValueType::kString) wrong_type(*this, *entry, "STRING");
    return load_string(entry->value);
}

std::optional<std::vector<std::string_view>> GgufMetadata::find_strings(
    std::string_view key) const {
    const GgufEntry* entry = find(key);
    if (entry == nullptr) return std::nullopt;
    if (entry->type != GgufValueType::kArray || entry->element_type != GgufValueType::kString) {
        wrong_type(*this, *entry, "ARRAY of STRING");
    }
    std::vector<std::string_view> strings;
    strings.reserve(entry->n_elements);
    const std::byte* at = entry->value;
    for (uint64_t i = 0; i < entry->n_elements; i++) {
        strings.push_back(load_string(at));
        at += 8 + strings.back().size();
    }
    return strings;
}

std::optional<std::vector<int32_t>> GgufMetadata::find_i32s(std::string_view key) const {
    const GgufEntry* entry = find(key);
    if (entry == nullptr) return std::nullopt;
    if (entry->type != GgufValueType::kArray || !is_integer(entry->element_type)) {
        wrong_type(*this, *entry, "ARRAY of INT32");
    }
    size_t step = gguf_value_bytes(entry->element_type);
    std::vector<int32_t> numbers(entry->n_elements);
    for (size_t i = 0; i < numbers.size(); i++) {
        numbers[i] = convert_integer<int32_t>(*this, *entry, entry->value + i * step);
    }
    return numbers;
}

std::optional<std::vector<float>> GgufMetadata::find_f32s(std::string_view key) const {
    const GgufEntry* entry = find(key);
    if (entry == nullptr) return std::nullopt;
    if (entry->type != GgufValueType::kArray || !is_float(entry->element_type)) {
        wrong_type(*this, *entry, "ARRAY of FLOAT32");
    }
    size_t step = gguf_value_bytes(entry->element_type);
    std::vector<float> numbers(entry->n_elements);
    for (size_t i = 0; i < numbers.size(); i++) {
        numbers[i] = static_cast<float>(load_float(entry->element_type, entry->value + i * step));
    }
    return numbers;
}

std::string gguf_type_text(const GgufEntry& entry) {
    if (entry.type != GgufValueType::kArray) return std::string(gguf_value_type_name(entry.type));
    return fmt::format("ARRAY of {}", gguf_value_type_name(entry.element_type));
}

std::string gguf_value_text(const GgufEntry& entry, size_t max_bytes) {
    std::string out;
    if (entry.type != GgufValueType::kArray) {
        append_element(out, entry.type, entry.value, max_bytes);
        return out;
    }
    if (entry.element_type == GgufValueType::kArray) {
        return fmt::format("[{} arrays]", entry.n_elements);
    }
    const std::byte* at = entry.value;
    out = "[";
    for (uint64_t i = 0; i < entry.n_elements; i++) {
        if (i > 0) out += ", ";
        if (out.size() >= max_bytes) {
            out += "...";
            break;
        }
        append_element(out, entry.element_type, at, max_bytes);
        at += entry.element_type == GgufValueType::kString ? 8 + load_string(at).size()
                                                           : gguf_value_bytes(entry.element_type);
    }
    return out + "]";
}

}  // namespace ridge
