#include "cpu/interleaved.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "cases/random_weights.h"
#include "cpu/isa.h"
#include "cpu/kernels_of_isa.h"
#include "support/seed.h"

namespace ridge {
namespace {

// All groups of the weight, behind one another.
std::vector<std::byte> packed_by(const cpu::Kernels& kernels, const Tensor& weight) {
    const auto bytes = static_cast<size_t>(cpu::group_bytes(weight));
    std::vector<std::byte> memory(bytes * static_cast<size_t>(cpu::n_groups(weight)),
                                  std::byte{0xff});
    for (int64_t g = 0; g < cpu::n_groups(weight); g++) {
        cpu::pack_group(kernels, weight, g, memory.data() + static_cast<size_t>(g) * bytes);
    }
    return memory;
}

// Every row of the weight, packed and as it was, bit for bit; packed to the same bytes by every
// instruction set.
void expect_same_rows(const CaseWeight& weight, int64_t d_in) {
    SCOPED_TRACE(fmt::format("{} [{}, {}], groups of {}, RIDGE_SEED={}",
                             format_of(weight.format).name, weight.d_out, d_in, weight.group_size,
                             test_seed()));
    RandomWeights random(test_seed());
    const Tensor plain = random.linear(weight, d_in, 1, 1).weight;
    const std::vector<std::byte> memory = packed_by(cpu::kernels_of_isa(Isa::kScalar), plain);
    for (Isa isa : available_isas()) {
        EXPECT_TRUE(packed_by(cpu::kernels_of_isa(isa), plain) == memory) << isa_name(isa);
    }
    Tensor packed = plain;
    packed.layout = &cpu::interleaved_layout();
    packed.planes = {Plane{memory.data(), cpu::group_bytes(plain)}};
    std::vector<float> want(static_cast<size_t>(d_in)), got(static_cast<size_t>(d_in));
    for (int64_t row = 0; row < weight.d_out; row++) {
        unpack_row(plain, row, want.data());
        unpack_row(packed, row, got.data());
        for (size_t k = 0; k < want.size(); k++) {
            ASSERT_EQ(std::bit_cast<uint32_t>(want[k]), std::bit_cast<uint32_t>(got[k]))
                << "row " << row << ", element " << k << ": " << want[k] << " and " << got[k];
        }
    }
}

TEST(Interleaved, rows_come_back_bit_for_bit_in_every_format) {
    for (const Format& format : formats()) {
        if (format.id == FormatId::kAffine4 || format.id == FormatId::kAffine8) {
            for (int group_size : {32, 64, 128}) {
                for (FormatId scales : {FormatId::kF32, FormatId::kF16, FormatId::kBF16}) {
                    expect_same_rows({19, format.id, false, group_size, scales}, 3 * group_size);
                    expect_same_rows({16, format.id, false, group_size, scales}, 512);
                }
            }
            continue;
        }
        // One that fills whole super-blocks of the layout, and one that ends within.
        expect_same_rows({16, format.id}, 512);
        expect_same_rows({19, format.id}, 9 * format.block_elements);
        if (format.block_elements == 1) expect_same_rows({35, format.id}, 33);
    }
}

}  // namespace
}  // namespace ridge
