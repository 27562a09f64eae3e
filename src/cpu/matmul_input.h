#pragma once

#include <cstdint>

#include "cpu/kernels.h"
#include "model/step.h"

namespace ridge::cpu {

// The functions of the instruction set that the tables were resolved for.
const Kernels& kernels_of(const Step& s);

// The rows that a matmul reads, as its kernels want them: in one form for each kind of operands.
class MatmulInput {
  public:
    // Takes scratch for the forms that are wanted; computes nothing.
    MatmulInput(Step& s, int64_t n_rows, int64_t d_in);
    void want(Operands operands);  // before the first of the calls below

    // x [n_rows, d_in] f32, which must stay while the forms are used. On all threads.
    void set(Rows x);

    const Activations& activations() const { return x_; }

  private:
    void set_values(Rows x);
    void quantise(Rows x);
    void round(Rows x);
    QuantisedRow quantised_row(int64_t row) const;

    Step& s_;
    const Kernels& kernels_;
    int64_t n_rows_, d_in_, n_padded_;
    bool wants_values_ = false;
    Rows codes_, blocks_, values_, halves_;  // without a buffer: not wanted
    Activations x_{};
};

}  // namespace ridge::cpu
