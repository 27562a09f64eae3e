#include "cuda/tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "cases/random.h"
#include "cases/random_weights.h"
#include "format/packing.h"
#include "support/seed.h"

namespace ridge::cuda {
namespace {

// A weight in tiles.
class Packed {
  public:
    explicit Packed(const Tensor& weight) {
        Packing packing(weight, tiles_layout(), nullptr);
        packing.settle();
        data_.resize(static_cast<size_t>(packing.n_bytes()));
        for (int64_t i = 0; i < packing.n_parts(); i++) packing.pack(i, data_.data());
        tensor_ = packing.view(data_.data());
    }
    const Tensor& tensor() const { return tensor_; }
    float power(int64_t row) const {
        const auto* part = reinterpret_cast<const uint8_t*>(part_data(tensor_, row / kTileRows));
        return tile_power(tile_geometry(tensor_), part, static_cast<int>(row % kTileRows));
    }

  private:
    std::vector<std::byte> data_;
    Tensor tensor_;
};

// Divided by a power of two, every element of a row is less than 2^15, and the power's inverse is a
// normal number.
void expect_fitting_power(const Packed& packed, int64_t row, const std::vector<float>& elements) {
    const float power = packed.power(row);
    int exponent;
    ASSERT_EQ(std::frexp(power, &exponent), 0.5f);
    ASSERT_TRUE(std::isnormal(power) && std::isnormal(1 / power)) << power;
    for (float x : elements) {
        if (!std::isfinite(x)) continue;
        ASSERT_LT(std::abs(double{x}) / double{power}, 32768);
    }
}

// Every element of a packed weight is what the format's own decoding gives, bit for bit; short last
// parts and rows that end within a chunk or a super-block included.
TEST(Tiles, hold_what_the_file_holds) {
    for (const Format& format : formats()) {
        if (!has_tiles(format.id)) continue;
        const bool affine = format.id == FormatId::kAffine4 || format.id == FormatId::kAffine8;
        for (int group_size : affine ? std::vector<int>{32, 64, 128} : std::vector<int>{64}) {
            for (FormatId scale_format : {FormatId::kF16, FormatId::kBF16, FormatId::kF32}) {
                if (!affine && scale_format != FormatId::kF16) continue;
                for (int64_t n_cols : {256, 768, 1280}) {
                    SCOPED_TRACE(std::string(format.name) + " " + std::to_string(n_cols) +
                                 ", groups of " + std::to_string(group_size));
                    RandomWeights weights(test_seed());
                    CaseWeight wanted{37, format.id, false, group_size, scale_format};
                    const Linear linear = weights.linear(wanted, n_cols, 1.0f, 1);
                    const Packed packed(linear.weight);
                    std::vector<float> want(static_cast<size_t>(n_cols)), got(want.size());
                    for (int64_t row = 0; row < linear.weight.n_rows(); row++) {
                        unpack_row(linear.weight, row, want.data());
                        unpack_row(packed.tensor(), row, got.data());
                        for (size_t k = 0; k < want.size(); k++) {
                            ASSERT_EQ(std::bit_cast<uint32_t>(want[k]),
                                      std::bit_cast<uint32_t>(got[k]))
                                << "row " << row << ", element " << k;
                        }
                        if (format.id != FormatId::kF16) expect_fitting_power(packed, row, want);
                    }
                }
            }
        }
    }
}

// BF16 of every magnitude: what is at least 2^-31 of its row's greatest comes back bit for bit, the
// rest within 2^-39 of that one.
TEST(Tiles, hold_bf16_of_any_magnitude) {
    constexpr int64_t kRows = 40, kCols = 100;
    Random random(test_seed(), 1);
    std::vector<uint16_t> data(kRows * kCols);
    for (int64_t row = 0; row < kRows; row++) {
        // From the least normal number of f32 to the greatest.
        const int top = static_cast<int>(row * 253 / (kRows - 1)) - 126;
        for (int64_t k = 0; k < kCols; k++) {
            const int exponent = std::max(top - static_cast<int>(k % 50), -140);
            const float x = std::ldexp(random.normal() < 0 ? -1.75f : 1.5f, exponent);
            data[static_cast<size_t>(row * kCols + k)] = row == 7 ? 0 : to_bf16(x).bits;
        }
    }
    Tensor weight;
    weight.format = &format_of(FormatId::kBF16);
    weight.layout = &row_major_layout();
    weight.n_dims = 2, weight.shape = {kRows, kCols};
    weight.planes[0] = {reinterpret_cast<const std::byte*>(data.data()), 2 * kCols};
    const Packed packed(weight);
    std::vector<float> want(kCols), got(kCols);
    for (int64_t row = 0; row < kRows; row++) {
        unpack_row(weight, row, want.data());
        unpack_row(packed.tensor(), row, got.data());
        double greatest = 0;
        for (float x : want) greatest = std::max(greatest, std::abs(double{x}));
        for (size_t k = 0; k < want.size(); k++) {
            SCOPED_TRACE("row " + std::to_string(row) + ", element " + std::to_string(k));
            if (std::abs(want[k]) >= std::ldexp(greatest, -31) && greatest > 0x1p-100) {
                ASSERT_EQ(want[k], got[k]);
            } else {
                ASSERT_LE(std::abs(double{want[k]} - double{got[k]}),
                          std::ldexp(std::max(greatest, 0x1p-100), -39));
            }
        }
        expect_fitting_power(packed, row, want);
    }
}

// Scales of every magnitude that a format's f16 has, small scales of zero beside them.
TEST(Tiles, have_powers_that_fit_any_scales) {
    for (const Format& format : formats()) {
        if (!has_tiles(format.id) || format.id == FormatId::kBF16 || format.id == FormatId::kF16) {
            continue;
        }
        if (format.id == FormatId::kAffine4 || format.id == FormatId::kAffine8) continue;
        SCOPED_TRACE(std::string(format.name) + ", RIDGE_SEED=" + std::to_string(test_seed()));
        constexpr int64_t kRows = 48, kCols = 512;
        Random random(test_seed(), 1);
        const int64_t stride = row_bytes(format, kCols);
        std::vector<std::byte> data(static_cast<size_t>(kRows * stride));
        // Any bits are a block, but for infinities and NaN among its scales.
        for (std::byte& byte : data) byte = static_cast<std::byte>(random.bits() & 0xfb);
        Tensor weight;
        weight.format = &format;
        weight.layout = &row_major_layout();
        weight.n_dims = 2, weight.shape = {kRows, kCols};
        weight.planes[0] = {data.data(), stride};
        const Packed packed(weight);
        std::vector<float> elements(kCols);
        for (int64_t row = 0; row < kRows; row++) {
            unpack_row(weight, row, elements.data());
            expect_fitting_power(packed, row, elements);
        }
    }
}

// No format takes more than 3 % more than in the file where rows are whole, but those that are kept
// in wider codes, and the powers.
TEST(Tiles, take_little_more_than_the_file) {
    for (FormatId id : {FormatId::kF16, FormatId::kBF16, FormatId::kQ4_0, FormatId::kQ4_1,
                        FormatId::kQ5_0, FormatId::kQ5_1, FormatId::kQ8_0, FormatId::kQ4_K,
                        FormatId::kQ5_K, FormatId::kQ6_K, FormatId::kAffine4, FormatId::kAffine8}) {
        RandomWeights weights(test_seed());
        const Linear linear = weights.linear({16, id}, 2048, 1.0f, 1);
        const int part = tile_geometry(linear.weight).part_bytes - 4 * kTileRows;
        EXPECT_LE(part, 1.03 * static_cast<double>(linear.weight.n_bytes())) << format_of(id).name;
    }
}

}  // namespace
}  // namespace ridge::cuda
