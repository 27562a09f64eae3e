#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/printable.h"
#include "file/gguf.h"

namespace ridge {
namespace {

constexpr uint64_t kMinAlignment = 8, kMaxAlignment = 65536, kDefaultAlignment = 32;
constexpr size_t kMaxKeyBytes = 65535;  // the specification's limit
constexpr size_t kMaxTensorName = 63;   // ggml keeps 64 bytes with the terminating zero
constexpr uint32_t kMaxDims = 4;
constexpr int kMaxArrayDepth = 4;  // the specification sets none; published files use 1
// Published files have some hundreds of each. The limit keeps what a header of tiny entries costs
// in memory small.
constexpr uint64_t kMaxEntries = 131'072;

// What is being read, for errors: "<what> of <owner>", where the owner is known by its name or only
// by its index yet. Text is made only when an error needs it.
struct Field {
    const char* what;
    const char* kind;
    uint64_t index;
    std::string_view name = {};

    std::string text() const {
        if (kind == nullptr) return what;
        if (!name.empty()) return fmt::format("{} of {} {}", what, kind, printable(name));
        return fmt::format("{} of {} {}", what, kind, index);
    }
};

Field header_field(const char* what) {
    return {what, nullptr, 0};
}

// Walks the header. Every read is checked against the bytes left.
class Cursor {
  public:
    Cursor(std::span<const std::byte> bytes, const std::string& file)
        : bytes_(bytes), file_(file) {}

    const std::string& file() const { return file_; }
    uint64_t offset() const { return at_; }
    uint64_t n_left() const { return bytes_.size() - at_; }
    const std::byte* data() const { return bytes_.data() + at_; }

    void skip(uint64_t n, const Field& field) {
        if (n > n_left()) {
            throw Error(
                "{}: {} needs {} bytes at offset {}, only {} are left: the file is cut short",
                file_, field.text(), n, at_, n_left());
        }
        at_ += n;
    }

    template <class T>
    T number(const Field& field) {
        const std::byte* at = data();
        skip(sizeof(T), field);
        T value;
        memcpy(&value, at, sizeof value);
        return value;
    }

    std::string_view string(const Field& field) {
        uint64_t n = number<uint64_t>(field);
        if (n > n_left()) {
            throw Error("{}: length of {} is {}, more than the {} bytes left", file_, field.text(),
                        n, n_left());
        }
        auto* text = reinterpret_cast<const char*>(data());
        at_ += n;
        return {text, n};
    }

  private:
    std::span<const std::byte> bytes_;
    const std::string& file_;
    uint64_t at_ = 0;
};

GgufValueType read_type(Cursor& in, const Field& field) {
    uint32_t type = in.number<uint32_t>(field);
    if (type >= kNumGgufValueTypes) {
        throw Error("{}: {} is {}, expected 0 to {}", in.file(), field.text(), type,
                    kNumGgufValueTypes - 1);
    }
    return static_cast<GgufValueType>(type);
}

struct ArrayHead {
    GgufValueType element_type;
    uint64_t n_elements;
};

ArrayHead read_array_head(Cursor& in, const Field& owner) {
    Field type_field = owner, count_field = owner;
    type_field.what = "array element type";
    count_field.what = "array length";
    GgufValueType type = read_type(in, type_field);
    uint64_t n = in.number<uint64_t>(count_field);
    // The least that an element takes: a string its length, an array its type and count.
    uint64_t least = type == GgufValueType::kString  ? 8
                     : type == GgufValueType::kArray ? 12
                                                     : gguf_value_bytes(type);
    if (n > in.n_left() / least) {
        throw Error("{}: {} is {} ({}), more than the {} bytes left can hold", in.file(),
                    count_field.text(), n, gguf_value_type_name(type), in.n_left());
    }
    return {type, n};
}

void skip_value(Cursor& in, GgufValueType type, const Field& owner, int depth);

// The elements are walked even where nothing asks for them: what follows stands behind them, and a
// later look-up may rely on every length.
void skip_elements(Cursor& in, const ArrayHead& head, const Field& owner, int depth) {
    if (head.element_type != GgufValueType::kBool && gguf_value_bytes(head.element_type) > 0) {
        in.skip(head.n_elements * gguf_value_bytes(head.element_type), owner);
        return;
    }
    for (uint64_t i = 0; i < head.n_elements; i++) skip_value(in, head.element_type, owner, depth);
}

void skip_value(Cursor& in, GgufValueType type, const Field& owner, int depth) {
    if (type == GgufValueType::kString) {
        in.string(owner);
    } else if (type == GgufValueType::kArray) {
        if (depth >= kMaxArrayDepth) {
            throw Error("{}: {} nests arrays deeper than {}", in.file(), owner.text(),
                        kMaxArrayDepth);
        }
        ArrayHead head = read_array_head(in, owner);
        skip_elements(in, head, owner, depth + 1);
    } else if (type == GgufValueType::kBool) {
        uint8_t value = in.number<uint8_t>(owner);
        if (value > 1) {
            throw Error("{}: {} is the BOOL {}, expected 0 or 1", in.file(), owner.text(), value);
        }
    } else {
        in.skip(gguf_value_bytes(type), owner);
    }
}

GgufEntry read_entry(Cursor& in, uint64_t index) {
    Field field{"key", "metadata entry", index};
    GgufEntry entry = {};
    entry.key = in.string(field);
    if (entry.key.empty() || entry.key.size() > kMaxKeyBytes) {
        throw Error("{}: length of {} is {}, expected 1 to {}", in.file(), field.text(),
                    entry.key.size(), kMaxKeyBytes);
    }
    field = {"value type", "metadata key", index, entry.key};
    entry.type = entry.element_type = read_type(in, field);
    field.what = "value";
    entry.n_elements = 1;
    if (entry.type == GgufValueType::kArray) {
        ArrayHead head = read_array_head(in, field);
        entry.element_type = head.element_type;
        entry.n_elements = head.n_elements;
        entry.value = in.data();
        skip_elements(in, head, field, 1);
    } else {
        entry.value = in.data();
        skip_value(in, entry.type, field, 0);
    }
    return entry;
}

struct Header {
    uint64_t n_tensors, n_entries;
};

Header read_header(Cursor& in) {
    char magic[4];
    uint32_t magic_bits = in.number<uint32_t>(header_field("magic"));
    memcpy(magic, &magic_bits, sizeof magic);
    if (std::string_view(magic, 4) != "GGUF") {
        throw Error("{}: magic is \"{}\", expected \"GGUF\"", in.file(),
                    printable(std::string_view(magic, 4)));
    }
    uint32_t version = in.number<uint32_t>(header_field("version"));
    if (version != 0 && (version & 0xffffu) == 0) {
        throw Error(
            "{}: version is {:#x}: a big-endian GGUF file (version {}), expected a "
            "little-endian one",
            in.file(), version, __builtin_bswap32(version));
    }
    if (version != 2 && version != 3) {
        throw Error("{}: GGUF version is {}, expected 2 or 3", in.file(), version);
    }
    Header header = {};
    header.n_tensors = in.number<uint64_t>(header_field("n_tensors"));
    header.n_entries = in.number<uint64_t>(header_field("n_kv"));
    auto check = [&](const char* what, uint64_t n, uint64_t least_bytes) {
        uint64_t most = std::min(kMaxEntries, in.n_left() / least_bytes);
        if (n > most) {
            throw Error("{}: {} is {}, expected at most {} ({} bytes are left)", in.file(), what, n,
                        most, in.n_left());
        }
    };
    check("n_tensors", header.n_tensors, 8 + 1 + 4 + 8 + 4 + 8);
    check("n_kv", header.n_entries, 8 + 1 + 4 + 1);
    return header;
}

std::vector<GgufEntry> read_entries(Cursor& in, uint64_t n) {
    std::vector<GgufEntry> entries;
    entries.reserve(n);
    for (uint64_t i = 0; i < n; i++) entries.push_back(read_entry(in, i));
    return entries;
}

uint64_t read_alignment(const GgufMetadata& metadata) {
    const GgufEntry* entry = metadata.find("general.alignment");
    if (entry == nullptr) return kDefaultAlignment;
    if (entry->type != GgufValueType::kUint32) {
        throw Error("{}: general.alignment is of type {}, expected UINT32", metadata.file(),
                    gguf_type_text(*entry));
    }
    uint64_t alignment = *metadata.find_u64("general.alignment");
    if (alignment < kMinAlignment || alignment > kMaxAlignment || !std::has_single_bit(alignment)) {
        throw Error("{}: general.alignment is {}, expected a power of two from {} to {}",
                    metadata.file(), alignment, kMinAlignment, kMaxAlignment);
    }
    return alignment;
}

const Format& tensor_format(const Cursor& in, std::string_view name, uint32_t type) {
    if (const Format* format = find_gguf_format(type)) return *format;
    // Q4_2 and Q4_3 (4, 5) and the interleaved types (31 to 33, 36 to 38) were taken out of ggml.
    bool removed =
        type == 4 || type == 5 || (type >= 31 && type <= 33) || (type >= 36 && type <= 38);
    std::string_view known = gguf_type_name(type);
    if (removed) {
        throw Error(
            "{}: tensor {} has type {}, which GGUF no longer has", in.file(), printable(name),
            known == "unknown" ? std::to_string(type) : fmt::format("{} ({})", type, known));
    }
    if (known == "unknown") {
        throw Error("{}: tensor {} has type {}, which is no GGUF tensor type", in.file(),
                    printable(name), type);
    }
    std::string supported;
    for (const Format& format : formats()) {
        if (format.gguf_type >= 0)
            supported += (supported.empty() ? "" : " ") + std::string(format.name);
    }
    throw Error("{}: tensor {} has type {} ({}), expected one of {}", in.file(), printable(name),
                type, known, supported);
}

// Dimensions stand contiguous first in the file.
void read_dims(Cursor& in, GgufTensorInfo& info, Field field) {
    field.what = "n_dims";
    uint32_t n_dims = in.number<uint32_t>(field);
    if (n_dims < 1 || n_dims > kMaxDims) {
        throw Error("{}: {} is {}, expected 1 to {}", in.file(), field.text(), n_dims, kMaxDims);
    }
    info.n_dims = static_cast<int>(n_dims);
    field.what = "a dimension";
    uint64_t n_elements = 1;
    for (uint32_t i = 0; i < n_dims; i++) {
        uint64_t dim = in.number<uint64_t>(field);
        if (dim < 1 || dim > INT64_MAX) {
            throw Error("{}: dimension {} of tensor {} is {}, expected 1 to {}", in.file(), i,
                        printable(info.name), dim, INT64_MAX);
        }
        auto product = checked_mul(n_elements, dim);
        if (!product || *product > INT64_MAX) {
            throw Error("{}: dimensions of tensor {}: {} times {} elements is more than {}",
                        in.file(), printable(info.name), n_elements, dim, INT64_MAX);
        }
        n_elements = *product;
        info.shape[n_dims - 1 - i] = static_cast<int64_t>(dim);
    }
}

uint64_t tensor_bytes(const Cursor& in, const GgufTensorInfo& info) {
    uint64_t n_cols = static_cast<uint64_t>(info.shape[static_cast<size_t>(info.n_dims - 1)]);
    uint64_t block = static_cast<uint64_t>(info.format->block_elements);
    if (n_cols % block != 0) {
        throw Error("{}: tensor {} has rows of {} elements, expected a multiple of {} ({})",
                    in.file(), printable(info.name), n_cols, block, info.format->name);
    }
    uint64_t n_blocks = n_cols / block;
    for (int i = 0; i + 1 < info.n_dims; i++) {
        n_blocks *= static_cast<uint64_t>(info.shape[static_cast<size_t>(i)]);  // read_dims: fits
    }
    auto n_bytes = checked_mul(n_blocks, static_cast<uint64_t>(info.format->block_bytes));
    if (!n_bytes || *n_bytes > INT64_MAX) {
        throw Error("{}: tensor {} has {} blocks of {} bytes, more than {} bytes in all", in.file(),
                    printable(info.name), n_blocks, info.format->block_bytes, INT64_MAX);
    }
    return *n_bytes;
}

GgufTensorInfo read_tensor_info(Cursor& in, uint64_t index) {
    Field field{"name", "tensor", index};
    GgufTensorInfo info = {};
    info.name = in.string(field);
    if (info.name.empty() || info.name.size() > kMaxTensorName) {
        throw Error("{}: length of {} is {}, expected 1 to {}{}", in.file(), field.text(),
                    info.name.size(), kMaxTensorName,
                    info.name.empty() ? "" : ": " + printable(info.name, 64));
    }
    field.name = info.name;
    read_dims(in, info, field);
    field.what = "type";
    info.format = &tensor_format(in, info.name, in.number<uint32_t>(field));
    info.n_bytes = tensor_bytes(in, info);
    field.what = "offset";
    info.offset = in.number<uint64_t>(field);
    return info;
}

// Turns offsets within the data into offsets within the file.
void place_tensors(const Cursor& in, uint64_t alignment, uint64_t n_file_bytes,
                   std::vector<GgufTensorInfo>& tensors) {
    uint64_t data_start = *checked_round_up(in.offset(), alignment);
    for (GgufTensorInfo& info : tensors) {
        if (info.offset % alignment != 0) {
            throw Error("{}: offset of tensor {} is {}, expected a multiple of {}", in.file(),
                        printable(info.name), info.offset, alignment);
        }
        auto begin = checked_add(data_start, info.offset);
        auto end = begin ? checked_add(*begin, info.n_bytes) : std::nullopt;
        if (!end || *end > n_file_bytes) {
            throw Error(
                "{}: tensor {} has {} bytes at offset {} of the data, which begins at {}; "
                "the file ends at {}: is it cut short?",
                in.file(), printable(info.name), info.n_bytes, info.offset, data_start,
                n_file_bytes);
        }
        info.offset = *begin;
    }
}

void check_overlaps(const Cursor& in, const std::vector<GgufTensorInfo>& tensors) {
    std::vector<uint32_t> order(tensors.size());
    for (uint32_t i = 0; i < order.size(); i++) order[i] = i;
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return tensors[a].offset < tensors[b].offset; });
    for (size_t i = 1; i < order.size(); i++) {
        const GgufTensorInfo &before = tensors[order[i - 1]], &after = tensors[order[i]];
        if (after.offset - before.offset < before.n_bytes) {
            throw Error(
                "{}: tensors {} and {} overlap: {} bytes at offset {} of the file, and the "
                "other at {}",
                in.file(), printable(before.name), printable(after.name), before.n_bytes,
                before.offset, after.offset);
        }
    }
}

}  // namespace

GgufFile read_gguf(std::span<const std::byte> bytes, const std::string& path) {
    std::string file = printable(path, 0);
    Cursor in(bytes, file);
    Header header = read_header(in);
    GgufMetadata metadata(path, read_entries(in, header.n_entries));
    uint64_t alignment = read_alignment(metadata);
    std::vector<GgufTensorInfo> tensors;
    tensors.reserve(std::min(header.n_tensors, in.n_left() / 33));
    for (uint64_t i = 0; i < header.n_tensors; i++) tensors.push_back(read_tensor_info(in, i));
    NameIndex names(tensors.size());
    for (const GgufTensorInfo& info : tensors) names.add(info.name);
    if (auto twice = names.sort()) {
        throw Error("{}: tensor {} is given twice", file, printable(tensors[*twice].name));
    }
    place_tensors(in, alignment, bytes.size(), tensors);
    check_overlaps(in, tensors);
    return {std::move(metadata), std::move(tensors)};
}

}  // namespace ridge
