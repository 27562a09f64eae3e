#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cuda/packet.h"
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

// Where a step's kernels write what they have drawn: in pinned memory of the host, which has it
// when the step has ended.
struct DrawnPlace {
    std::byte* rows;  // [n_rows, stride] DrawnRow
    int64_t stride;

    __host__ __device__ DrawnRow& row(int64_t i) const {
        return *reinterpret_cast<DrawnRow*>(rows + i * stride);
    }
};

// Device addresses.
struct SamplePlaces {
    const RowDraw* draws;  // [n_rows]
    const int32_t* words;
    int32_t* arrivals;  // [n_rows] 0 between steps: blocks of a row that have done their part
    const DrawnPlace* drawn;
    Token* tokens;  // [n_rows] drawn, which the next step may take
};

// Keeps at fixed device addresses how a step's rows are drawn, and gives back what was. Steps take
// turns with Packet::kSlots places for that, so that one may be under way behind another.
class SampleMirror {
  public:
    SampleMirror() = default;
    // Room for n_rows rows, with some biases, tokens to penalise and log probabilities.
    SampleMirror(int64_t n_rows, cudaStream_t stream);

    // Begins a step that has the slot, after the one that had it before has ended.
    void begin_step(int slot);
    // Puts in the packet how the step's rows are drawn. True: for what they want the addresses have
    // changed, after the end of all steps; a graph that was captured with the old ones is void.
    [[nodiscard]] bool add(std::span<const SampleRow> rows, int64_t n_vocab, Packet& packet,
                           cudaStream_t stream);
    bool is_added() const { return is_added_; }
    // A captured step that draws its tokens, too: the op that follows has nothing to start.
    void set_drawn_by_step() { is_drawn_by_step_ = true; }
    bool take_drawn_by_step() { return std::exchange(is_drawn_by_step_, false); }
    // Whether one of the rows added needs the kernels that order all candidates.
    bool draws_from_all() const { return draws_from_all_; }
    int slot() const { return slot_; }
    SamplePlaces places() const;
    // Where collect() is to leave what the step draws.
    void expect(std::span<const SampleRow> rows, std::span<Sampled> drawn);
    // After the step that had the slot has ended: what it was to draw. A row's logits that cannot
    // be drawn from are an Error, as they are of ref::sample.
    void collect(int slot);

  private:
    struct Slot {
        Buffer pinned;  // DrawnRow and n_top TokenLogprob, for each row
        int n_top = 0;
        std::span<Sampled> expected;
        std::vector<int64_t> positions;  // of these

        int64_t stride() const {
            return static_cast<int64_t>(sizeof(DrawnRow)) +
                   n_top * static_cast<int64_t>(sizeof(TokenLogprob));
        }
    };

    int64_t n_rows_ = 0, n_words_ = 0;
    bool draws_from_all_ = false, is_added_ = false, is_drawn_by_step_ = false;
    int slot_ = 0;
    std::array<Slot, Packet::kSlots> slots_;
    Buffer fixed_;  // DrawnPlace, tokens [n_rows], arrivals [n_rows]
    Buffer rows_;   // RowDraw [n_rows], then words [n_words]
};

// What was written as one row, as the caller of sample wants it; `position`: of the token drawn.
Sampled sampled_of(const DrawnRow& row, int64_t position);

}  // namespace ridge::cuda
