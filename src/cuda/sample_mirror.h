#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "cuda/sample_rows.h"
#include "model/rows.h"
#include "model/sample_params.h"

namespace ridge::cuda {

// What came of a row, as kernels write it; its most probable tokens stand behind it.
struct DrawnRow {
    enum Status : int32_t { kToken, kNan, kInfinite, kNothing };
    Status status;  // kInfinite: `token` has the logit +inf; kNothing: all logits are -inf
    Token token;
    float logprob;
    int32_t n_top;

    __host__ __device__ TokenLogprob* top() { return reinterpret_cast<TokenLogprob*>(this + 1); }
    __host__ __device__ const TokenLogprob* top() const {
        return reinterpret_cast<const TokenLogprob*>(this + 1);
    }
};

// Device addresses.
struct SamplePlaces {
    const RowDraw* draws;  // [n_rows]
    const int32_t* words;
    int32_t* arrivals;  // [n_rows] 0 between steps: blocks of a row that have done their part
    std::byte* drawn;   // [n_rows, drawn_stride] DrawnRow
    int64_t drawn_stride;

    __device__ DrawnRow& drawn_row(int64_t row) const {
        return *reinterpret_cast<DrawnRow*>(drawn + row * drawn_stride);
    }
};

// Keeps at fixed device addresses how a step's rows are drawn, and brings back what was: one copy
// out of pinned memory and one into it.
class SampleMirror {
  public:
    SampleMirror() = default;
    // Room for n_rows rows, with some biases, tokens to penalise and log probabilities.
    SampleMirror(int64_t n_rows, cudaStream_t stream);

    // Room for what the rows want; true: for that the addresses have changed, and a graph that was
    // captured with the old ones is void. After the step before has ended.
    [[nodiscard]] bool reserve(const SampleNeeds& needs);
    // After the step before has ended. Reserves, and says what that says. An Error as of
    // write_sample_rows.
    [[nodiscard]] bool send(std::span<const SampleRow> rows, int64_t n_vocab, cudaStream_t stream);
    // A captured step that draws its tokens, too: the op that follows has only to collect them.
    void set_drawn_by_step() { is_drawn_by_step_ = true; }
    bool take_drawn_by_step() { return std::exchange(is_drawn_by_step_, false); }
    // Whether one of the rows sent needs the kernels that order all candidates.
    bool draws_from_all() const { return draws_from_all_; }
    SamplePlaces places() const;
    // Starts the copy of what was drawn, of n_rows rows.
    void fetch(int64_t n_rows, cudaStream_t stream);
    // After the step has ended. A row's logits that cannot be drawn from are an Error, as they are
    // of ref::sample.
    void collect(std::span<const SampleRow> rows, std::span<Sampled> drawn) const;

  private:
    void allocate();

    int64_t n_rows_ = 0, n_words_ = 0;
    int n_top_ = 0;
    bool draws_from_all_ = false, is_drawn_by_step_ = false;
    Buffer arrivals_;
    Buffer pinned_rows_, rows_;    // RowDraw [n_rows], then words [n_words]
    Buffer pinned_drawn_, drawn_;  // DrawnRow and n_top TokenLogprob, for each row
};

// What was written as one row, as the caller of sample wants it; `position`: of the token drawn.
Sampled sampled_of(const DrawnRow& row, int64_t position);

}  // namespace ridge::cuda
