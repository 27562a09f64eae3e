#include "cpu/matmul_input.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kQuantiseGrain = 2048;  // elements of a cut row that a thread rounds at a time
constexpr int64_t kRowGrain = 4096;       // elements of whole rows: not worth waking a thread for
constexpr int64_t kStripGrain = 512;      // elements of each row of a strip
static_assert(kStripGrain % kPaddedBlock == 0 && kQuantiseGrain % kPaddedBlock == 0);

// Rows of codes lie an odd number of cache lines apart: at a distance of a power of two, the slices
// of many rows would fight for the same places of a cache.
constexpr int64_t kCodePadding = 64;
// Strips of bf16 tiles likewise: parts of 8 KiB and more of all of them are in the second cache at
// once, which has places for a few at each multiple of 128 KiB.
constexpr int64_t kBf16Padding = 4096;

}  // namespace

MatmulInput::MatmulInput(Step& s, RowClass row_class, int64_t n_rows, int64_t d_in)
    : s_(s),
      kernels_(kernels_of(s)),
      n_rows_(n_rows),
      d_in_(d_in),
      n_padded_(round_up(d_in, kPaddedBlock)),
      rows_in_strip_(row_class == RowClass::kPrompt ? kStripRows
                     : n_rows == 1                  ? 1
                                                    : kDecodeStripRows) {}

void MatmulInput::want(Operands operands) {
    const int64_t n_blocks = n_padded_ / kBlock;
    switch (operands) {
        case Operands::kF32:
            if (!wants_values_ && in_strips()) {
                values_ = s_.scratch(n_strips(), rows_in_strip_ * n_padded_);
            } else if (!wants_values_ && d_in_ % kBlock != 0) {
                values_ = s_.scratch(n_rows_, n_padded_);
            }
            wants_values_ = true;
            break;
        case Operands::kInt8:
            if (codes_.n_rows > 0) break;
            codes_ = s_.scratch(n_strips(), (rows_in_strip_ * n_padded_ + kCodePadding) / 4);
            blocks_ = s_.scratch(n_strips(), rows_in_strip_ * 7 * n_blocks);
            break;
        case Operands::kBF16:
            if (bf16_.n_rows > 0) break;
            if (is_prompt()) {
                bf16_ = s_.scratch(round_up(n_rows_, kPaddedRows) / 16,
                                   16 * n_padded_ + kBf16Padding, DType::kBF16);
            } else {
                bf16_ = s_.scratch(n_strips(), rows_in_strip_ * n_padded_, DType::kBF16);
            }
            break;
    }
}

void MatmulInput::want_norm() {
    normed_ = s_.scratch(n_rows_, d_in_);
}

void MatmulInput::set(Rows x) {
    CHECK(x.n_rows == n_rows_ && x.n_cols == d_in_);
    point_at_forms();
    if (wants_values_ && values_.n_rows == 0) {
        x_.values = x.row<float>(0), x_.value_stride = x.stride;
    }
    // A long row is cut, since blocks know nothing of each other: a decode step has one alone.
    const bool cut_row = n_rows_ == 1 && only_codes() && n_padded_ >= 2 * kQuantiseGrain;
    if (in_strips() || cut_row) return set_columns(x);
    if (!only_codes() && values_.n_rows == 0 && bf16_.n_rows == 0) return;  // read as it is
    const int64_t grain = std::max<int64_t>(1, kRowGrain / n_padded_);
    s_.pool.parallel_for(n_rows_, grain, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; i++) set_row(i, x.row<float>(i));
    });
}

void MatmulInput::set_normed(Rows x, const Tensor& weight, float eps) {
    CHECK(x.n_rows == n_rows_ && x.n_cols == d_in_ && normed_.n_rows > 0);
    CHECK(weight.format->id == FormatId::kF32 && weight.n_cols() == d_in_);
    auto* w = reinterpret_cast<const float*>(weight.planes[0].data);
    point_at_forms();
    if (wants_values_ && values_.n_rows == 0) {
        x_.values = normed_.row<float>(0), x_.value_stride = normed_.stride;
    }
    const int64_t grain = std::max<int64_t>(1, kRowGrain / n_padded_);
    s_.pool.parallel_for(n_rows_, grain, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; i++) {
            float* row = normed_.row<float>(i);
            kernels_.rows.rms_norm(x.row<float>(i), d_in_, w, eps, row);
            if (!in_strips()) set_row(i, row);
        }
    });
    if (in_strips()) set_columns(normed_);
}

// Threads share the columns of a strip, not its rows: rows lie side by side in a line of the cache.
void MatmulInput::set_columns(Rows x) {
    const int64_t grain = in_strips() ? kStripGrain : kQuantiseGrain;
    const int64_t n_pieces = (n_padded_ + grain - 1) / grain;
    s_.pool.parallel_for(n_strips() * n_pieces, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; i++) {
            const int64_t strip = i / n_pieces, first = i % n_pieces * grain;
            const int64_t n = std::min(grain, n_padded_ - first);
            if (values_.n_rows > 0) set_values(strip, first, n, x);
            const int64_t row = strip * rows_in_strip_;
            for (int64_t r = row; r < std::min(row + rows_in_strip_, n_rows_); r++) {
                if (codes_.n_rows > 0) quantise(r, first, n, x.row<float>(r));
                if (bf16_.n_rows > 0) round(r, first, n, x.row<float>(r));
            }
        }
    });
}

// Columns first .. first + n - 1 of a strip's rows; zeros behind the last, and of rows that are not
// there.
void MatmulInput::set_values(int64_t strip, int64_t first, int64_t n, Rows x) {
    float* to = values_.row<float>(strip) + first * rows_in_strip_;
    const int64_t n_there = std::clamp<int64_t>(d_in_ - first, 0, n);
    memset(to, 0, static_cast<size_t>(n * rows_in_strip_) * sizeof(float));
    for (int64_t r = 0; r < std::min(rows_in_strip_, n_rows_ - strip * rows_in_strip_); r++) {
        const float* from = x.row<float>(strip * rows_in_strip_ + r) + first;
        for (int64_t k = 0; k < n_there; k++) to[k * kDecodeStripRows + r] = from[k];
    }
}

void MatmulInput::set_row(int64_t row, const float* x) {
    if (values_.n_rows > 0) {
        float* to = values_.row<float>(row);
        memcpy(to, x, static_cast<size_t>(d_in_) * sizeof(float));
        std::fill(to + d_in_, to + n_padded_, 0.0f);
    }
    if (codes_.n_rows > 0) quantise(row, 0, n_padded_, x);
    if (bf16_.n_rows > 0) round(row, 0, n_padded_, x);
}

// A strip of blocks_: scales, scaled sums, negated sums of blocks, then the latter two of half
// blocks.
QuantisedRow MatmulInput::quantised_row(int64_t row) const {
    const int64_t strip = row / rows_in_strip_, in_strip = row % rows_in_strip_;
    const int64_t n = rows_in_strip_ * n_padded_ / kBlock;
    float* at = blocks_.row<float>(strip) + in_strip;
    QuantisedRow out{};
    out.codes = reinterpret_cast<int8_t*>(codes_.row<float>(strip)) + in_strip * kBlock;
    out.scales = at, out.scaled_sums = at + n;
    out.negated_sums = reinterpret_cast<int32_t*>(at + 2 * n);
    out.scaled_half_sums = at + 3 * n;
    out.negated_half_sums = reinterpret_cast<int32_t*>(at + 5 * n);
    out.step = rows_in_strip_;
    return out;
}

void MatmulInput::quantise(int64_t row, int64_t first, int64_t n_padded, const float* x) {
    const int64_t block = first / kBlock;
    QuantisedRow out = quantised_row(row);
    out.codes += first * out.step;
    out.scales += block * out.step, out.scaled_sums += block * out.step;
    out.negated_sums += block * out.step;
    out.scaled_half_sums += 2 * block * out.step, out.negated_half_sums += 2 * block * out.step;
    kernels_.quantise_row(x + first, std::clamp<int64_t>(d_in_ - first, 0, n_padded), n_padded,
                          out);
}

void MatmulInput::round(int64_t row, int64_t first, int64_t n_padded, const float* x) {
    const int64_t rows_side_by_side = is_prompt() ? kTileElements / kBlock : rows_in_strip_;
    uint16_t* to = bf16_.row<uint16_t>(row / rows_side_by_side) +
                   (first / kBlock * rows_side_by_side + row % rows_side_by_side) * kBlock;
    kernels_.bf16_row(x + first, std::clamp<int64_t>(d_in_ - first, 0, n_padded), n_padded,
                      rows_side_by_side * kBlock, to);
}

void MatmulInput::point_at_forms() {
    x_.rows_in_strip = rows_in_strip_;
    if (values_.n_rows > 0) x_.values = values_.row<float>(0), x_.value_stride = values_.stride;
    if (bf16_.n_rows > 0) x_.bf16 = bf16_.row<uint16_t>(0), x_.bf16_stride = bf16_.stride;
    if (codes_.n_rows == 0) return;
    const QuantisedRow row = quantised_row(0);
    x_.codes = row.codes;
    x_.code_stride = codes_.stride * 4;
    x_.scales = row.scales, x_.scaled_sums = row.scaled_sums, x_.negated_sums = row.negated_sums;
    x_.scaled_half_sums = row.scaled_half_sums, x_.negated_half_sums = row.negated_half_sums;
    x_.block_stride = blocks_.stride;
}

}  // namespace ridge::cpu
