#pragma once

#include <numeric>
#include <vector>

#include "model/batch.h"

namespace ridge {

// A batch of a given size whose contents do not matter: what a dry run needs.
struct BatchSize {
    std::vector<Token> tokens;
    std::vector<int32_t> positions, logit_rows;
    std::vector<int64_t> slots;
    SequenceSpan span;

    BatchSize(int n_rows, int n_logit_rows, RowClass row_class)
        : tokens(static_cast<size_t>(n_rows)),
          positions(static_cast<size_t>(n_rows)),
          logit_rows(static_cast<size_t>(n_logit_rows)),
          slots(static_cast<size_t>(n_rows)) {
        std::iota(logit_rows.begin(), logit_rows.end(), 0);
        span.n_rows = n_rows;
        span.row_class = row_class;
    }
    Batch batch() const { return {tokens, positions, slots, {&span, 1}, logit_rows, {}}; }
};

}  // namespace ridge
