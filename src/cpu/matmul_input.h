#pragma once

#include <cstdint>

#include "cpu/kernels_of_isa.h"
#include "model/step.h"

namespace ridge::cpu {

// The rows that a matmul reads, as its kernels want them: in one form for each kind of operands.
class MatmulInput {
  public:
    // Takes scratch for the forms that are wanted; computes nothing.
    MatmulInput(Step& s, RowClass row_class, int64_t n_rows, int64_t d_in);
    void want(Operands operands);  // before the first of the calls below
    void want_norm();              // before set_normed

    // x [n_rows, d_in] f32, which must stay while the forms are used. On all threads.
    void set(Rows x);

    // The same of x / sqrt(mean(x^2) + eps) * weight, weight [d_in] f32: rows are normed as they
    // are rounded, on the thread that does so.
    void set_normed(Rows x, const Tensor& weight, float eps);

    const Activations& activations() const { return x_; }

  private:
    // One row into the forms that are wanted; of a row, elements from `first` on into one.
    void set_row(int64_t row, const float* x);
    void set_columns(Rows x);
    void set_values(int64_t strip, int64_t first, int64_t n, Rows x);
    void quantise(int64_t row, int64_t first, int64_t n_padded, const float* x);
    void round(int64_t row, int64_t first, int64_t n_padded, const float* x);
    QuantisedRow quantised_row(int64_t row) const;
    void point_at_forms();
    bool only_codes() const {
        return codes_.n_rows > 0 && values_.n_rows == 0 && bf16_.n_rows == 0;
    }
    bool is_prompt() const { return rows_in_strip_ == kStripRows; }
    bool in_strips() const { return rows_in_strip_ == kDecodeStripRows; }  // decode rows
    int64_t n_strips() const { return (n_rows_ + rows_in_strip_ - 1) / rows_in_strip_; }

    Step& s_;
    const Kernels& kernels_;
    int64_t n_rows_, d_in_, n_padded_, rows_in_strip_;
    bool wants_values_ = false;
    Rows codes_, blocks_, values_, bf16_, normed_;  // without rows: not wanted
    Activations x_{};
};

}  // namespace ridge::cpu
