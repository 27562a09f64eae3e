#include "cpu/tile_panels.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "cases/random.h"
#include "cases/random_weights.h"
#include "cpu/interleaved.h"
#include "cpu/isa.h"
#include "cpu/kernels_of_isa.h"
#include "format/format.h"
#include "support/seed.h"

namespace ridge {
namespace {

struct NamedKernels {
    std::string_view name;
    cpu::Kernels kernels;
};

// Those of the tile unit in plain C++, and the machine's own where it has them.
std::vector<NamedKernels> kernels_on_tiles() {
    std::vector<NamedKernels> all;
    all.push_back({"tiles in plain C++", cpu::kernels_of_isa(Isa::kScalar)});
    cpu::add_scalar_tile_kernels(all.back().kernels);
    for (Isa isa : available_isas()) {
        if (isa == Isa::kAmx) all.push_back({isa_name(isa), cpu::kernels_of_isa(isa)});
    }
    return all;
}

// Rows of bf16 as MatmulInput has them.
struct Input {
    int64_t n_rows, stride;
    std::vector<uint16_t> rounded;

    Input(int64_t n_rows, int64_t d_in, Random& random)
        : n_rows(n_rows), stride(16 * d_in + 512), rounded(size_t(strips() * 2 * stride)) {
        for (int64_t r = 0; r < n_rows; r++) {
            for (int64_t k = 0; k < d_in; k++) {
                rounded[size_t(r / 16 * stride + k / 32 * cpu::kTileElements + r % 16 * 32 +
                               k % 32)] = to_bf16(random.normal()).bits;
            }
        }
    }
    int64_t strips() const { return (n_rows + cpu::kPaddedRows - 1) / cpu::kPaddedRows; }
    cpu::Activations rows_from_strip(int64_t strip) const {
        cpu::Activations x{};
        x.bf16 = rounded.data() + 2 * strip * stride, x.bf16_stride = stride;
        return x;
    }
};

struct Weight {
    FormatId format;
    Tensor tensor;
    std::vector<std::vector<uint8_t>> groups;
};

cpu::TilePanel panel_of(const Weight& weight, const cpu::Kernels& kernels, float* sums) {
    cpu::TilePanel panel{};
    const cpu::Geometry geometry = cpu::geometry_of(weight.tensor);
    panel.gemm = &kernels.gemm[static_cast<size_t>(weight.format)];
    for (size_t g = 0; g < cpu::kPanelGroups; g++) {
        panel.groups[g] = panel.supers[g] = weight.groups[g].data();
    }
    panel.shape = cpu::packed_shape(weight.tensor);
    panel.super_bytes = geometry.super_bytes(), panel.super_blocks = geometry.n_blocks();
    panel.n_blocks = panel.shape.n_supers * geometry.n_blocks();
    panel.sums = sums;
    return panel;
}

// Sums [n_rows][32] of each panel, multiplied all at once, or each alone with 32 rows at a time.
std::vector<float> multiply(const std::vector<Weight>& weights, const Input& input, bool at_once,
                            const cpu::Kernels& kernels) {
    std::vector<float> room(size_t{cpu::kTileRoomFloats}, 1e30f);
    const int64_t floats = input.strips() * cpu::kTileStripFloats;
    std::vector<float> sums(weights.size() * size_t(floats), 1e30f);
    std::vector<cpu::TilePanel> panels;
    for (size_t p = 0; p < weights.size(); p++) {
        panels.push_back(panel_of(weights[p], kernels, sums.data() + int64_t(p) * floats));
    }
    if (at_once) {
        cpu::multiply_tile_panels(kernels, panels, input.rows_from_strip(0), input.n_rows,
                                  room.data());
    } else {
        for (const cpu::TilePanel& all : panels) {
            for (int64_t strip = 0; strip < input.strips(); strip++) {
                cpu::TilePanel panel = all;
                panel.sums += strip * cpu::kTileStripFloats;
                const int64_t n = std::min<int64_t>(32, input.n_rows - 32 * strip);
                cpu::multiply_tile_panels(kernels, {&panel, 1}, input.rows_from_strip(strip), n,
                                          room.data());
            }
        }
    }
    std::vector<float> rows;
    for (const cpu::TilePanel& panel : panels) {
        for (int64_t r = 0; r < input.n_rows; r++) {
            rows.resize(rows.size() + cpu::kPanelRows);
            cpu::tile_row(panel.sums, r, rows.data() + rows.size() - cpu::kPanelRows);
        }
    }
    return rows;
}

// One after the other along k, as the tile unit in plain C++ adds.
float sum_in_order(const Weight& weight, const Input& input, int64_t row, int64_t j) {
    std::vector<float> w(size_t(weight.tensor.n_cols()));
    unpack_row(weight.tensor, j, w.data());
    float sum = 0;
    for (int64_t k = 0; k < weight.tensor.n_cols(); k++) {
        const size_t at =
            size_t(row / 16 * input.stride + k / 32 * cpu::kTileElements + row % 16 * 32 + k % 32);
        sum += to_float(bf16{input.rounded[at]}) * to_float(to_bf16(w[size_t(k)]));
    }
    return sum;
}

// From fewer rows than a strip has to more than one part of the input, formats with and without
// anything to unpack side by side, slices that are not whole.
TEST(TilePanels, sums_do_not_depend_on_what_is_multiplied_at_once) {
    constexpr FormatId kFormats[] = {FormatId::kQ4_K, FormatId::kBF16, FormatId::kQ6_K,
                                     FormatId::kF16,  FormatId::kQ2_K, FormatId::kIQ4_XS};
    constexpr struct {
        int64_t n_rows, d_in;
    } kSizes[] = {{1, 256}, {33, 768}, {70, 2304}, {290, 1280}, {530, 768}};
    for (const auto& [name, kernels] : kernels_on_tiles()) {
        for (const auto& size : kSizes) {
            SCOPED_TRACE(fmt::format("{} rows of {} on {}, RIDGE_SEED={}", size.n_rows, size.d_in,
                                     name, test_seed()));
            Random random(test_seed(), static_cast<uint64_t>(size.n_rows));
            const Input input(size.n_rows, size.d_in, random);
            RandomWeights made(test_seed());
            std::vector<Weight> weights;
            for (FormatId format : kFormats) {
                Weight weight{format, made.matrix({32, format}, size.d_in, 1.0f, 5), {}};
                for (int64_t g = 0; g < cpu::kPanelGroups; g++) {
                    weight.groups.emplace_back(size_t(cpu::group_bytes(weight.tensor)));
                    cpu::pack_group(kernels, weight.tensor, g,
                                    reinterpret_cast<std::byte*>(weight.groups.back().data()));
                }
                weights.push_back(std::move(weight));
            }
            const std::vector<float> together = multiply(weights, input, true, kernels);
            const std::vector<float> alone = multiply(weights, input, false, kernels);
            ASSERT_EQ(memcmp(together.data(), alone.data(), together.size() * sizeof(float)), 0);
            if (name == "amx") continue;
            for (size_t p = 0; p < weights.size(); p++) {
                for (int i = 0; i < 20; i++) {
                    const auto row = random.below(size.n_rows);
                    const auto j = random.below(32);
                    const size_t at = (p * size_t(size.n_rows) + size_t(row)) * 32 + size_t(j);
                    ASSERT_EQ(together[at], sum_in_order(weights[p], input, row, j))
                        << "weight " << p << ", row " << row << ", sum " << j;
                }
            }
        }
    }
}

}  // namespace
}  // namespace ridge
