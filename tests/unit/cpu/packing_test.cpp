#include "format/packing.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/checked_math.h"
#include "cases/random_weights.h"
#include "cpu/compact.h"
#include "cpu/interleaved.h"
#include "cpu/isa.h"
#include "cpu/kernels_of_isa.h"
#include "support/seed.h"

namespace ridge {
namespace {

// Weights packed together, in the order in which a thread that is late would.
struct Packed {
    std::vector<std::byte> memory;
    std::byte* data;
    int64_t n_bytes;
    std::vector<Tensor> tensors;

    Packed(const std::vector<Tensor>& weights, const cpu::Kernels& kernels) {
        Packing packing(weights, cpu::interleaved_layout(), &kernels);
        for (int64_t i = packing.n_to_measure(); i-- > 0;) packing.measure(i);
        packing.settle();
        n_bytes = packing.n_bytes();
        EXPECT_LE(packing.least_bytes(), n_bytes);
        EXPECT_EQ(n_bytes % 64, 0);
        memory.resize(static_cast<size_t>(n_bytes) + 64, std::byte{0xa5});
        data = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
        for (size_t t = weights.size(); t-- > 0;) {
            for (int64_t i = packing.n_parts(); i-- > 0;) packing.pack(i, data, t);
        }
        for (size_t t = 0; t < weights.size(); t++) tensors.push_back(packing.view(data, t));
    }
};

cpu::Kernels best_kernels() {
    cpu::Kernels kernels = cpu::kernels_of_isa(available_isas().back());
    kernels.compact.faster = true;
    return kernels;
}

class SideBySide : public testing::Test {
  protected:
    Tensor weight(int64_t n_rows, FormatId format, int64_t n_cols = 512) {
        return random_.matrix({.d_out = n_rows, .format = format}, n_cols, 1, n_streams_++);
    }
    // BF16 that no table of high bytes fits: it does not become compact.
    Tensor odd_weight(int64_t n_rows, int64_t n_cols = 512) {
        Tensor tensor = weight(n_rows, FormatId::kBF16, n_cols);
        std::vector<std::byte>& bytes = odd_.emplace_back(static_cast<size_t>(tensor.n_bytes()));
        for (size_t i = 0; i < bytes.size(); i++) bytes[i] = static_cast<std::byte>(i * i / 7 + i);
        tensor.planes[0].data = bytes.data();
        return tensor;
    }

    // What was packed together is what each weight is when packed alone, group by group.
    void expect_as_alone(const std::vector<Tensor>& weights, const Packed& together) {
        std::vector<std::span<const std::byte>> spans;
        for (size_t t = 0; t < weights.size(); t++) {
            const Packed alone({weights[t]}, kernels_);
            const Tensor &want = alone.tensors[0], &got = together.tensors[t];
            ASSERT_EQ(got.layout, want.layout);
            EXPECT_EQ(bytes_in_memory(got), bytes_in_memory(want));
            for (int64_t g = 0; g < cpu::n_groups(want); g++) {
                const auto part = part_of(got, g), part_alone = part_of(want, g);
                ASSERT_EQ(part.size(), part_alone.size());
                EXPECT_EQ(memcmp(part.data(), part_alone.data(), part.size()), 0) << "group " << g;
                EXPECT_EQ(static_cast<const void*>(part.data()), cpu::group_data(got, g));
            }
            for (const auto& span : spans_in_memory(got)) spans.push_back(span);
            expect_rows(weights[t], got);
        }
        expect_disjoint(spans, together);
    }

    static void expect_rows(const Tensor& row_major, const Tensor& packed) {
        const auto n_cols = static_cast<size_t>(row_major.n_cols());
        std::vector<float> want(n_cols), got(n_cols);
        for (int64_t row = 0; row < row_major.n_rows(); row++) {
            unpack_row(row_major, row, want.data());
            unpack_row(packed, row, got.data());
            ASSERT_EQ(memcmp(want.data(), got.data(), n_cols * sizeof(float)), 0) << "row " << row;
        }
    }

    // Every byte behind the offsets of parts belongs to one part.
    static void expect_disjoint(std::vector<std::span<const std::byte>> spans,
                                const Packed& together) {
        std::sort(spans.begin(), spans.end(),
                  [](const auto& a, const auto& b) { return a.data() < b.data(); });
        for (size_t i = 1; i < spans.size(); i++) {
            ASSERT_LE(spans[i - 1].data() + spans[i - 1].size(), spans[i].data());
        }
        EXPECT_GE(spans.front().data(), together.data);
        EXPECT_EQ(spans.back().data() + spans.back().size(), together.data + together.n_bytes);
    }

    // Group i of each weight and then group i + 1: one stream.
    static void expect_in_turns(const Packed& packed) {
        const std::byte* at = part_data(packed.tensors[0], 0);
        for (int64_t g = 0; g < cpu::n_groups(packed.tensors[0]); g++) {
            for (size_t t = 0; t < packed.tensors.size(); t++) {
                ASSERT_EQ(part_data(packed.tensors[t], g), at) << "group " << g << " of " << t;
                at += part_of(packed.tensors[t], g).size();
            }
        }
        EXPECT_EQ(at, packed.data + packed.n_bytes);
    }

    const cpu::Kernels kernels_ = best_kernels();

  private:
    RandomWeights random_{test_seed()};
    std::deque<std::vector<std::byte>> odd_;
    uint64_t n_streams_ = 1;
};

TEST_F(SideBySide, groups_that_are_alike_lie_in_turns) {
    using enum FormatId;
    for (const std::vector<FormatId>& formats :
         {std::vector{kQ4_0, kQ4_0}, {kQ4_K, kQ6_K}, {kF32, kQ2_K}, {kQ8_0, kF16, kIQ4_XS}}) {
        for (int64_t n_rows : {16, 37, 64, 1}) {  // whole groups, and a last one that is not
            std::vector<Tensor> weights;
            int64_t n_bytes = 0;
            for (FormatId format : formats) {
                weights.push_back(weight(n_rows, format));
                n_bytes += cpu::group_bytes(weights.back()) * cpu::n_groups(weights.back());
            }
            SCOPED_TRACE(fmt::format("{} and {}, {} rows, RIDGE_SEED={}",
                                     format_of(formats[0]).name, format_of(formats[1]).name, n_rows,
                                     test_seed()));
            const Packed packed(weights, kernels_);
            EXPECT_EQ(packed.n_bytes, n_bytes);
            expect_in_turns(packed);
            expect_as_alone(weights, packed);
        }
    }
}

TEST_F(SideBySide, groups_that_were_measured_lie_in_turns) {
    for (int64_t n_rows : {16, 37, 64, 1}) {
        // Of different columns, so that parts of the two differ.
        const std::vector<Tensor> weights = {weight(n_rows, FormatId::kBF16),
                                             weight(n_rows, FormatId::kBF16, 1031)};
        SCOPED_TRACE(fmt::format("{} rows, RIDGE_SEED={}", n_rows, test_seed()));
        const Packed packed(weights, kernels_);
        for (const Tensor& tensor : packed.tensors) ASSERT_TRUE(cpu::is_compact(tensor));
        expect_in_turns(packed);
        expect_as_alone(weights, packed);
    }
}

TEST_F(SideBySide, of_two_kinds_one_lies_behind_the_other) {
    for (int64_t n_rows : {32, 37}) {
        const Tensor compact = weight(n_rows, FormatId::kBF16), odd = odd_weight(n_rows),
                     quantised = weight(n_rows, FormatId::kQ5_K);
        for (const std::vector<Tensor>& weights :
             {std::vector{compact, odd}, {odd, compact}, {quantised, compact}}) {
            SCOPED_TRACE(fmt::format("{} rows, RIDGE_SEED={}", n_rows, test_seed()));
            const Packed packed(weights, kernels_);
            EXPECT_NE(cpu::is_compact(packed.tensors[0]), cpu::is_compact(packed.tensors[1]));
            int64_t n_bytes = 0;
            for (const Tensor& tensor : weights) n_bytes += Packed({tensor}, kernels_).n_bytes;
            EXPECT_EQ(packed.n_bytes, n_bytes);
            expect_as_alone(weights, packed);
        }
        const std::vector<Tensor> alike = {odd, quantised};  // though one was measured
        const Packed packed(alike, kernels_);
        expect_in_turns(packed);
        expect_as_alone(alike, packed);
    }
}

// What is known before parts are measured is exact where they are alike, and near where they become
// compact.
TEST_F(SideBySide, least_bytes_are_near) {
    auto least = [&](const Tensor& tensor) {
        return Packing(tensor, cpu::interleaved_layout(), &kernels_).least_bytes();
    };
    const Tensor quantised = weight(37, FormatId::kQ3_K);
    EXPECT_EQ(least(quantised), Packed({quantised}, kernels_).n_bytes);
    const Tensor compact = weight(64, FormatId::kBF16, 2048);
    EXPECT_LT(least(compact), Packed({compact}, kernels_).n_bytes);
    EXPECT_GT(least(compact), 0.98 * static_cast<double>(Packed({compact}, kernels_).n_bytes));
}

}  // namespace
}  // namespace ridge
