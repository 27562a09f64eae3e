#include "cpu/compact.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "base/half.h"
#include "cases/random.h"
#include "cpu/interleaved.h"
#include "format/packing.h"
#include "support/all_kernels.h"
#include "support/seed.h"

namespace ridge {
namespace {

// A BF16 weight whose elements a function gives, by their index.
struct Weight {
    std::vector<uint16_t> bits;
    Tensor tensor;

    Weight(int64_t n_rows, int64_t n_cols, const std::function<uint16_t(int64_t)>& element)
        : bits(static_cast<size_t>(n_rows * n_cols)) {
        for (size_t i = 0; i < bits.size(); i++) bits[i] = element(static_cast<int64_t>(i));
        tensor.name = "weight";
        tensor.format = &format_of(FormatId::kBF16);
        tensor.layout = &row_major_layout();
        tensor.n_dims = 2;
        tensor.shape = {n_rows, n_cols};
        tensor.planes[0] = {reinterpret_cast<const std::byte*>(bits.data()), 2 * n_cols};
    }
};

struct Packed {
    std::vector<std::byte> memory;
    std::byte* data;
    Tensor tensor;

    Packed(const Tensor& weight, const Layout& layout, const cpu::Kernels& kernels) {
        Packing packing(weight, layout, &kernels);
        for (int64_t i = 0; i < packing.n_to_measure(); i++) packing.measure(i);
        packing.settle();
        // Behind it the kernels only prefetch.
        memory.resize(static_cast<size_t>(packing.n_bytes()) + 64, std::byte{0xa5});
        const auto at = reinterpret_cast<uintptr_t>(memory.data());
        data = memory.data() + (64 - at % 64) % 64;
        for (int64_t i = packing.n_parts(); i-- > 0;) packing.pack(i, data);
        tensor = packing.view(data);
    }
};

bool same_float(float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
           (std::isnan(a) && std::isnan(b));
}

void expect_rows_come_back(const Weight& weight, const Tensor& packed) {
    const int64_t n = weight.tensor.n_cols();
    std::vector<float> row(static_cast<size_t>(n));
    for (int64_t r = 0; r < weight.tensor.n_rows(); r++) {
        unpack_row(packed, r, row.data());
        for (int64_t k = 0; k < n; k++) {
            const uint32_t want = uint32_t{weight.bits[static_cast<size_t>(r * n + k)]} << 16;
            ASSERT_EQ(std::bit_cast<uint32_t>(row[static_cast<size_t>(k)]), want)
                << "row " << r << ", element " << k;
        }
    }
}

// Activations of a strip of rows, as decode kernels read them: as float32, and rounded to bf16.
struct Strip {
    std::vector<float> values;
    std::vector<uint16_t> rounded;
    cpu::Activations activations{};

    Strip(int64_t n_cols, int64_t n_padded) {
        constexpr int64_t kRows = cpu::kDecodeStripRows;
        values.resize(static_cast<size_t>(kRows * n_padded));
        rounded.resize(values.size());
        Random random(test_seed(), 77);
        for (int64_t r = 0; r < kRows; r++) {
            for (int64_t k = 0; k < n_cols; k++) {
                const float x = random.normal();
                values[static_cast<size_t>(k * kRows + r)] = x;
                rounded[static_cast<size_t>((k / 32 * kRows + r) * 32 + k % 32)] = to_bf16(x).bits;
            }
        }
        activations.rows_in_strip = kRows;
        activations.values = values.data(), activations.value_stride = kRows * n_padded;
        activations.bf16 = rounded.data(), activations.bf16_stride = kRows * n_padded;
    }
};

// Decode kernels on compact groups and on plain ones: the same bits, for any number of rows.
void expect_same_products(const Weight& weight, const Packed& compact,
                          const cpu::Kernels& kernels) {
    const cpu::PackedShape shape = cpu::packed_shape(weight.tensor);
    const Strip strip(weight.tensor.n_cols(), 32 * shape.n_supers);
    const cpu::Activations& activations = strip.activations;
    std::vector<std::byte> plain(static_cast<size_t>(cpu::group_bytes(weight.tensor)));
    for (int64_t g = 0; g < cpu::n_groups(weight.tensor); g++) {
        cpu::pack_group(kernels, weight.tensor, g, plain.data());
        const auto n_weights =
            std::min<int64_t>(cpu::kGroupRows, weight.tensor.n_rows() - g * cpu::kGroupRows);
        for (int n = 1; n <= cpu::kDecodeStripRows; n++) {
            float want[cpu::kDecodeStripRows * cpu::kGroupRows], got[std::size(want)];
            const int first = cpu::kDecodeStripRows - n;
            kernels.group[cpu::kBF16Index](reinterpret_cast<const uint8_t*>(plain.data()), shape,
                                           activations, first, n, want);
            kernels.compact.group(cpu::group_data(compact.tensor, g), shape, activations, first, n,
                                  got);
            for (int i = 0; i < n * cpu::kGroupRows; i++) {
                if (i % cpu::kGroupRows >= n_weights) continue;
                ASSERT_TRUE(same_float(want[i], got[i]))
                    << "group " << g << ", " << n << " rows, sum " << i << ": " << want[i]
                    << " and " << got[i];
            }
        }
    }
}

// What prompts multiply: slices of compact groups are unpacked to what those of plain ones are.
void expect_same_slices(const Weight& weight, const Packed& compact, const cpu::Kernels& kernels) {
    const cpu::PackedShape shape = cpu::packed_shape(weight.tensor);
    const cpu::GemmKernel &from_plain = kernels.gemm[cpu::kBF16Index],
                          &from_compact = kernels.compact.gemm;
    ASSERT_EQ(from_plain.operands, from_compact.operands);
    ASSERT_EQ(from_plain.slice_blocks, from_compact.slice_blocks);
    const size_t block_bytes = from_plain.operands == cpu::Operands::kF32 ? 2048 : 1024;
    std::vector<uint8_t> plain(static_cast<size_t>(cpu::group_bytes(weight.tensor)));
    // Groups alone that are whole: what fills the others up differs.
    for (int64_t g = 0; g < weight.tensor.n_rows() / cpu::kGroupRows; g++) {
        cpu::pack_group(kernels, weight.tensor, g, reinterpret_cast<std::byte*>(plain.data()));
        for (int64_t first = 0; first < shape.n_supers; first += from_plain.slice_blocks) {
            const int64_t n = std::min<int64_t>(from_plain.slice_blocks, shape.n_supers - first);
            const size_t n_bytes = static_cast<size_t>(n) * block_bytes;
            std::vector<uint8_t> want(n_bytes + 64), got(n_bytes + 64);
            if (from_plain.unpack == nullptr) {
                memcpy(want.data(), plain.data() + 1024 * first, n_bytes);
            } else {
                from_plain.unpack(plain.data(), shape, first, n, want.data(), nullptr, nullptr);
            }
            from_compact.unpack(cpu::group_data(compact.tensor, g), shape, first, n, got.data(),
                                nullptr, nullptr);
            ASSERT_EQ(want, got) << "group " << g << ", slice at block " << first;
        }
    }
}

// Compact, whatever it saves.
void expect_same(const Weight& weight, std::string_view what) {
    for (const auto& [name, kernels] : kernels_of_all_isas()) {
        SCOPED_TRACE(fmt::format("{} [{}, {}] on {}, RIDGE_SEED={}", what, weight.tensor.n_rows(),
                                 weight.tensor.n_cols(), name, test_seed()));
        Layout layout = cpu::interleaved_layout();
        layout.part_bytes = [](const Tensor&) { return int64_t{1} << 40; };  // so that compact wins
        const Packed compact(weight.tensor, layout, kernels);
        ASSERT_TRUE(cpu::is_compact(compact.tensor));
        expect_rows_come_back(weight, compact.tensor);
        expect_same_products(weight, compact, kernels);
        if (weight.tensor.n_cols() % 32 == 0) expect_same_slices(weight, compact, kernels);
    }
}

uint16_t bf16_bits(float x) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
}

// How many groups of the weight are compact.
int64_t n_compact_groups(const Tensor& packed) {
    int64_t n = 0;
    for (int64_t g = 0; g < cpu::n_groups(packed); g++) {
        n += cpu::group_data(packed, g)[cpu::kCompactFlag];
    }
    return n;
}

TEST(Compact, every_bf16_comes_back_bit_for_bit) {
    // Among others that fill the table, few enough that groups stay compact.
    constexpr int64_t kPatterns = 4096, kShare = 128;
    for (int64_t first = 0; first < 65536; first += kPatterns) {
        Random random(test_seed(), static_cast<uint64_t>(first));
        const Weight weight(32, kPatterns * kShare / 32, [&](int64_t i) {
            const auto pattern = static_cast<uint16_t>(first + i / kShare);
            return i % kShare == i / kShare % kShare ? pattern : bf16_bits(random.normal());
        });
        const auto kernels = kernels_of_all_isas().back().kernels;
        const Packed packed(weight.tensor, cpu::interleaved_layout(), kernels);
        ASSERT_TRUE(cpu::is_compact(packed.tensor));
        EXPECT_EQ(n_compact_groups(packed.tensor), 2);
        if (first == 0 || first == 0x7000 || first == 0xf000) {
            expect_same(weight, fmt::format("patterns from {:#x} on", first));
        } else {
            expect_rows_come_back(weight, packed.tensor);
        }
    }
}

TEST(Compact, weights_that_no_table_fits_come_back_bit_for_bit) {
    Random random(test_seed(), 1);
    auto bits = [&] { return static_cast<uint16_t>(random.below(65536)); };
    const std::vector<std::pair<std::string_view, std::function<uint16_t(int64_t)>>> fills = {
        {"zeros", [](int64_t) { return uint16_t{0}; }},
        {"zeros of both signs", [](int64_t i) { return static_cast<uint16_t>(i % 2 << 15); }},
        {"ones", [](int64_t) { return bf16_bits(1); }},
        {"subnormals", [&](int64_t) { return static_cast<uint16_t>(bits() & 0x807f); }},
        {"infinities", [&](int64_t) { return static_cast<uint16_t>(0x7f80 | (bits() & 0x8000)); }},
        {"NaNs", [&](int64_t) { return static_cast<uint16_t>(bits() | 0x7f81); }},
        {"any", [&](int64_t) { return bits(); }},
        {"large and small in turn",
         [&](int64_t i) { return bf16_bits(std::ldexp(random.normal(), i % 2 == 0 ? 60 : -60)); }},
        {"normal", [&](int64_t) { return bf16_bits(random.normal()); }},
        {"one of three a zero",
         [&](int64_t i) { return i % 3 == 0 ? uint16_t{0} : bf16_bits(random.normal()); }},
        {"one infinity",
         [&](int64_t i) { return i == 0 ? uint16_t{0xff80} : bf16_bits(random.normal()); }},
        {"exponents of a wide spread",
         [&](int64_t) { return bf16_bits(std::exp(4 * random.normal())); }},
        {"subnormals among normals",
         [&](int64_t i) {
             return i % 101 == 0 ? static_cast<uint16_t>(bits() & 0x807f)
                                 : bf16_bits(random.normal());
         }},
        {"the last of each row is large",
         [&](int64_t i) { return bf16_bits(i % 96 == 95 ? 1e30f : random.normal()); }},
    };
    for (const auto& [name, fill] : fills) {
        expect_same(Weight(32, 96, fill), name);
        expect_same(Weight(16, 2080, fill), name);
        expect_same(Weight(19, 77, fill), name);  // rows and columns that are not there
        expect_same(Weight(1, 1, fill), name);
    }
}

// A weight that saves nothing stays as it is; one odd group does not spoil the others.
TEST(Compact, is_chosen_where_it_saves_memory) {
    const cpu::Kernels kernels = kernels_of_all_isas().front().kernels;
    Random random(test_seed(), 2);
    auto any = [&](int64_t) { return static_cast<uint16_t>(random.below(65536)); };
    auto normal = [&](int64_t) { return bf16_bits(0.02f * random.normal()); };
    const Weight odd(64, 2048, any), even(64, 2048, normal),
        mixed(160, 2048, [&](int64_t i) { return i < 16 * 2048 ? any(i) : normal(i); });
    const Packed plain(odd.tensor, cpu::interleaved_layout(), kernels);
    EXPECT_EQ(plain.tensor.layout, &cpu::interleaved_layout());
    EXPECT_EQ(bytes_in_memory(plain.tensor), odd.tensor.n_bytes());
    expect_rows_come_back(odd, plain.tensor);

    const Packed compact(even.tensor, cpu::interleaved_layout(), kernels);
    ASSERT_TRUE(cpu::is_compact(compact.tensor));
    EXPECT_EQ(n_compact_groups(compact.tensor), 4);
    const auto share = static_cast<double>(bytes_in_memory(compact.tensor)) /
                       static_cast<double>(even.tensor.n_bytes());
    EXPECT_GT(share, 0.75);
    EXPECT_LT(share, 0.765);

    const Packed both(mixed.tensor, cpu::interleaved_layout(), kernels);
    ASSERT_TRUE(cpu::is_compact(both.tensor));
    EXPECT_EQ(n_compact_groups(both.tensor), 9);
    expect_same(mixed, "one group of any bits");
}

// All instruction sets pack to the same bytes.
TEST(Compact, groups_are_the_same_bytes_on_every_instruction_set) {
    Random random(test_seed(), 3);
    const Weight weight(37, 555, [&](int64_t i) {
        return i % 7 == 0 ? uint16_t{0} : bf16_bits(random.normal() * random.normal());
    });
    const auto all = kernels_of_all_isas();
    const Packed first(weight.tensor, cpu::interleaved_layout(), all[0].kernels);
    ASSERT_TRUE(cpu::is_compact(first.tensor));
    for (const auto& [name, kernels] : all) {
        const Packed other(weight.tensor, cpu::interleaved_layout(), kernels);
        ASSERT_EQ(first.memory.size(), other.memory.size()) << name;
        EXPECT_EQ(memcmp(first.data, other.data, first.memory.size() - 64), 0) << name;
    }
}

}  // namespace
}  // namespace ridge
