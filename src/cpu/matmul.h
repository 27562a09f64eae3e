#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/checked_math.h"
#include "cpu/interleaved.h"
#include "cpu/kernels.h"
#include "cpu/matmul_input.h"
#include "model/step.h"
#include "model/tuning.h"

namespace ridge::cpu {

// out[i, j] = sum_k x[i, k] * w[j, k] + bias[j]
//   x [n_rows, d_in] f32; one to three weights w [d_out, d_in], interleaved, compact or row_major;
//   biases [d_out] f32; out [n_rows, sum of d_out] f32.

// Weights streamed once, each group multiplied with eight rows of x at a time: for few rows.
void matmul_groups(Step& s, Rows x, LinearGroup weights, Rows out);
// Decode rows as above, prompt rows by panels of unpacked weights.
void matmul_by_class(Step& s, Rows x, LinearGroup weights, Rows out);

// What the kernel of one class and format rounds before it multiplies.
Operands operands_of(const Kernels& kernels, RowClass row_class, FormatId format);

// How rows of a class are multiplied: few prompt rows as decode rows, where that was measured to be
// faster and gives the same sums.
RowClass kernels_class(const Kernels& kernels, RowClass row_class, int64_t n_rows,
                       const LinearGroup& weights, const MatmulTuning& tuning);

// One matmul in pieces: its input in the form that its kernels read, and what becomes of its
// products. For rows of one class; takes scratch where it is made, and computes nothing in a dry
// run.
class Matmul {
  public:
    enum class Input : uint8_t { kRows, kNormed };
    Matmul(Step& s, RowClass row_class, int64_t n_rows, int64_t d_in, const LinearGroup& weights,
           Input input = Input::kRows);

    // One of these: x [n_rows, d_in] f32; or its norm, x / rms(x) * weight [d_in].
    void set_input(Rows x) { input_.set(x); }
    void set_normed_input(Rows x, const Tensor& weight, float eps) {
        input_.set_normed(x, weight, eps);
    }
    // Then one of these, on all threads:
    void store(Rows out);   // out[i, j] = product + bias    out [n_rows, sum of d_out]
    void add_to(Rows out);  // out[i, j] += product + bias
    // out[i, j] = silu(gate) * up of two weights of one shape      out [n_rows, d_out]
    void store_swiglu(Rows out);

  private:
    struct Piece;
    template <class Use>
    void run(int n_side_by_side, Use use);
    int64_t padded_rows() const { return round_up(n_rows_, kPaddedRows); }

    Step& s_;
    const Kernels& kernels_;
    LinearGroup weights_;
    MatmulTuning tuning_;
    bool panels_;
    int64_t n_rows_;
    MatmulInput input_;
    Rows packed_, rooms_;  // [n_threads, ...] rooms of one thread each
    int64_t packed_bytes_ = 0, code_floats_ = 0, scale_floats_ = 0, slice_floats_ = 0;
    int64_t pieces_at_once_ = 1;  // of prompts: what a thread takes at a time

    template <class Use>
    void run_groups(const Piece* pieces, int n, int worker, Use use);
    template <class Use>
    void run_panels(std::span<const Piece> pieces, int n_side_by_side, int worker, Use use);
    void plan_panels();
    PackedShape shape_of(const Tensor& weight) const;
    static int64_t slice_blocks(const GemmKernel& gemm, const MatmulTuning& tuning);
    // Of prompts of few rows and of more: memory is planned for both.
    std::array<MatmulTuning, 2> prompt_tunings() const;
    void multiply_panel(const Piece& piece, int worker, float* sums) const;
    void multiply_tiles(std::span<const Piece> pieces, int worker, float* const* sums) const;
    const uint8_t* panel_group(const Piece& piece, int g, int worker, int room) const;
    const uint8_t* group(const Tensor& weight, int64_t group, int worker, int room) const;
};

// Calls body(row_class, first_row, n_rows) for each run of rows of one class.
template <class Body>
void for_each_class(const Step& s, Body body) {
    for (size_t begin = 0, end; begin < s.spans.size(); begin = end) {
        const RowClass row_class = s.spans[begin].row_class;
        int64_t n = 0;
        for (end = begin; end < s.spans.size() && s.spans[end].row_class == row_class; end++) {
            n += s.spans[end].n_rows;
        }
        body(row_class, int64_t{s.spans[begin].first_row}, n);
    }
}

// Calls use(matmul, first_row, n_rows) with the matmul of each run of rows of one class; in a dry
// run makes them alone, for their scratch.
template <class Use>
void for_each_matmul(Step& s, int64_t d_in, const LinearGroup& weights, Matmul::Input input,
                     Use use) {
    for_each_class(s, [&](RowClass row_class, int64_t first, int64_t n) {
        ScratchScope scope(s.memory);
        Matmul matmul(s, row_class, n, d_in, weights, input);
        if (!s.planning) use(matmul, first, n);
    });
}

}  // namespace ridge::cpu
