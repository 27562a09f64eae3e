#pragma once

#include <cstdint>
#include <span>

#include "cpu/interleaved.h"
#include "cpu/kernels.h"
#include "model/step.h"

namespace ridge::cpu {

// The functions of the instruction set that the tables were resolved for.
const Kernels& kernels_of(const Step& s);

// What a matmul needs beside its operands, taken from a step's scratch: the input as its kernels
// read it, and for weights that are still row_major a group's room for each thread.
class GroupMatmul {
  public:
    // Takes scratch; computes nothing. d_in elements in a row.
    GroupMatmul(Step& s, int64_t n_rows, int64_t d_in, std::span<const Linear* const> weights);

    // x [n_rows, d_in] f32, read by the calls below. Quantises all rows, on all threads.
    void set_input(Rows x);
    // Where one row is quantised to: for whoever makes the input row by row.
    QuantisedRow quantised_row(int64_t row) const;
    bool wants_codes() const { return wants_codes_; }
    bool wants_values() const { return wants_values_; }

    // The codes of one group, packed into the worker's own room where the weight is row_major.
    const uint8_t* group(const Tensor& weight, int64_t group, int worker) const;
    // tile [n, 16] = rows first_row .. first_row + n of the input times the group; n at most
    // kMaxTileRows.
    void multiply(const Tensor& weight, const uint8_t* group, int64_t first_row, int64_t n,
                  float* tile) const {
        kernels_.group[static_cast<size_t>(weight.format->id)](
            group, packed_shape(weight), x_, first_row, static_cast<int>(n), tile);
    }

  private:
    Step& s_;
    const Kernels& kernels_;
    int64_t n_rows_, d_in_, n_padded_;
    bool wants_codes_ = false, wants_values_ = false;
    Rows codes_, blocks_, values_, packed_;
    Activations x_{};
};

// tile of a weight's last group: columns that it has.
inline int64_t n_tile_columns(const Tensor& weight, int64_t group) {
    const int64_t left = weight.n_rows() - group * kGroupRows;
    return left < kGroupRows ? left : kGroupRows;
}

// out[i, j] = sum_k x[i, k] * w[j, k] + bias[j], weights interleaved or row_major.
void matmul_groups(Step& s, Rows x, LinearGroup weights, Rows out);

}  // namespace ridge::cpu
