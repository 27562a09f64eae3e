// Decoding against golden data made by independent implementations (scripts/goldens/formats.py).

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/files.h"
#include "format/format.h"

namespace ridge {
namespace {

std::string golden_bytes(const std::string& name) {
    return read_file(std::string(RIDGE_TESTS_DIR) + "/golden_data/formats/" + name, 1 << 20);
}

// Takes values off the front of a golden file.
class Reader {
  public:
    explicit Reader(std::string bytes) : bytes_(std::move(bytes)) {}

    template <class T>
    T take() {
        T value;
        memcpy(&value, take_bytes(sizeof(T)), sizeof(T));
        return value;
    }
    const char* take_bytes(size_t n) {
        if (n > bytes_.size() - at_) throw std::out_of_range("golden file is too short");
        at_ += n;
        return bytes_.data() + at_ - n;
    }
    bool at_end() const { return at_ == bytes_.size(); }

  private:
    std::string bytes_;
    size_t at_ = 0;
};

// Any NaN is as good as another; every other value, zeros included, has to match in all bits.
uint32_t comparable_bits(float value) {
    return std::isnan(value) ? 0x7fc00000u : std::bit_cast<uint32_t>(value);
}

void expect_same(const std::vector<float>& got, const char* expected) {
    int n_shown = 0;
    for (size_t i = 0; i < got.size(); i++) {
        float want;
        memcpy(&want, expected + 4 * i, sizeof(want));
        if (comparable_bits(got[i]) == comparable_bits(want)) continue;
        ADD_FAILURE() << "element " << i << " is " << got[i] << ", expected " << want;
        if (++n_shown == 10) return;
    }
}

uint64_t splitmix64(uint64_t& state) {
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

std::vector<std::byte> random_bytes(uint64_t seed, size_t n) {
    std::vector<std::byte> bytes((n + 7) / 8 * 8);
    for (size_t at = 0; at < n; at += 8) {
        uint64_t word = splitmix64(seed);
        memcpy(bytes.data() + at, &word, sizeof(word));
    }
    bytes.resize(n);
    return bytes;
}

uint64_t fnv1a(const std::vector<float>& values) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (float value : values) hash = (hash ^ comparable_bits(value)) * 0x100000001b3u;
    return hash;
}

class BlockGolden : public testing::TestWithParam<Format> {};

TEST_P(BlockGolden, decodes_every_bit_as_the_reference_does) {
    const Format& format = GetParam();
    Reader file(golden_bytes(std::string(format.name) + ".bin"));
    const auto seed = file.take<uint64_t>(), n_hashed = file.take<uint64_t>();
    const auto hash = file.take<uint64_t>();
    const auto n_blocks = file.take<uint32_t>();
    ASSERT_EQ(file.take<uint32_t>(), static_cast<uint32_t>(format.block_bytes));
    ASSERT_EQ(file.take<uint32_t>(), static_cast<uint32_t>(format.block_elements));

    // At an odd address, as a file may have it.
    const size_t n_bytes = size_t{n_blocks} * static_cast<size_t>(format.block_bytes);
    std::vector<std::byte> blocks(n_bytes + 1);
    memcpy(blocks.data() + 1, file.take_bytes(n_bytes), n_bytes);
    std::vector<float> out(size_t{n_blocks} * static_cast<size_t>(format.block_elements), -1.0f);
    format.decode_row({blocks.data() + 1, nullptr, nullptr, 0, FormatId::kF16},
                      static_cast<int64_t>(out.size()), out.data());
    expect_same(out, file.take_bytes(4 * out.size()));
    EXPECT_TRUE(file.at_end());

    const auto many = random_bytes(seed, n_hashed * static_cast<size_t>(format.block_bytes));
    out.assign(n_hashed * static_cast<size_t>(format.block_elements), -1.0f);
    format.decode_row({many.data(), nullptr, nullptr, 0, FormatId::kF16},
                      static_cast<int64_t>(out.size()), out.data());
    EXPECT_EQ(fnv1a(out), hash) << "the hash of " << n_hashed << " random blocks";
}

std::vector<Format> block_formats() {
    std::vector<Format> found;
    for (const Format& format : formats()) {
        if (format.gguf_type >= 0) found.push_back(format);
    }
    return found;
}

INSTANTIATE_TEST_SUITE_P(formats, BlockGolden, testing::ValuesIn(block_formats()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(affine_golden, decodes_every_bit_of_all_widths_groups_and_scale_types) {
    Reader file(golden_bytes("affine.bin"));
    int n_cases = 0;
    for (; !file.at_end(); n_cases++) {
        const auto bits = file.take<uint32_t>(), group_size = file.take<uint32_t>();
        const auto scale_type = file.take<uint32_t>(), n = file.take<uint32_t>();
        SCOPED_TRACE(testing::Message() << bits << " bits, groups of " << group_size
                                        << ", scales of GGUF type " << scale_type);
        const Format* scale_format = find_gguf_format(scale_type);
        ASSERT_NE(scale_format, nullptr);
        const size_t plane_bytes = n / group_size * static_cast<size_t>(scale_format->block_bytes);
        auto as_bytes = [](const char* text) { return reinterpret_cast<const std::byte*>(text); };
        const RowPlanes row = {
            as_bytes(file.take_bytes(n * bits / 8)), as_bytes(file.take_bytes(plane_bytes)),
            as_bytes(file.take_bytes(plane_bytes)), static_cast<int>(group_size), scale_format->id};
        std::vector<float> out(n, -1.0f);
        format_of(bits == 4 ? FormatId::kAffine4 : FormatId::kAffine8)
            .decode_row(row, n, out.data());
        expect_same(out, file.take_bytes(4 * size_t{n}));
    }
    EXPECT_EQ(n_cases, 18);
}

}  // namespace
}  // namespace ridge
