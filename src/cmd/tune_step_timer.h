#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/bench_session.h"
#include "model/step_trace.h"
#include "model/tuning.h"

namespace ridge {

// Times the matmuls of a model's decode steps where they run: fused with what surrounds them, on
// weights as they lie in memory behind each other, between the calls that come before and after.
// For the processor.
class TuneStepTimer {
  public:
    // Opens the model, for steps of up to so many sequences. `before_stage` may throw.
    TuneStepTimer(const OpenOptions& open, int n_most_sequences,
                  const std::function<void()>& before_stage);

    // The calls of a step, each once, in the order of a layer.
    std::vector<MatmulCall> calls(int n_sequences) const;
    // Times of a sample in ns, of all of a call's layers; parallel to calls().
    std::vector<double> sample(int n_sequences, const Tuning& tuning);
    // How many layers have each of the calls.
    std::vector<int> n_layers(int n_sequences) const;

  private:
    struct Place {  // where a call is
        MatmulCall call;
        std::vector<std::pair<std::string_view, int>> spans;  // stage and layer
    };
    std::vector<Place> places_of(int n_sequences) const;

    std::unique_ptr<BenchSession> session_;
    StepTrace trace_;
};

}  // namespace ridge
