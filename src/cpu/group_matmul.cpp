#include "cpu/group_matmul.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"

namespace ridge::cpu {
namespace {

bool is_float_format(FormatId id) {
    return id == FormatId::kF32 || id == FormatId::kF16 || id == FormatId::kBF16;
}

constexpr int64_t kQuantiseGrain = 2048;  // elements that a thread quantises at a time

}  // namespace

const Kernels& kernels_of(const Step& s) {
    CHECK(s.tables.kernels != nullptr);
    return *static_cast<const Kernels*>(s.tables.kernels);
}

GroupMatmul::GroupMatmul(Step& s, int64_t n_rows, int64_t d_in,
                         std::span<const Linear* const> weights)
    : s_(s),
      kernels_(kernels_of(s)),
      n_rows_(n_rows),
      d_in_(d_in),
      n_padded_((d_in + kPaddedBlock - 1) / kPaddedBlock * kPaddedBlock) {
    int64_t packed_bytes = 0;
    for (const Linear* linear : weights) {
        const Tensor& weight = linear->weight;
        CHECK(weight.n_cols() == d_in);
        (is_float_format(weight.format->id) ? wants_values_ : wants_codes_) = true;
        if (weight.layout == &row_major_layout()) {
            packed_bytes = std::max(packed_bytes, group_bytes(weight));
        }
    }
    const int64_t n_blocks = n_padded_ / kBlock;
    if (wants_codes_) {
        codes_ = s.scratch(n_rows, n_padded_ / 4);
        blocks_ = s.scratch(n_rows, 7 * n_blocks);
    }
    if (wants_values_ && d_in % kBlock != 0) values_ = s.scratch(n_rows, n_padded_);
    if (packed_bytes > 0) packed_ = s.scratch(s.pool.size(), packed_bytes / 4);
    if (s.planning) return;
    if (wants_codes_) {
        x_.codes = reinterpret_cast<const int8_t*>(codes_.row<float>(0));
        x_.code_stride = codes_.stride * 4;
        // One row: scales, scaled sums, negated sums of blocks, then both of half blocks. The
        // stride of rows is the same for all: that of the blocks.
        const QuantisedRow row = quantised_row(0);
        x_.scales = row.scales, x_.scaled_sums = row.scaled_sums;
        x_.negated_sums = row.negated_sums;
        x_.scaled_half_sums = row.scaled_half_sums, x_.negated_half_sums = row.negated_half_sums;
        x_.block_stride = blocks_.stride;
    }
}

QuantisedRow GroupMatmul::quantised_row(int64_t row) const {
    const int64_t n = n_padded_ / kBlock;
    float* at = blocks_.row<float>(row);
    return {reinterpret_cast<int8_t*>(codes_.row<float>(row)),
            at,
            at + n,
            at + 2 * n,
            reinterpret_cast<int32_t*>(at + 4 * n),
            reinterpret_cast<int32_t*>(at + 5 * n)};
}

void GroupMatmul::set_input(Rows x) {
    CHECK(x.n_rows == n_rows_ && x.n_cols == d_in_);
    if (wants_values_) {
        const bool whole = d_in_ % kBlock == 0;
        for (int64_t i = 0; i < n_rows_ && !whole; i++) {
            float* row = values_.row<float>(i);
            memcpy(row, x.row<float>(i), static_cast<size_t>(d_in_) * sizeof(float));
            std::fill(row + d_in_, row + n_padded_, 0.0f);
        }
        x_.values = whole ? x.row<float>(0) : values_.row<float>(0);
        x_.value_stride = whole ? x.stride : values_.stride;
    }
    if (!wants_codes_) return;
    // Pieces of a row are rows of their own to quantise_row: blocks know nothing of each other.
    const int64_t n_pieces = (n_padded_ + kQuantiseGrain - 1) / kQuantiseGrain;
    s_.pool.parallel_for(n_rows_ * n_pieces, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; i++) {
            const int64_t first = i % n_pieces * kQuantiseGrain;
            const int64_t n_padded = std::min(kQuantiseGrain, n_padded_ - first);
            QuantisedRow out = quantised_row(i / n_pieces);
            out.codes += first;
            out.scales += first / kBlock, out.scaled_sums += first / kBlock;
            out.negated_sums += first / kBlock;
            out.scaled_half_sums += 2 * first / kBlock;
            out.negated_half_sums += 2 * first / kBlock;
            kernels_.quantise_row(x.row<float>(i / n_pieces) + first,
                                  std::clamp<int64_t>(d_in_ - first, 0, n_padded), n_padded, out);
        }
    });
}

const uint8_t* GroupMatmul::group(const Tensor& weight, int64_t group, int worker) const {
    if (weight.layout != &row_major_layout()) return group_data(weight, group);
    float* room = packed_.row<float>(worker);
    pack_group(weight, group, reinterpret_cast<std::byte*>(room));
    return reinterpret_cast<const uint8_t*>(room);
}

// matmul_groups: out[i, j] = sum_k x[i, k] * w[j, k] + bias[j]
//   x [n_rows, d_in] f32; one to three weights w [d_out, d_in], biases [d_out] f32; out
//   [n_rows, sum of d_out] f32. Threads share the groups of 16 weight rows; each group is read
//   once, for eight rows of x at a time (the later eights find it in the thread's own cache).
//   Inputs of quantised weights are rounded to int8 blocks first, on all threads.
void matmul_groups(Step& s, Rows x, LinearGroup weights, Rows out) {
    const std::span<const Linear* const> linears(weights.weights.data(),
                                                 static_cast<size_t>(weights.n_weights));
    GroupMatmul matmul(s, x.n_rows, x.n_cols, linears);
    if (s.planning) return;
    CHECK(out.n_cols == weights.d_out());
    matmul.set_input(x);
    std::array<int64_t, 4> first_group{}, first_column{};
    for (size_t w = 0; w < linears.size(); w++) {
        first_group[w + 1] = first_group[w] + n_groups(linears[w]->weight);
        first_column[w + 1] = first_column[w] + linears[w]->weight.n_rows();
    }
    s.pool.parallel_for(
        first_group[linears.size()], 1, [&](int64_t begin, int64_t end, int worker) {
            alignas(64) float tile[kMaxTileRows * kGroupRows];
            for (int64_t g = begin; g < end; g++) {
                size_t w = 0;
                while (g >= first_group[w + 1]) w++;
                const Linear& linear = *linears[w];
                const int64_t group = g - first_group[w];
                const uint8_t* data = matmul.group(linear.weight, group, worker);
                const int64_t n_columns = n_tile_columns(linear.weight, group);
                const int64_t column = first_column[w] + group * kGroupRows;
                auto* bias = linear.bias
                                 ? reinterpret_cast<const float*>(linear.bias.planes[0].data) +
                                       group * kGroupRows
                                 : nullptr;
                for (int64_t row = 0; row < x.n_rows; row += kMaxTileRows) {
                    const int64_t n = std::min<int64_t>(kMaxTileRows, x.n_rows - row);
                    matmul.multiply(linear.weight, data, row, n, tile);
                    for (int64_t r = 0; r < n; r++) {
                        float* to = out.row<float>(row + r) + column;
                        const float* from = tile + r * kGroupRows;
                        for (int64_t j = 0; j < n_columns; j++) {
                            to[j] = bias == nullptr ? from[j] : from[j] + bias[j];
                        }
                    }
                }
            }
        });
}

}  // namespace ridge::cpu
