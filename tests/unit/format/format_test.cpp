// The table of formats, quantisers against decoders, and tensors.

#include "format/format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/system.h"
#include "format/affine.h"
#include "format/tensor.h"

namespace ridge {
namespace {

TEST(format_table, rows_stand_in_the_order_of_their_ids) {
    ASSERT_EQ(formats().size(), static_cast<size_t>(kNumFormats));
    for (size_t i = 0; i < formats().size(); i++) {
        EXPECT_EQ(static_cast<size_t>(formats()[i].id), i);
        EXPECT_EQ(&format_of(formats()[i].id), &formats()[i]);
    }
}

TEST(format_table, names_are_found_in_any_case_and_only_whole) {
    for (const Format& format : formats()) {
        std::string low(format.name), high(format.name);
        for (char& c : low) c = static_cast<char>(tolower(c));
        for (char& c : high) c = static_cast<char>(toupper(c));
        EXPECT_EQ(find_format(low), &format) << low;
        EXPECT_EQ(find_format(high), &format) << high;
    }
    for (const char* name :
         {"", "Q4", "Q4_K_M", "q4_k_s", "Q4K", " Q4_0", "Q4_0 ", "affine", "f8"}) {
        EXPECT_EQ(find_format(name), nullptr) << name;
    }
}

TEST(format_table, gguf_types_have_names_and_ours_are_found) {
    for (uint32_t type = 0; type <= 41; type++) EXPECT_NE(gguf_type_name(type), "unknown") << type;
    EXPECT_EQ(gguf_type_name(16), "IQ2_XXS");
    EXPECT_EQ(gguf_type_name(39), "MXFP4");
    EXPECT_EQ(gguf_type_name(42), "unknown");
    EXPECT_EQ(gguf_type_name(0xffffffffu), "unknown");
    for (const Format& format : formats()) {
        if (format.gguf_type < 0) continue;
        const auto type = static_cast<uint32_t>(format.gguf_type);
        EXPECT_EQ(find_gguf_format(type), &format);
        EXPECT_EQ(gguf_type_name(type), format.name);
    }
    for (uint32_t type : {4u, 9u, 15u, 16u, 24u, 31u, 39u, 42u, 0xffffffffu}) {
        EXPECT_EQ(find_gguf_format(type), nullptr) << type;
    }
}

TEST(format_table, f16_rows_agree_with_the_scalar_conversion_on_all_values) {
    std::vector<uint16_t> bits(65536);
    for (size_t i = 0; i < bits.size(); i++) bits[i] = static_cast<uint16_t>(i);
    std::vector<float> out(bits.size());
    format_of(FormatId::kF16)
        .decode_row(
            {reinterpret_cast<const std::byte*>(bits.data()), nullptr, nullptr, 0, FormatId::kF16},
            65536, out.data());
    for (size_t i = 0; i < bits.size(); i++) {
        ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(to_float(f16{bits[i]})))
            << i;
    }
}

std::vector<float> normal_row(uint64_t seed, size_t n, float deviation) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> x(n);
    for (float& value : x) value = normal(random);
    return x;
}

std::vector<std::byte> encode(const Format& format, const std::vector<float>& x) {
    const auto n = static_cast<int64_t>(x.size());
    std::vector<std::byte> blocks(static_cast<size_t>(row_bytes(format, n)), std::byte{0xa5});
    format.encode_row(x.data(), n, blocks.data());
    return blocks;
}

std::vector<float> decode(const Format& format, const std::vector<std::byte>& blocks, size_t n) {
    std::vector<float> out(n, std::numeric_limits<float>::quiet_NaN());
    format.decode_row({blocks.data(), nullptr, nullptr, 0, FormatId::kF16}, static_cast<int64_t>(n),
                      out.data());
    return out;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < want.size(); i++) {
        error += std::pow(static_cast<double>(got[i]) - want[i], 2);
        norm += std::pow(static_cast<double>(want[i]), 2);
    }
    return std::sqrt(error / norm);
}

// Relative L2 error of a round trip of normal random numbers: the bound is the expected error plus
// a few percent.
struct ErrorBound {
    FormatId id;
    double bound;
};
constexpr ErrorBound kBounds[] = {
    {FormatId::kF32, 0},       {FormatId::kF16, 0.00023},  {FormatId::kBF16, 0.0018},
    {FormatId::kQ4_0, 0.089},  {FormatId::kQ4_1, 0.081},   {FormatId::kQ5_0, 0.0445},
    {FormatId::kQ5_1, 0.0395}, {FormatId::kQ8_0, 0.0056},  {FormatId::kQ2_K, 0.28},
    {FormatId::kQ3_K, 0.15},   {FormatId::kQ4_K, 0.075},   {FormatId::kQ5_K, 0.038},
    {FormatId::kQ6_K, 0.0182}, {FormatId::kIQ4_NL, 0.077}, {FormatId::kIQ4_XS, 0.078},
};

TEST(quantisers, keep_normal_numbers_within_the_error_of_their_format) {
    const uint64_t seed = random_seed();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    for (const ErrorBound& row : kBounds) {
        const Format& format = format_of(row.id);
        for (float deviation : {0.02f, 1.0f, 300.0f}) {
            const std::vector<float> x = normal_row(seed, 64 * 256, deviation);
            const double error = relative_error(decode(format, encode(format, x), x.size()), x);
            EXPECT_LE(error, row.bound) << format.name << " at " << deviation;
            EXPECT_GE(error, row.bound * 0.85) << format.name << " at " << deviation;
        }
    }
}

TEST(quantisers, give_finite_values_for_finite_input) {
    const uint64_t seed = random_seed();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const float kLargest = std::numeric_limits<float>::max();
    for (const Format& format : formats()) {
        if (format.encode_row == nullptr) continue;
        for (float size : {1e-45f, 1e-30f, 1e-10f, 1e-6f, 1e6f, 1e30f, kLargest}) {
            std::vector<float> x = normal_row(seed, 512, 1);
            for (float& value : x) value = std::clamp(value / 8, -1.0f, 1.0f) * size;
            x[0] = size, x[1] = -size, x[300] = -size;
            for (float value : decode(format, encode(format, x), x.size())) {
                ASSERT_TRUE(std::isfinite(value)) << format.name << " at " << size;
            }
        }
    }
}

TEST(quantisers, take_infinities_and_nans_without_harm) {
    std::vector<float> x = normal_row(1, 512, 1);
    x[3] = INFINITY, x[40] = -INFINITY, x[290] = NAN;
    for (const Format& format : formats()) {
        if (format.encode_row == nullptr || format.block_elements == 1) continue;
        for (float value : decode(format, encode(format, x), x.size())) {
            ASSERT_TRUE(std::isfinite(value)) << format.name;
        }
    }
    for (FormatId id : {FormatId::kF32, FormatId::kF16, FormatId::kBF16}) {  // these have them
        const std::vector<float> out = decode(format_of(id), encode(format_of(id), x), x.size());
        EXPECT_EQ(out[3], INFINITY);
        EXPECT_EQ(out[40], -INFINITY);
        EXPECT_TRUE(std::isnan(out[290]));
    }
}

TEST(quantisers, keep_zeros_and_nearly_keep_constants) {
    for (const Format& format : formats()) {
        if (format.encode_row == nullptr) continue;
        for (float value : {0.0f, 1.0f, -1.0f, 0.37f, -0.02f, 4000.0f}) {
            const std::vector<float> x(512, value);
            for (float got : decode(format, encode(format, x), x.size())) {
                ASSERT_NEAR(got, value, std::fabs(value) * 0.02f) << format.name;
            }
        }
    }
}

TEST(quantisers, give_back_what_was_decoded) {
    const uint64_t seed = random_seed();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    for (FormatId id : {FormatId::kF32, FormatId::kF16, FormatId::kBF16, FormatId::kQ4_0,
                        FormatId::kQ5_0, FormatId::kQ8_0}) {
        const Format& format = format_of(id);
        const std::vector<float> x = normal_row(seed, 64 * 256, 1);
        const std::vector<float> once = decode(format, encode(format, x), x.size());
        EXPECT_EQ(decode(format, encode(format, once), x.size()), once) << format.name;
    }
}

struct AffineRow {
    std::vector<std::byte> codes, scales, biases;
    RowPlanes planes(int group_size, FormatId scale_format) const {
        return {codes.data(), scales.data(), biases.data(), group_size, scale_format};
    }
};

AffineRow encode_affine_row(const std::vector<float>& x, int bits, int group_size,
                            FormatId scale_format) {
    const size_t plane_bytes = x.size() / static_cast<size_t>(group_size) *
                               static_cast<size_t>(format_of(scale_format).block_bytes);
    AffineRow row;
    row.codes.resize(x.size() * static_cast<size_t>(bits) / 8);
    row.scales.resize(plane_bytes);
    row.biases.resize(plane_bytes);
    encode_affine(x.data(), static_cast<int64_t>(x.size()), bits, group_size, scale_format,
                  row.codes.data(), row.scales.data(), row.biases.data());
    return row;
}

TEST(affine, round_trips_within_the_error_of_its_width_and_group) {
    const uint64_t seed = random_seed();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const std::vector<float> x = normal_row(seed, 64 * 256, 0.05f);
    for (int bits : {4, 8}) {
        for (int group_size : {32, 64, 128}) {
            for (FormatId scale_format : {FormatId::kF32, FormatId::kF16, FormatId::kBF16}) {
                const AffineRow row = encode_affine_row(x, bits, group_size, scale_format);
                std::vector<float> out(x.size());
                format_of(bits == 4 ? FormatId::kAffine4 : FormatId::kAffine8)
                    .decode_row(row.planes(group_size, scale_format),
                                static_cast<int64_t>(x.size()), out.data());
                EXPECT_LT(relative_error(out, x), bits == 4 ? 0.103 : 0.0062)
                    << bits << " bits, groups of " << group_size;
            }
        }
    }
}

TEST(affine, takes_constant_and_extreme_groups) {
    for (float value : {0.0f, 0.25f, -3.0f, 1e30f, -1e30f}) {
        for (int bits : {4, 8}) {
            std::vector<float> x(64, value);
            const AffineRow row = encode_affine_row(x, bits, 64, FormatId::kF32);
            std::vector<float> out(x.size());
            format_of(bits == 4 ? FormatId::kAffine4 : FormatId::kAffine8)
                .decode_row(row.planes(64, FormatId::kF32), 64, out.data());
            EXPECT_EQ(out, x);
            x[5] = 1e30f, x[6] = -1e30f, x[7] = NAN;
            const AffineRow half = encode_affine_row(x, bits, 64, FormatId::kF16);
            format_of(bits == 4 ? FormatId::kAffine4 : FormatId::kAffine8)
                .decode_row(half.planes(64, FormatId::kF16), 64, out.data());
            for (float got : out) EXPECT_TRUE(std::isfinite(got));
        }
    }
}

Tensor matrix(const Format& format, int64_t n_rows, int64_t n_cols, const std::byte* data) {
    Tensor tensor;
    tensor.name = "test";
    tensor.format = &format;
    tensor.layout = &row_major_layout();
    tensor.n_dims = 2;
    tensor.shape = {n_rows, n_cols, 0, 0};
    tensor.planes[0] = {data, row_bytes(format, n_cols)};
    return tensor;
}

TEST(tensors, rows_unpack_from_where_they_lie) {
    const std::vector<float> x = normal_row(5, 3 * 512, 1);
    const Format& format = format_of(FormatId::kQ6_K);
    const std::vector<std::byte> blocks = encode(format, x);
    const Tensor tensor = matrix(format, 3, 512, blocks.data());
    EXPECT_EQ(tensor.n_bytes(), static_cast<int64_t>(blocks.size()));
    EXPECT_EQ(shape_text(tensor), "[3, 512]");
    const std::vector<float> all = decode(format, blocks, x.size());
    for (int64_t row = 0; row < 3; row++) {
        std::vector<float> out(512);
        unpack_row(tensor, row, out.data());
        EXPECT_EQ(out, std::vector<float>(all.begin() + row * 512, all.begin() + (row + 1) * 512));
    }
    std::vector<float> out(512);
    EXPECT_DEATH(unpack_row(tensor, 3, out.data()), "row");
    EXPECT_DEATH(unpack_row(tensor, -1, out.data()), "row");
}

TEST(tensors, affine_tensors_count_and_read_three_planes) {
    const std::vector<float> x = normal_row(6, 2 * 256, 1);
    const AffineRow row = encode_affine_row(x, 4, 64, FormatId::kBF16);
    Tensor tensor = matrix(format_of(FormatId::kAffine4), 2, 256, row.codes.data());
    tensor.group_size = 64;
    tensor.scale_format = FormatId::kBF16;
    tensor.planes[1] = {row.scales.data(), 8};
    tensor.planes[2] = {row.biases.data(), 8};
    EXPECT_EQ(tensor.n_bytes(), 2 * (128 + 8 + 8));
    std::vector<float> all(512), out(256);
    format_of(FormatId::kAffine4).decode_row(row.planes(64, FormatId::kBF16), 512, all.data());
    unpack_row(tensor, 1, out.data());
    EXPECT_EQ(out, std::vector<float>(all.begin() + 256, all.end()));
}

}  // namespace
}  // namespace ridge
