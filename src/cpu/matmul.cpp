#include "cpu/matmul.h"

#include <algorithm>

#include "base/check.h"
#include "cpu/matmul_input.h"

namespace ridge::cpu {
namespace {

const float* bias_of(const WeightPieces::Piece& piece) {
    if (!piece.linear->bias) return nullptr;
    return reinterpret_cast<const float*>(piece.linear->bias.planes[0].data) + piece.row;
}

// Rows of a tile [n, stride] to their places in out.
void store_tile(const float* tile, int64_t stride, int64_t first_row, int64_t n,
                const WeightPieces::Piece& piece, Rows out) {
    const float* bias = bias_of(piece);
    for (int64_t r = 0; r < n; r++) {
        float* to = out.row<float>(first_row + r) + piece.column;
        const float* from = tile + r * stride;
        for (int64_t j = 0; j < piece.n_rows; j++) {
            to[j] = bias == nullptr ? from[j] : from[j] + bias[j];
        }
    }
}

}  // namespace

Operands operands_of(const Kernels& kernels, RowClass row_class, FormatId format) {
    if (row_class == RowClass::kPrompt) return kernels.gemm[static_cast<size_t>(format)].operands;
    const bool floats =
        format == FormatId::kF32 || format == FormatId::kF16 || format == FormatId::kBF16;
    return floats ? Operands::kF32 : Operands::kInt8;
}

WeightPieces::WeightPieces(const LinearGroup& weights, int rows_in_piece)
    : weights_(weights), n_weights_(weights.n_weights), rows_in_piece_(rows_in_piece) {
    for (size_t w = 0; w < static_cast<size_t>(n_weights_); w++) {
        const int64_t n_rows = weights.weights[w]->weight.n_rows();
        first_[w + 1] = first_[w] + (n_rows + rows_in_piece - 1) / rows_in_piece;
        column_[w + 1] = column_[w] + n_rows;
    }
}

WeightPieces::Piece WeightPieces::operator[](int64_t i) const {
    size_t w = 0;
    while (i >= first_[w + 1]) w++;
    const Linear* linear = weights_.weights[w];
    const int64_t index = i - first_[w], row = index * rows_in_piece_;
    const int64_t n_rows = std::min<int64_t>(rows_in_piece_, linear->weight.n_rows() - row);
    return {linear, index, row, n_rows, column_[w] + row};
}

GroupRoom::GroupRoom(Step& s, const LinearGroup& weights, int n) : n_(n) {
    for (int w = 0; w < weights.n_weights; w++) {
        const Tensor& weight = weights.weights[static_cast<size_t>(w)]->weight;
        if (weight.layout == &row_major_layout()) bytes_ = std::max(bytes_, group_bytes(weight));
    }
    if (bytes_ > 0) rows_ = s.scratch(s.pool.size(), n * bytes_ / 4);
}

const uint8_t* GroupRoom::group(const Tensor& weight, int64_t group, int worker, int i) const {
    if (weight.layout != &row_major_layout()) return group_data(weight, group);
    CHECK(i < n_);
    auto* room = reinterpret_cast<std::byte*>(rows_.row<float>(worker)) + i * bytes_;
    pack_group(weight, group, room);
    return reinterpret_cast<const uint8_t*>(room);
}

// matmul_groups: threads share the groups of 16 weight rows; each group is read from memory once,
// and from the thread's own cache for every eight rows of x after the first. Inputs of quantised
// weights are rounded to int8 blocks first, on all threads.
void matmul_groups(Step& s, Rows x, LinearGroup weights, Rows out) {
    ScratchScope scope(s.memory);
    MatmulInput input(s, x.n_rows, x.n_cols);
    const Kernels& kernels = kernels_of(s);
    for (int w = 0; w < weights.n_weights; w++) {
        const Tensor& weight = weights.weights[static_cast<size_t>(w)]->weight;
        CHECK(weight.n_cols() == x.n_cols);
        input.want(operands_of(kernels, RowClass::kDecode, weight.format->id));
    }
    GroupRoom room(s, weights);
    if (s.planning) return;
    CHECK(out.n_cols == weights.d_out());
    input.set(x);
    const WeightPieces pieces(weights, kGroupRows);
    s.pool.parallel_for(pieces.size(), 1, [&](int64_t begin, int64_t end, int worker) {
        alignas(64) float tile[kMaxTileRows * kGroupRows];
        for (int64_t i = begin; i < end; i++) {
            const WeightPieces::Piece piece = pieces[i];
            const Tensor& weight = piece.linear->weight;
            const uint8_t* group = room.group(weight, piece.index, worker);
            const GroupKernel kernel = kernels.group[static_cast<size_t>(weight.format->id)];
            const PackedShape shape = packed_shape(weight);
            for (int64_t row = 0; row < x.n_rows; row += kMaxTileRows) {
                const int64_t n = std::min<int64_t>(kMaxTileRows, x.n_rows - row);
                kernel(group, shape, input.activations(), row, static_cast<int>(n), tile);
                store_tile(tile, kGroupRows, row, n, piece, out);
            }
        }
    });
}

namespace {

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

// What a thread needs to multiply panels: the slice that it holds unpacked, and the sums of all
// rows with the panel's 32 columns.
class PanelRoom {
  public:
    PanelRoom(Step& s, const Kernels& kernels, const LinearGroup& weights, int64_t n_rows)
        : n_rows_(n_rows) {
        for (int w = 0; w < weights.n_weights; w++) {
            const FormatId id = weights.weights[static_cast<size_t>(w)]->weight.format->id;
            const GemmKernel& gemm = kernels.gemm[static_cast<size_t>(id)];
            code_floats_ =
                std::max(code_floats_, gemm.slice_blocks * bytes_per_block(gemm.operands) / 4);
            scale_floats_ = std::max<int64_t>(
                scale_floats_, gemm.slice_blocks * gemm.scales_per_block * kGroupRows);
        }
        rows_ = s.scratch(s.pool.size(),
                          kPanelGroups * (code_floats_ + 2 * scale_floats_) + n_rows * kPanelRows);
    }

    // The panel whose slices will be unpacked: groups as the packed layout has them.
    void multiply(const GemmKernel& gemm, const PackedShape& shape, int64_t n_blocks,
                  const std::array<const uint8_t*, kPanelGroups>& groups, const Geometry& geometry,
                  const Activations& x, int worker) const {
        float* at = rows_.row<float>(worker);
        uint8_t* codes[kPanelGroups];
        float *scales[kPanelGroups], *mins[kPanelGroups];
        for (int g = 0; g < kPanelGroups; g++) {
            codes[g] = reinterpret_cast<uint8_t*>(at), at += code_floats_;
            scales[g] = at, at += scale_floats_;
            mins[g] = at, at += scale_floats_;
        }
        std::fill(at, at + n_rows_ * kPanelRows, 0.0f);
        for (int64_t first = 0; first < n_blocks; first += gemm.slice_blocks) {
            const int64_t n = std::min<int64_t>(gemm.slice_blocks, n_blocks - first);
            Panel panel{};
            for (int g = 0; g < kPanelGroups; g++) {
                panel.codes[g] = groups[static_cast<size_t>(g)] + first * geometry.code_bytes;
                if (gemm.unpack == nullptr) continue;
                gemm.unpack(groups[static_cast<size_t>(g)], shape, first, n, codes[g], scales[g],
                            mins[g]);
                panel.codes[g] = codes[g], panel.scales[g] = scales[g], panel.mins[g] = mins[g];
            }
            gemm.multiply(panel, x, first, n, n_rows_, at);
        }
    }
    const float* sums(int worker) const {
        return rows_.row<float>(worker) + kPanelGroups * (code_floats_ + 2 * scale_floats_);
    }

  private:
    Rows rows_;
    int64_t n_rows_, code_floats_ = 0, scale_floats_ = 0;
};

// matmul_panels: threads share the panels of 32 weight rows. A panel's slice along k is unpacked to
// what the unit multiplies, and multiplied with every row of x while it is in the first cache; sums
// of all rows with the panel stay in the second.
void matmul_panels(Step& s, Rows x, LinearGroup weights, Rows out) {
    ScratchScope scope(s.memory);
    MatmulInput input(s, x.n_rows, x.n_cols);
    const Kernels& kernels = kernels_of(s);
    for (int w = 0; w < weights.n_weights; w++) {
        const Tensor& weight = weights.weights[static_cast<size_t>(w)]->weight;
        CHECK(weight.n_cols() == x.n_cols);
        input.want(operands_of(kernels, RowClass::kPrompt, weight.format->id));
    }
    GroupRoom room(s, weights, kPanelGroups);
    PanelRoom panels(s, kernels, weights, x.n_rows);
    if (s.planning) return;
    CHECK(out.n_cols == weights.d_out());
    input.set(x);
    const WeightPieces pieces(weights, kPanelRows);
    s.pool.parallel_for(pieces.size(), 1, [&](int64_t begin, int64_t end, int worker) {
        for (int64_t i = begin; i < end; i++) {
            const WeightPieces::Piece piece = pieces[i];
            const Tensor& weight = piece.linear->weight;
            // The second group of a last panel may not be there: the first stands in for it.
            std::array<const uint8_t*, kPanelGroups> groups;
            for (int g = 0; g < kPanelGroups; g++) {
                const int64_t group =
                    std::min(kPanelGroups * piece.index + g, n_groups(weight) - 1);
                groups[static_cast<size_t>(g)] = room.group(weight, group, worker, g);
            }
            const Geometry geometry = geometry_of(weight);
            const PackedShape shape = packed_shape(weight);
            panels.multiply(kernels.gemm[static_cast<size_t>(weight.format->id)], shape,
                            shape.n_supers * geometry.n_blocks(), groups, geometry,
                            input.activations(), worker);
            store_tile(panels.sums(worker), kPanelRows, 0, x.n_rows, piece, out);
        }
    });
}

}  // namespace

void matmul_by_class(Step& s, Rows x, LinearGroup weights, Rows out) {
    for (size_t begin = 0, end; begin < s.spans.size(); begin = end) {
        const RowClass row_class = s.spans[begin].row_class;
        int64_t n = 0;
        for (end = begin; end < s.spans.size() && s.spans[end].row_class == row_class; end++) {
            n += s.spans[end].n_rows;
        }
        const int64_t first = s.spans[begin].first_row;
        const auto run = row_class == RowClass::kPrompt ? matmul_panels : matmul_groups;
        run(s, x.slice(first, n), weights, out.slice(first, n));
    }
}

}  // namespace ridge::cpu
