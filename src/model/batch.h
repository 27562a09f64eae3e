#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/kv_cache.h"
#include "model/sample_params.h"
#include "text/token.h"

namespace ridge {

class StepTrace;

// Rows differ in arithmetic by class alone: a kernel for one decode row keeps its order of sums for
// any number of decode rows, and a prompt row's result does not depend on where its prompt was cut
// into chunks.
enum class RowClass : uint8_t { kPrompt, kDecode };

// Consecutive rows of one sequence.
struct SequenceSpan {
    int32_t first_row = 0, n_rows = 0;
    RowClass row_class = RowClass::kPrompt;
    KvView kv;  // the sequence's cache, long enough for the last row's position
};

// A token that the host does not know yet: what row `row` of the sample_rows of the step before
// draws. Where Backend::can_run_ahead, it may stand among the tokens of a batch and the histories
// of its sample_rows.
constexpr Token drawn_by(int32_t row) {
    return -1 - row;
}

// One step's work: prompt chunks, single decode rows, or a mixture, flattened to rows.
struct Batch {
    std::span<const Token> tokens;  // [n_rows]
    std::span<const int32_t>
        positions;  // [n_rows] absolute; -1: a masked row, whose attention is zero
    std::span<const int64_t>
        slots;  // [n_rows] where the row's K and V go in the cache; -1: nowhere
    std::span<const SequenceSpan> spans;     // cover all rows, in order
    std::span<const int32_t> logit_rows;     // rows that want logits, ascending
    std::span<const SampleRow> sample_rows;  // parallel to logit_rows, or empty: no sampling
    // Called before each stage that the host starts; what it throws ends the step, whose rows in
    // the cache then count for nothing. Null: nothing is called.
    const std::function<void()>* before_stage = nullptr;
    // Filled by a backend that can say what it does, call by call. Null: nothing is noted.
    StepTrace* trace = nullptr;

    int32_t n_rows() const { return static_cast<int32_t>(tokens.size()); }
    bool has(RowClass row_class) const {
        return std::any_of(spans.begin(), spans.end(),
                           [&](const SequenceSpan& span) { return span.row_class == row_class; });
    }
};

}  // namespace ridge
