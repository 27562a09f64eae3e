#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/batch_rows.h"
#include "engine/engine.h"
#include "model/backend.h"
#include "model/sample_params.h"

namespace ridge {

// A model opened to be timed: prompt steps and decode steps on tokens that do not matter, over a
// cache that holds several sequences. Token number p of sequence s is always the same random one,
// never 0. Throws Error.
class BenchSession {
  public:
    // n_positions[s]: what sequence s may hold, none more than the one before it. It may be more
    // than the model was made for. `n_step_rows`: rows of a prompt step, 0: as many as prompts are
    // run in where nothing else is asked. `on_stage` is called before each step and each stage of
    // its layers with the share, 0..1, that is done of the call of prompt(), decode() or fill() for
    // one sequence, and may throw to end what is going on. `wrap_backend`: for tests.
    static std::unique_ptr<BenchSession> open(const OpenOptions& options,
                                              std::vector<int64_t> n_positions, int n_step_rows,
                                              const Progress& progress = {},
                                              std::function<void(double)> on_stage = {},
                                              const WrapBackend& wrap_backend = {});
    ~BenchSession();

    const ModelInfo& info() const;

    // Sequences 0 .. n_sequences - 1 hold `depth` positions: what they hold already stays, the rest
    // is computed by prompt steps.
    void fill(int n_sequences, int64_t depth, const Progress& progress = {});
    // Computes n_tokens more positions of sequence 0 from `depth` on, in prompt steps; logits and
    // one draw for the last of them. Returns the drawn token.
    Token prompt(int64_t depth, int64_t n_tokens);
    // n_steps decode steps, a token of each sequence at a time, from `depth` on; each draws the
    // most probable token, which the next one takes. Steps run ahead as those of
    // Engine::generate() do. Returns the tokens of the last step.
    std::vector<Token> decode(int n_sequences, int64_t depth, int64_t n_steps);

    // The calls of every step from now on are noted there, where the backend does so (the CPU's
    // does); null: nowhere. It then holds those of the last step.
    void set_trace(StepTrace* trace) { trace_ = trace; }
    // Steps from now on run with these choices in place of those that the model was opened with;
    // null: with none. For choices that steps need no other memory for.
    void set_tuning(const Tuning* tuning);
    const Model& model() const;  // as the backend holds it
    Token token_at(int sequence, int64_t position) const;

    // The wall that decode stands before: see Backend::measure_read_gbps.
    double measure_read_gbps();
    // The one that streamed layers stand before: see Backend::measure_link_gbps.
    double measure_link_gbps();
    // What the device can do: see Backend::measure_ceilings.
    Ceilings measure_ceilings(const CeilingEvents& events);
    // See Backend::arithmetic_of.
    std::string_view arithmetic_of(std::string_view node, std::string_view checkpoint,
                                   const Format* format, RowClass row_class) const;

  private:
    BenchSession(std::unique_ptr<Engine> engine, std::vector<int64_t> n_positions,
                 std::function<void(double)> on_stage);
    Token prompt_steps(int sequence, int64_t begin, int64_t end, bool draw,
                       const std::function<void(int64_t)>& done);
    // Starts a step that takes the call going on from one share to another.
    Ticket start(const BatchRows& rows, double from, double to);
    std::vector<Sampled> wait(Ticket ticket);

    std::unique_ptr<Engine> engine_;
    std::vector<int64_t> n_positions_, base_slots_;
    std::vector<int64_t> n_filled_;  // positions from 0 on that hold the sequence's own tokens
    std::function<void(double)> on_stage_;
    StepTrace* trace_ = nullptr;
    SampleParams greedy_;
};

}  // namespace ridge
