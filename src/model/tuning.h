#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "format/format.h"
#include "model/batch.h"
#include "model/rows.h"

namespace ridge {

struct LinearGroup;
struct KvLayer;
struct Step;

// What `ridge tune` chooses: how calls are shared out over threads and blocked. No choice changes a
// bit of a result: each is among ways of computing the same sums in the same order, so that a
// result depends neither on the machine's speed nor on whether it was tuned.

// A matmul of one shape. The values are what runs where nothing was chosen.
struct MatmulTuning {
    // The CPU, decode rows.
    int grain_kib = 32;  // of weights that a thread takes at a time, at the least
    int ahead_kib = 0;   // how far ahead memory is asked for; 0: as the instruction set has it
    // The CPU, prompt rows.
    int slice_blocks = 0;  // of 32 elements along k that are unpacked at a time; 0: the kernel's
    int few_rows = 0;      // so many are multiplied as decode rows are, where the sums are the same
    int panels = 8;        // of 32 weight rows that a thread takes at a time on tiles, at the most
    // CUDA, prompt rows.
    int way = 0;  // GemmWay of cuda/gemm.h; 0: reckoned from the sizes

    bool operator==(const MatmulTuning&) const = default;
};

struct AttentionTuning {
    int thread_items = 8;  // the CPU, decode rows: into which the cache is cut, of each thread
    int block_rows = 0;    // the CPU, prompt rows: that a tile is unpacked for; 0: the unit's
    // CUDA, prompt rows: segments of positions have blocks of their own where there are fewer tiles
    // for each multiprocessor.
    int tiles_an_sm = 2;

    bool operator==(const AttentionTuning&) const = default;
};

// Calls that one choice is for.
struct MatmulCall {
    struct Weight {
        int64_t d_out = 0;
        FormatId format = FormatId::kF32;
        auto operator<=>(const Weight&) const = default;
    };

    RowClass row_class = RowClass::kDecode;
    int size = 0;  // the class of the number of rows: see below
    int64_t d_in = 0;
    std::array<Weight, 3> weights{};  // d_out 0: not there

    std::strong_ordering operator<=>(const MatmulCall& other) const;
    bool operator==(const MatmulCall& other) const { return (*this <=> other) == 0; }
};
struct AttentionCall {
    RowClass row_class = RowClass::kDecode;
    int size = 0;  // of decode rows on the CPU: the class of the number of blocks of positions
    int n_heads = 0, n_kv_heads = 0, d_head = 0;
    DType k_dtype = DType::kF16, v_dtype = DType::kF16;

    auto operator<=>(const AttentionCall&) const = default;
};

MatmulCall matmul_call(RowClass row_class, int size, int64_t d_in, const LinearGroup& weights);
AttentionCall attention_call(RowClass row_class, int size, int64_t n_heads, const KvLayer& kv);

// Classes of sizes. On the CPU one decode row and several are blocked differently, and so are
// prompts of few rows and of more. On CUDA prompts whose rows fill as many tiles of 64 launch the
// same blocks.
constexpr int kFewPromptRows = 64, kManyPrompts = 0, kFewPrompts = 1;
constexpr int rows_class_of_cpu(RowClass row_class, int64_t n_rows) {
    if (row_class == RowClass::kDecode) return n_rows == 1 ? 1 : 2;
    return n_rows > kFewPromptRows ? kManyPrompts : kFewPrompts;
}
constexpr int rows_class_of_cuda(int64_t n_rows) {
    return static_cast<int>((n_rows + 63) / 64);
}
// Of blocks of a cache: 1, 2, 3 to 4, 5 to 8, ...
constexpr int blocks_class(int64_t n_blocks) {
    int n = 0;
    while (n_blocks > int64_t{1} << n) n++;
    return n;
}
constexpr int kMaxSizeClass = 1 << 20;

// What may be chosen.
template <class T>
struct TuningParameter {
    using Member = int T::*;
    std::string_view name;  // in files and tables
    Member value;
    int min, max, multiple;    // values that a file may have
    std::string_view backend;  // "cpu", "cuda"
    RowClass row_class;
};
std::span<const TuningParameter<MatmulTuning>> parameters_of(const MatmulTuning*);
std::span<const TuningParameter<AttentionTuning>> parameters_of(const AttentionTuning*);

// Choices for one device. Calls that none was made for run as ever.
class Tuning {
  public:
    void set(const MatmulCall& call, const MatmulTuning& values);
    void set(const AttentionCall& call, const AttentionTuning& values);
    const MatmulTuning& of(const MatmulCall& call) const;
    const AttentionTuning& of(const AttentionCall& call) const;
    size_t n_choices() const { return matmuls_.size() + attentions_.size(); }

  private:
    template <class Call, class T>
    using Choices = std::vector<std::pair<Call, T>>;  // in the order of calls
    Choices<MatmulCall, MatmulTuning> matmuls_;
    Choices<AttentionCall, AttentionTuning> attentions_;
};

// What the step's tables have chosen.
const MatmulTuning& tuning_of(const Step& s, const MatmulCall& call);
const AttentionTuning& tuning_of(const Step& s, const AttentionCall& call);

}  // namespace ridge
