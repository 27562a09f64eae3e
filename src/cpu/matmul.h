#pragma once

#include <cstdint>
#include <span>

#include "cpu/interleaved.h"
#include "cpu/kernels.h"
#include "model/step.h"

namespace ridge::cpu {

// out[i, j] = sum_k x[i, k] * w[j, k] + bias[j]
//   x [n_rows, d_in] f32; one to three weights w [d_out, d_in], interleaved or row_major; biases
//   [d_out] f32; out [n_rows, sum of d_out] f32.

// Weights streamed once for eight rows of x: for few rows.
void matmul_groups(Step& s, Rows x, LinearGroup weights, Rows out);
// Decode rows as above, prompt rows by panels of unpacked weights.
void matmul_by_class(Step& s, Rows x, LinearGroup weights, Rows out);

// What the kernel of one class and format rounds before it multiplies.
Operands operands_of(const Kernels& kernels, RowClass row_class, FormatId format);

// The groups of 16 weight rows, or the panels of 32, of a group of weights, counted through.
class WeightPieces {
  public:
    WeightPieces(const LinearGroup& weights, int rows_in_piece);
    int64_t size() const { return first_[static_cast<size_t>(n_weights_)]; }

    struct Piece {
        const Linear* linear;
        int64_t index;   // in its weight
        int64_t row;     // first row of the weight
        int64_t n_rows;  // that the weight has of it
        int64_t column;  // of out, for the first row
    };
    Piece operator[](int64_t i) const;

  private:
    LinearGroup weights_;
    int n_weights_, rows_in_piece_;
    std::array<int64_t, 4> first_{}, column_{};
};

// Room for one group for each thread, where weights are row_major and are packed as they are read.
class GroupRoom {
  public:
    // Takes scratch for `n` groups a thread of the largest weight.
    GroupRoom(Step& s, const LinearGroup& weights, int n = 1);
    // The packed codes of a group of `weight`; room `i` of the worker's.
    const uint8_t* group(const Tensor& weight, int64_t group, int worker, int i = 0) const;

  private:
    Rows rows_;
    int n_;
    int64_t bytes_ = 0;
};

}  // namespace ridge::cpu
