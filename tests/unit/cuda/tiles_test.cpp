#include "cuda/tiles.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "cases/random_weights.h"
#include "format/packing.h"
#include "support/seed.h"

namespace ridge::cuda {
namespace {

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
                    Packing packing(linear.weight, tiles_layout(), nullptr);
                    packing.settle();
                    std::vector<std::byte> data(static_cast<size_t>(packing.n_bytes()));
                    for (int64_t i = 0; i < packing.n_parts(); i++) packing.pack(i, data.data());
                    const Tensor packed = packing.view(data.data());
                    std::vector<float> want(static_cast<size_t>(n_cols)), got(want.size());
                    for (int64_t row = 0; row < linear.weight.n_rows(); row++) {
                        unpack_row(linear.weight, row, want.data());
                        unpack_row(packed, row, got.data());
                        for (size_t k = 0; k < want.size(); k++) {
                            ASSERT_EQ(std::bit_cast<uint32_t>(want[k]),
                                      std::bit_cast<uint32_t>(got[k]))
                                << "row " << row << ", element " << k;
                        }
                    }
                }
            }
        }
    }
}

// No format takes more than 3 % more than in the file where rows are whole, but those that are kept
// in wider codes.
TEST(Tiles, take_little_more_than_the_file) {
    for (FormatId id : {FormatId::kF16, FormatId::kBF16, FormatId::kQ4_0, FormatId::kQ4_1,
                        FormatId::kQ5_0, FormatId::kQ5_1, FormatId::kQ8_0, FormatId::kQ4_K,
                        FormatId::kQ5_K, FormatId::kQ6_K, FormatId::kAffine4, FormatId::kAffine8}) {
        RandomWeights weights(test_seed());
        const Linear linear = weights.linear({16, id}, 2048, 1.0f, 1);
        const auto part = static_cast<double>(tile_geometry(linear.weight).part_bytes);
        EXPECT_LE(part, 1.03 * static_cast<double>(linear.weight.n_bytes())) << format_of(id).name;
    }
}

}  // namespace
}  // namespace ridge::cuda
