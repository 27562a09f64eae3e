#include "cpu/matmul.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "cpu/compact.h"
#include "cpu/isa/compact_group.h"
#include "cpu/tile_panels.h"

namespace ridge::cpu {
namespace {

// How many times a thread takes panels at the least, since one may be slower than another.
constexpr int64_t kTakesOfThread = 4;
constexpr int64_t kMaxSideBySide = 2, kMaxPieces = 8;  // that a thread takes at a time

int64_t bytes_per_block(Operands operands) {  // of 32 elements of a group, unpacked
    switch (operands) {
        case Operands::kF32:
            return 32 * kGroupRows * 4;
        case Operands::kBF16:
            return 32 * kGroupRows * 2;
        case Operands::kInt8:
            return 32 * kGroupRows;
    }
    return 0;
}

const GemmKernel& gemm_of(const Kernels& kernels, const Tensor& weight) {
    if (is_compact(weight)) return kernels.compact.gemm;
    return kernels.gemm[static_cast<size_t>(weight.format->id)];
}
GroupKernel group_kernel_of(const Kernels& kernels, const Tensor& weight) {
    if (is_compact(weight)) return kernels.compact.group;
    return kernels.group[static_cast<size_t>(weight.format->id)];
}

}  // namespace

Operands operands_of(const Kernels& kernels, RowClass row_class, FormatId format) {
    if (row_class == RowClass::kPrompt) return kernels.gemm[static_cast<size_t>(format)].operands;
    return kernels.group_operands[static_cast<size_t>(format)];
}

RowClass kernels_class(const Kernels& kernels, RowClass row_class, int64_t n_rows,
                       const LinearGroup& weights, const MatmulTuning& tuning) {
    if (row_class == RowClass::kDecode || n_rows > tuning.few_rows) return row_class;
    for (int w = 0; w < weights.n_weights; w++) {
        const Tensor& weight = weights.weights[static_cast<size_t>(w)]->weight;
        if (!gemm_of(kernels, weight).sums_as_groups) return row_class;
    }
    return RowClass::kDecode;
}

// 16 or 32 neighbouring rows of a weight.
struct Matmul::Piece {
    const Linear* linear;
    int64_t index;   // in its weight
    int64_t row;     // first row of the weight
    int64_t n_rows;  // that the weight has of it
    int64_t column;  // of out, for the first row

    const float* bias() const {
        if (!linear->bias) return nullptr;
        return reinterpret_cast<const float*>(linear->bias.planes[0].data) + row;
    }
};

Matmul::Matmul(Step& s, RowClass row_class, int64_t n_rows, int64_t d_in,
               const LinearGroup& weights, Input input)
    : s_(s),
      kernels_(kernels_of(s)),
      weights_(weights),
      tuning_(tuning_of(
          s, matmul_call(row_class, rows_class_of_cpu(row_class, n_rows), d_in, weights))),
      panels_(kernels_class(kernels_, row_class, n_rows, weights, tuning_) == RowClass::kPrompt),
      n_rows_(n_rows),
      input_(s, panels_ ? RowClass::kPrompt : RowClass::kDecode, n_rows, d_in) {
    for (int w = 0; w < weights.n_weights; w++) {
        const Tensor& weight = weights.weights[static_cast<size_t>(w)]->weight;
        CHECK(weight.n_cols() == d_in);
        input_.want(operands_of(kernels_, panels_ ? RowClass::kPrompt : RowClass::kDecode,
                                weight.format->id));
        if (weight.layout == &row_major_layout()) {
            packed_bytes_ = std::max(packed_bytes_, group_bytes(weight));
        }
    }
    if (input == Input::kNormed) input_.want_norm();
    const int64_t packed_rooms = panels_ ? kMaxSideBySide * kPanelGroups : kMaxSideBySide;
    if (packed_bytes_ > 0) packed_ = s.scratch(s.pool.size(), packed_rooms * packed_bytes_ / 4);
    if (panels_) plan_panels();
}

PackedShape Matmul::shape_of(const Tensor& weight) const {
    PackedShape shape = packed_shape(weight);
    shape.ahead_bytes =
        tuning_.ahead_kib > 0 ? int64_t{tuning_.ahead_kib} << 10 : kernels_.ahead_bytes;
    return shape;
}

// On tiles a slice is what their room is made for.
int64_t Matmul::slice_blocks(const GemmKernel& gemm, const MatmulTuning& tuning) {
    return tuning.slice_blocks > 0 && gemm.tiles == nullptr ? tuning.slice_blocks
                                                            : gemm.slice_blocks;
}

std::array<MatmulTuning, 2> Matmul::prompt_tunings() const {
    const int64_t d_in = weights_.weights[0]->weight.n_cols();
    const auto of = [&](int size) {
        return tuning_of(s_, matmul_call(RowClass::kPrompt, size, d_in, weights_));
    };
    return {of(kFewPrompts), of(kManyPrompts)};
}

// How many panels a thread takes at a time, and room for it: the unpacked slice of a panel, and the
// sums of all rows with each panel.
void Matmul::plan_panels() {
    const std::array<MatmulTuning, 2> tunings = prompt_tunings();
    int64_t n_panels = 0;
    bool any_tiles = false, all_tiles = packed_bytes_ == 0;
    for (int w = 0; w < weights_.n_weights; w++) {
        const Tensor& weight = weights_.weights[static_cast<size_t>(w)]->weight;
        n_panels += (weight.n_rows() + kPanelRows - 1) / kPanelRows;
        const GemmKernel& gemm = gemm_of(kernels_, weight);
        const bool tiles = gemm.tiles != nullptr;
        any_tiles = any_tiles || tiles, all_tiles = all_tiles && tiles;
        for (const MatmulTuning& tuning : tunings) {
            const int64_t n_blocks = slice_blocks(gemm, tuning);
            code_floats_ = std::max(code_floats_, n_blocks * bytes_per_block(gemm.operands) / 4);
            scale_floats_ =
                std::max<int64_t>(scale_floats_, n_blocks * gemm.scales_per_block * kGroupRows);
        }
    }
    slice_floats_ = kPanelGroups * (code_floats_ + 2 * scale_floats_);
    int64_t sum_floats = kMaxSideBySide * padded_rows() * kPanelRows;
    if (any_tiles) {
        const int64_t for_threads =
            all_tiles ? std::max<int64_t>(1, n_panels / (kTakesOfThread * s_.pool.size())) : 1;
        const auto limit = [&](const MatmulTuning& tuning) {
            return std::min<int64_t>(for_threads, tuning.panels);
        };
        pieces_at_once_ = tile_panels_at_once(n_rows_, limit(tuning_));
        slice_floats_ = std::max(slice_floats_, kTileRoomFloats);
        sum_floats = tile_sum_floats(n_rows_, std::max(limit(tunings[0]), limit(tunings[1])));
    }
    rooms_ = s_.scratch(s_.pool.size(), slice_floats_ + sum_floats);
}

// Packed codes of a group: where they lie, or packed now to a room of the worker's.
const uint8_t* Matmul::group(const Tensor& weight, int64_t group, int worker, int room) const {
    if (weight.layout != &row_major_layout()) return group_data(weight, group);
    auto* at = reinterpret_cast<std::byte*>(packed_.row<float>(worker)) + room * packed_bytes_;
    pack_group(kernels_, weight, group, at);
    return reinterpret_cast<const uint8_t*>(at);
}

// A group is read from memory once, and from the thread's own cache for every eight rows of the
// input after the first.
template <class Use>
void Matmul::run_groups(const Piece* pieces, int n_pieces, int worker, Use use) {
    alignas(64) float tiles[2][kDecodeStripRows * kGroupRows];
    std::array<const uint8_t*, 2> groups{};
    for (int p = 0; p < n_pieces; p++) {
        groups[static_cast<size_t>(p)] =
            group(pieces[p].linear->weight, pieces[p].index, worker, p);
    }
    for (int64_t row = 0; row < n_rows_; row += kDecodeStripRows) {
        const int64_t n = std::min<int64_t>(kDecodeStripRows, n_rows_ - row);
        for (int p = 0; p < n_pieces; p++) {
            const Tensor& weight = pieces[p].linear->weight;
            group_kernel_of(kernels_, weight)(groups[static_cast<size_t>(p)], shape_of(weight),
                                              input_.activations(), row, static_cast<int>(n),
                                              tiles[p]);
        }
        for (int64_t r = 0; r < n; r++) {
            use(pieces, row + r, tiles[0] + r * kGroupRows, tiles[1] + r * kGroupRows);
        }
    }
}

// One panel. A slice along k of it is unpacked to what the unit multiplies, and multiplied with
// every row of the input while it is in the first cache; the sums of all rows with the panel stay
// in the second. sums [n_rows, 32]
void Matmul::multiply_panel(const Piece& piece, int worker, float* sums) const {
    float* at = rooms_.row<float>(worker);
    uint8_t* codes[kPanelGroups];
    float *scales[kPanelGroups], *mins[kPanelGroups];
    for (int g = 0; g < kPanelGroups; g++) {
        codes[g] = reinterpret_cast<uint8_t*>(at), at += code_floats_;
        scales[g] = at, at += scale_floats_;
        mins[g] = at, at += scale_floats_;
    }
    const Tensor& weight = piece.linear->weight;
    const GemmKernel& gemm = gemm_of(kernels_, weight);
    const Geometry geometry = geometry_of(weight);
    const PackedShape shape = shape_of(weight);
    const int64_t n_blocks = shape.n_supers * geometry.n_blocks();
    const uint8_t* groups[kPanelGroups];
    for (int g = 0; g < kPanelGroups; g++) groups[g] = panel_group(piece, g, worker, g);
    std::fill(sums, sums + padded_rows() * kPanelRows, 0.0f);
    const int64_t n_of_slice = slice_blocks(gemm, tuning_);
    for (int64_t first = 0; first < n_blocks; first += n_of_slice) {
        const int64_t n = std::min(n_of_slice, n_blocks - first);
        Panel panel{};
        for (int g = 0; g < kPanelGroups; g++) {
            panel.codes[g] = groups[g] + first * geometry.code_bytes;
            if (gemm.unpack == nullptr) continue;
            gemm.unpack(groups[g], shape, first, n, codes[g], scales[g], mins[g]);
            panel.codes[g] = codes[g], panel.scales[g] = scales[g], panel.mins[g] = mins[g];
        }
        gemm.multiply(panel, input_.activations(), first, n, n_rows_, sums);
    }
}

// All of the pieces whose kernels are of tiles; `sums` has the place of each piece's.
void Matmul::multiply_tiles(std::span<const Piece> pieces, int worker, float* const* sums) const {
    TilePanel panels[kMaxPieces];
    size_t n = 0;
    int room = 0;
    for (size_t p = 0; p < pieces.size(); p++) {
        const Tensor& weight = pieces[p].linear->weight;
        TilePanel& panel = panels[n];
        panel = {};
        panel.gemm = &gemm_of(kernels_, weight);
        if (panel.gemm->tiles == nullptr) continue;
        n++;
        const Geometry geometry = geometry_of(weight);
        panel.shape = shape_of(weight);
        panel.super_bytes = geometry.super_bytes(), panel.super_blocks = geometry.n_blocks();
        panel.n_blocks = panel.shape.n_supers * geometry.n_blocks();
        panel.sums = sums[p];
        for (int g = 0; g < kPanelGroups; g++) {
            panel.groups[g] = panel.supers[g] = panel_group(pieces[p], g, worker, room++);
            if (!is_compact(weight)) continue;
            panel.supers[g] = CompactGroup(panel.groups[g], panel.shape.n_supers).supers;
            panel.super_bytes = kCompactSuperBytes;
        }
    }
    if (n == 0) return;
    multiply_tile_panels(kernels_, {panels, n}, input_.activations(), n_rows_,
                         rooms_.row<float>(worker));
}

// The second group of a last panel may not be there: the first stands in for it.
const uint8_t* Matmul::panel_group(const Piece& piece, int g, int worker, int room) const {
    const Tensor& weight = piece.linear->weight;
    return group(weight, std::min(kPanelGroups * piece.index + g, n_groups(weight) - 1), worker,
                 room);
}

// Panels, or pairs of panels side by side, with all rows.
template <class Use>
void Matmul::run_panels(std::span<const Piece> pieces, int n_side_by_side, int worker, Use use) {
    const bool tiles = std::any_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
        return gemm_of(kernels_, piece.linear->weight).tiles != nullptr;
    });
    const int64_t sum_floats = padded_rows() / kPaddedRows *
                               (tiles ? kTileStripFloats : int64_t{kPaddedRows * kPanelRows});
    float* sums[kMaxPieces];
    for (size_t p = 0; p < pieces.size(); p++) {
        sums[p] = rooms_.row<float>(worker) + slice_floats_ + static_cast<int64_t>(p) * sum_floats;
        if (gemm_of(kernels_, pieces[p].linear->weight).tiles == nullptr) {
            multiply_panel(pieces[p], worker, sums[p]);
        }
    }
    if (tiles) multiply_tiles(pieces, worker, sums);
    // What lies side by side in a row of the output is handed on as one.
    const auto side = static_cast<size_t>(n_side_by_side);
    Piece joined[kMaxSideBySide];
    for (size_t i = 0; i < side; i++) {
        joined[i] = pieces[i];
        for (size_t p = i + side; p < pieces.size(); p += side)
            joined[i].n_rows += pieces[p].n_rows;
    }
    for (int64_t r = 0; r < n_rows_; r++) {
        alignas(64) float rows[kMaxSideBySide][kMaxPieces * kPanelRows];
        const float* products[kMaxSideBySide] = {};
        for (size_t i = 0; i < side; i++) {
            products[i] = sums[i] + r * kPanelRows;
            if (gemm_of(kernels_, pieces[i].linear->weight).tiles == nullptr) continue;
            products[i] = rows[i];
            for (size_t p = i; p < pieces.size(); p += side) {
                tile_row(sums[p], r, rows[i] + p / side * kPanelRows);
            }
        }
        use(joined, r, products[0], products[1]);
    }
}

// Threads share the pieces of all weights. `use` is given a piece, or several neighbours as one, a
// row and its products; with two weights side by side, the same piece of both and the products with
// each.
template <class Use>
void Matmul::run(int n_side_by_side, Use use) {
    const int rows_in_piece = panels_ ? kPanelRows : kGroupRows;
    const int64_t at_once = std::max<int64_t>(1, pieces_at_once_ / n_side_by_side);
    const auto n_weights = static_cast<size_t>(n_side_by_side == 2 ? 1 : weights_.n_weights);
    std::array<int64_t, 4> first_take{}, first_column{};
    for (size_t w = 0; w < n_weights; w++) {
        const int64_t n = weights_.weights[w]->weight.n_rows(), rows = rows_in_piece * at_once;
        first_take[w + 1] = first_take[w] + (n + rows - 1) / rows;
        first_column[w + 1] = first_column[w] + n;
    }
    const int64_t grain = panels_
                              ? 1
                              : std::max<int64_t>(1, (int64_t{tuning_.grain_kib} << 10) /
                                                         group_bytes(weights_.weights[0]->weight));
    s_.pool.parallel_for(first_take[n_weights], grain, [&](int64_t begin, int64_t end, int worker) {
        for (int64_t i = begin; i < end; i++) {
            size_t w = 0;
            while (i >= first_take[w + 1]) w++;
            Piece pieces[kMaxPieces];
            size_t n_pieces = 0;
            const int64_t first = (i - first_take[w]) * at_once;
            for (int64_t index = first; index < first + at_once; index++) {
                const int64_t row = index * rows_in_piece;
                for (size_t p = 0; p < static_cast<size_t>(n_side_by_side); p++) {
                    const Linear* linear = weights_.weights[w + p];
                    const int64_t n =
                        std::min<int64_t>(rows_in_piece, linear->weight.n_rows() - row);
                    if (n <= 0) break;
                    pieces[n_pieces++] = {linear, index, row, n, first_column[w] + row};
                }
            }
            if (panels_) {
                run_panels({pieces, n_pieces}, n_side_by_side, worker, use);
            } else {
                run_groups(pieces, n_side_by_side, worker, use);
            }
        }
    });
}

void Matmul::store(Rows out) {
    CHECK(out.n_cols == weights_.d_out() && out.n_rows == n_rows_);
    run(1, [&](const Piece* piece, int64_t row, const float* product, const float*) {
        float* to = out.row<float>(row) + piece->column;
        memcpy(to, product, static_cast<size_t>(piece->n_rows) * sizeof(float));
        if (piece->bias() != nullptr) kernels_.rows.add(piece->bias(), piece->n_rows, to);
    });
}

void Matmul::add_to(Rows out) {
    CHECK(out.n_cols == weights_.d_out() && out.n_rows == n_rows_);
    run(1, [&](const Piece* piece, int64_t row, const float* product, const float*) {
        const float* bias = piece->bias();
        float* to = out.row<float>(row) + piece->column;
        if (bias == nullptr) return kernels_.rows.add(product, piece->n_rows, to);
        for (int64_t j = 0; j < piece->n_rows; j++) to[j] += product[j] + bias[j];
    });
}

void Matmul::store_swiglu(Rows out) {
    CHECK(weights_.n_weights == 2 && weights_.d_out() == 2 * out.n_cols && out.n_rows == n_rows_);
    run(2, [&](const Piece* pieces, int64_t row, const float* gate, const float* up) {
        const Piece& piece = pieces[0];
        const float *gate_bias = pieces[0].bias(), *up_bias = pieces[1].bias();
        float biased[2][kMaxPieces / kMaxSideBySide * kPanelRows];
        for (int64_t j = 0; j < piece.n_rows && gate_bias != nullptr; j++) {
            biased[0][j] = gate[j] + gate_bias[j];
        }
        for (int64_t j = 0; j < piece.n_rows && up_bias != nullptr; j++) {
            biased[1][j] = up[j] + up_bias[j];
        }
        kernels_.rows.swiglu(gate_bias == nullptr ? gate : biased[0],
                             up_bias == nullptr ? up : biased[1], piece.n_rows,
                             out.row<float>(row) + piece.column);
    });
}

void matmul_groups(Step& s, Rows x, LinearGroup weights, Rows out) {
    ScratchScope scope(s.memory);
    Matmul matmul(s, RowClass::kDecode, x.n_rows, x.n_cols, weights);
    if (s.planning) return;
    matmul.set_input(x);
    matmul.store(out);
}

void matmul_by_class(Step& s, Rows x, LinearGroup weights, Rows out) {
    for_each_matmul(s, x.n_cols, weights, Matmul::Input::kRows,
                    [&](Matmul& matmul, int64_t first, int64_t n) {
                        matmul.set_input(x.slice(first, n));
                        matmul.store(out.slice(first, n));
                    });
}

}  // namespace ridge::cpu
