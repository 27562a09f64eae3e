#include "engine/sequence_steps.h"

#include <numeric>

#include "base/check.h"

namespace ridge {

SequenceSteps::SequenceSteps(const Engine::Impl& engine, std::vector<Token>& sequence,
                             const std::function<void()>& before_stage)
    : engine_(engine), sequence_(sequence), before_stage_(before_stage), tokens_(sequence) {
    rows_.spans.resize(1);
}

bool SequenceSteps::can_run_ahead(const SampleParams& sampling) const {
    const SampleRow row{&sampling, {}, 0};
    return engine_.backend->can_run_ahead(engine_.model, {&row, 1});
}

// Positions are slots: the cache holds one sequence, from its first slot on.
void SequenceSteps::start(std::span<const Token> tokens, RowClass row_class, int n_logit_rows,
                          const SampleParams* sampling) {
    before_stage_();
    const size_t n = tokens.size(), n_past = tokens_.size();
    CHECK(n > 0 && n <= static_cast<size_t>(engine_.info.n_step_rows) &&
          static_cast<int64_t>(n_past + n) <= engine_.kv.n_slots && n_started_ < started_.size());
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    rows_.tokens.assign(tokens.begin(), tokens.end());
    rows_.positions.resize(n), rows_.slots.resize(n);
    rows_.logit_rows.resize(static_cast<size_t>(n_logit_rows));
    std::iota(rows_.positions.begin(), rows_.positions.end(), static_cast<int32_t>(n_past));
    std::iota(rows_.slots.begin(), rows_.slots.end(), static_cast<int64_t>(n_past));
    std::iota(rows_.logit_rows.begin(), rows_.logit_rows.end(),
              static_cast<int32_t>(n) - n_logit_rows);
    rows_.spans[0] = {0, static_cast<int32_t>(n), row_class, KvView{}};
    rows_.sample_rows.clear();
    if (sampling != nullptr) {
        rows_.sample_rows.push_back({sampling, tokens_, static_cast<int64_t>(tokens_.size())});
    }
    try {
        started_[n_started_] = {engine_.start(rows_.batch(&before_stage_)), n};
    } catch (...) {
        tokens_.resize(n_past);
        throw;
    }
    n_started_++;
}

StepResult SequenceSteps::wait() {
    CHECK(n_started_ > 0);
    const Started first = started_[0];
    started_[0] = started_[1];
    n_started_--;
    StepResult result;
    try {
        result = engine_.wait(first.ticket);
    } catch (...) {
        tokens_.resize(sequence_.size());
        n_started_ = 0;
        throw;
    }
    const auto begin = tokens_.begin() + static_cast<int64_t>(sequence_.size());
    const auto end = begin + static_cast<int64_t>(first.n_tokens);
    sequence_.insert(sequence_.end(), begin, end);
    // What the step behind it took from the device is known now.
    if (n_started_ > 0 && *end < 0) *end = result.sampled[0].token;
    return result;
}

}  // namespace ridge
