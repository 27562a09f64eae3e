#include "file/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "file/name_index.h"
#include "format/tensor.h"

namespace ridge {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxTensors = 131'072;  // published files have some hundreds; bounds memory
constexpr size_t kMaxDims = 4;

constexpr SafetensorsType kTypes[] = {
    {"F64", 64},    {"F32", 32},    {"F16", 16},    {"BF16", 16},   {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
    {"I64", 64},    {"I32", 32},    {"I16", 16},    {"I8", 8},      {"U64", 64},
    {"U32", 32},    {"U16", 16},    {"U8", 8},      {"BOOL", 8},    {"C64", 64},
};

// Reads the header's JSON as it is parsed, so that no tree of it is built. The JSON's levels are:
// 1, names of tensors; 2, fields of one tensor; 3, the numbers of a shape or a range. What is
// inside
// __metadata__ or a field that the format does not have is skipped.
class HeaderReader : public nlohmann::json_sax<JsonMap> {
  public:
    explicit HeaderReader(const std::string& file) : file_(file) {}

    std::vector<SafetensorsTensor> take_tensors() { return std::move(tensors_); }

    bool null() override { return scalar("null"); }
    bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
    bool number_integer(number_integer_t value) override { return scalar(std::to_string(value)); }
    bool number_float(number_float_t, const string_t& text) override { return scalar(text); }
    bool binary(binary_t&) override { return scalar("binary"); }

    bool number_unsigned(number_unsigned_t value) override {
        if (depth_ != 3 || skipping()) return scalar(std::to_string(value));
        size_t limit = field_ == Field::kShape ? kMaxDims : 2;
        if (n_numbers_ == limit) {
            fail("{} has more than {} numbers", field_text(), limit);
        }
        numbers_[n_numbers_++] = value;
        return true;
    }

    bool string(string_t& value) override {
        if (depth_ != 2 || skipping() || field_ != Field::kType) {
            return scalar('"' + printable(value) + '"');
        }
        tensor_.type = find_safetensors_type(value);
        if (tensor_.type == nullptr) {
            fail("dtype of tensor {} is \"{}\", which safetensors does not have",
                 printable(tensor_.name), printable(value));
        }
        has_type_ = true;
        return true;
    }

    bool start_object(size_t) override {
        enter();
        if (skipping() || depth_ == 1) return true;
        if (depth_ > 2) wrong_kind("an object", depth_ - 1);
        tensor_.type = nullptr;
        has_type_ = has_shape_ = has_range_ = false;
        return true;
    }

    bool start_array(size_t) override {
        enter();
        if (skipping()) return true;
        if (depth_ == 1) fail("the header is a JSON array, expected an object");
        if (depth_ != 3 || field_ == Field::kType) wrong_kind("an array", depth_ - 1);
        n_numbers_ = 0;
        return true;
    }

    bool key(string_t& name) override {
        if (skip_depth_ > 0 && depth_ > skip_depth_) return true;
        skip_depth_ = 0;
        if (depth_ == 1) {
            tensor_.name = name;
            if (name == "__metadata__") skip_depth_ = depth_;
            return true;
        }
        bool* seen = nullptr;
        if (name == "dtype") {
            field_ = Field::kType, seen = &has_type_;
        } else if (name == "shape") {
            field_ = Field::kShape, seen = &has_shape_;
        } else if (name == "data_offsets") {
            field_ = Field::kRange, seen = &has_range_;
        } else {
            skip_depth_ = depth_;
        }
        if (seen != nullptr && *seen) fail("{} is given twice", field_text());
        return true;
    }

    bool end_array() override {
        if (leave()) return true;
        if (field_ == Field::kShape) {
            tensor_.n_dims = static_cast<int>(n_numbers_);
            for (size_t i = 0; i < n_numbers_; i++) {
                if (numbers_[i] > INT64_MAX) {
                    fail("{} has the dimension {}, expected at most {}", field_text(), numbers_[i],
                         INT64_MAX);
                }
                tensor_.shape[i] = static_cast<int64_t>(numbers_[i]);
            }
            has_shape_ = true;
        } else {
            if (n_numbers_ != 2 || numbers_[0] > numbers_[1]) {
                fail("{} is {}, expected [begin, end]", field_text(), numbers_text());
            }
            tensor_.offset = numbers_[0];
            tensor_.n_bytes = numbers_[1] - numbers_[0];
            has_range_ = true;
        }
        return true;
    }

    bool end_object() override {
        if (leave() || depth_ != 1) return true;
        const char* missing = !has_type_    ? "dtype"
                              : !has_shape_ ? "shape"
                              : !has_range_ ? "data_offsets"
                                            : nullptr;
        if (missing != nullptr) fail("tensor {} has no {}", printable(tensor_.name), missing);
        if (tensors_.size() == kMaxTensors)
            fail("the header has more than {} tensors", kMaxTensors);
        tensors_.push_back(std::move(tensor_));
        return true;
    }

    bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception& e) override {
        std::string_view reason = e.what();
        size_t colon = reason.find(": ", std::min(reason.size(), reason.find("column")));
        if (colon != std::string_view::npos) reason = reason.substr(colon + 2);
        fail("the header is not valid JSON at byte {}: {}", at, printable(reason));
    }

  private:
    enum class Field { kType, kShape, kRange };

    template <class... Args>
    [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
        throw Error("{}: {}", file_, fmt::format(format, std::forward<Args>(args)...));
    }

    bool skipping() const { return skip_depth_ > 0; }

    void enter() {
        if (++depth_ > kMaxJsonDepth) {
            fail("the header's JSON is nested deeper than {} levels", kMaxJsonDepth);
        }
    }

    // True where what ends is part of something skipped.
    bool leave() {
        bool skipped = skip_depth_ > 0 && depth_ > skip_depth_;
        if (!skipped) skip_depth_ = 0;
        depth_--;
        return skipped;
    }

    // A value that is no part of a tensor: fine where it is skipped.
    bool scalar(const std::string& value) {
        if (skipping()) return true;
        if (depth_ == 0) fail("the header is {}, expected a JSON object", printable(value));
        if (depth_ == 3) {
            fail("{} holds {}, expected whole numbers of 0 or more", field_text(),
                 printable(value));
        }
        wrong_kind(value, depth_);
    }

    // A key of this level holds something else than it should.
    [[noreturn]] void wrong_kind(const std::string& found, int level) {
        if (level == 1) {
            fail("tensor {} is {}, expected an object", printable(tensor_.name), found);
        }
        fail("{} is {}, expected {}", field_text(), found,
             field_ == Field::kType ? "a string" : "an array of whole numbers");
    }

    std::string field_text() const {
        constexpr const char* kNames[] = {"dtype", "shape", "data_offsets"};
        return fmt::format("{} of tensor {}", kNames[static_cast<int>(field_)],
                           printable(tensor_.name));
    }

    std::string numbers_text() const {
        std::string text;
        for (size_t i = 0; i < n_numbers_; i++) {
            text += fmt::format("{}{}", i > 0 ? ", " : "", numbers_[i]);
        }
        return '[' + text + ']';
    }

    const std::string& file_;
    std::vector<SafetensorsTensor> tensors_;
    SafetensorsTensor tensor_ = {};  // the one being read
    Field field_ = Field::kType;
    bool has_type_ = false, has_shape_ = false, has_range_ = false;
    std::array<uint64_t, kMaxDims> numbers_{};
    size_t n_numbers_ = 0;
    int depth_ = 0;
    int skip_depth_ = 0;  // > 0: what the last key of this level holds is skipped
};

void check_size(const std::string& file, const SafetensorsTensor& tensor) {
    std::optional<uint64_t> n_bits = static_cast<uint64_t>(tensor.type->bits);
    bool zero = false;  // a 0 behind dimensions whose product does not fit
    for (int i = 0; i < tensor.n_dims; i++) {
        uint64_t dim = static_cast<uint64_t>(tensor.shape[static_cast<size_t>(i)]);
        zero |= dim == 0;
        if (n_bits) n_bits = checked_mul(*n_bits, dim);
    }
    if (zero) n_bits = 0;
    if (!n_bits || *n_bits % 8 != 0 || *n_bits / 8 != tensor.n_bytes) {
        throw Error("{}: data_offsets of tensor {} span {} bytes, expected {} for shape {} of {}",
                    file, printable(tensor.name), tensor.n_bytes,
                    !n_bits ? "more than 2^61" : fmt::format("{}", (*n_bits + 7) / 8),
                    shape_text(tensor.dims()), tensor.type->name);
    }
}

// Ranges are relative to the data here.
void check_ranges(const std::string& file, const std::vector<SafetensorsTensor>& tensors,
                  uint64_t n_data_bytes) {
    uint64_t covered = 0;
    const SafetensorsTensor* before = nullptr;
    for (const SafetensorsTensor& tensor : tensors) {
        if (tensor.offset > n_data_bytes || tensor.n_bytes > n_data_bytes - tensor.offset) {
            throw Error("{}: data_offsets of tensor {} are [{}, {}], the file has {} bytes of data",
                        file, printable(tensor.name), tensor.offset, tensor.offset + tensor.n_bytes,
                        n_data_bytes);
        }
        if (tensor.offset < covered) {
            throw Error(
                "{}: data_offsets of tensor {} begin at {}, inside tensor {}, which ends at {}",
                file, printable(tensor.name), tensor.offset, printable(before->name), covered);
        }
        if (tensor.offset > covered) {
            throw Error(
                "{}: data_offsets of tensor {} begin at {}, expected {}: a hole in the data", file,
                printable(tensor.name), tensor.offset, covered);
        }
        covered += tensor.n_bytes;
        before = &tensor;
    }
    if (covered != n_data_bytes) {
        throw Error("{}: the tensors cover {} bytes, but {} bytes of data follow the header", file,
                    covered, n_data_bytes);
    }
}

std::string_view header_text(std::span<const std::byte> bytes, const std::string& file) {
    if (bytes.size() < kLengthBytes) {
        throw Error("{}: the file has {} bytes, expected a header length of {} bytes", file,
                    bytes.size(), kLengthBytes);
    }
    uint64_t n;
    memcpy(&n, bytes.data(), sizeof n);
    if (n < 2 || n > kMaxHeaderBytes) {
        throw Error("{}: header length is {}, expected 2 to {}", file, n, kMaxHeaderBytes);
    }
    if (n > bytes.size() - kLengthBytes) {
        throw Error("{}: header length is {}, more than the {} bytes left", file, n,
                    bytes.size() - kLengthBytes);
    }
    return {reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, n};
}

}  // namespace

const SafetensorsType* find_safetensors_type(std::string_view name) {
    auto found = std::find_if(std::begin(kTypes), std::end(kTypes),
                              [&](const SafetensorsType& type) { return type.name == name; });
    return found == std::end(kTypes) ? nullptr : found;
}

std::vector<SafetensorsTensor> read_safetensors(std::span<const std::byte> bytes,
                                                const std::string& path) {
    std::string file = printable(path, 0);
    std::string_view header = header_text(bytes, file);
    HeaderReader reader(file);
    JsonMap::sax_parse(header.data(), header.data() + header.size(), &reader);
    std::vector<SafetensorsTensor> tensors = reader.take_tensors();

    NameIndex names(tensors.size());
    for (const SafetensorsTensor& tensor : tensors) names.add(tensor.name);
    if (auto twice = names.sort()) {
        throw Error("{}: tensor {} is given twice", file, printable(tensors[*twice].name));
    }
    for (const SafetensorsTensor& tensor : tensors) check_size(file, tensor);
    std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
        return std::pair(a.offset, a.n_bytes) < std::pair(b.offset, b.n_bytes);
    });
    uint64_t data_start = kLengthBytes + header.size();
    check_ranges(file, tensors, bytes.size() - data_start);
    for (SafetensorsTensor& tensor : tensors) tensor.offset += data_start;
    return tensors;
}

}  // namespace ridge
