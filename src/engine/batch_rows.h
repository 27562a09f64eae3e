#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "model/batch.h"

namespace ridge {

// What a Batch views.
struct BatchRows {
    std::vector<Token> tokens;
    std::vector<int32_t> positions, logit_rows;
    std::vector<int64_t> slots;
    std::vector<SequenceSpan> spans;
    std::vector<SampleRow> sample_rows;

    Batch batch(const std::function<void()>* before_stage) const {
        return {tokens, positions, slots, spans, logit_rows, sample_rows, before_stage};
    }
};

}  // namespace ridge
