#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "engine/batch_rows.h"
#include "engine/engine_impl.h"

namespace ridge {

// Steps of the sequence that the cache holds, each started, then waited for. Where the backend can
// run ahead, a decode step may be started before the one that draws its token has been waited for.
// What is still under way when this object ends is dropped: it has never been, for the sequence.
class SequenceSteps {
  public:
    // The sequence grows by a step's tokens when that has been waited for and has succeeded.
    // `before_stage` is called before each step and each stage of its layers (Batch), and may
    // throw.
    SequenceSteps(const Engine::Impl& engine, std::vector<Token>& sequence,
                  const std::function<void()>& before_stage);

    // Whether start() takes drawn_by(0) while the step before is under way, which draws so.
    bool can_run_ahead(const SampleParams& sampling) const;

    // Starts the step that computes `tokens`, at most info.n_step_rows, as the next positions. The
    // last n_logit_rows rows, at most kMaxStepLogitRows, give logits; with `sampling` the last row
    // is sampled too. What it throws changes nothing of a step that is under way.
    void start(std::span<const Token> tokens, RowClass row_class, int n_logit_rows,
               const SampleParams* sampling);
    // What the step gives that was started first of those under way. Where it throws, what was
    // started behind it is dropped.
    StepResult wait();

  private:
    struct Started {
        Ticket ticket;
        size_t n_tokens = 0;
    };

    const Engine::Impl& engine_;
    std::vector<Token>& sequence_;
    const std::function<void()>& before_stage_;
    std::vector<Token> tokens_;  // the sequence's and those of steps that are under way: what
                                 // penalties look back on
    std::array<Started, 2> started_;
    size_t n_started_ = 0;  // under way
    BatchRows rows_;
};

}  // namespace ridge
