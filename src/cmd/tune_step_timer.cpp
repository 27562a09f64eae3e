#include "cmd/tune_step_timer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "model/tables.h"

namespace ridge {
namespace {

constexpr int64_t kDepth = 16;  // positions before the step, of which matmuls know nothing
// A sample is as many steps as take about so long, one at the least.
constexpr double kSampleNs = 4e6;

}  // namespace

TuneStepTimer::TuneStepTimer(const OpenOptions& open, int n_most_sequences,
                             const std::function<void()>& before_stage) {
    const std::vector<int64_t> n_positions(static_cast<size_t>(n_most_sequences), kDepth + 1);
    session_ = BenchSession::open(
        open, n_positions, static_cast<int>(kDepth),
        [&](std::string_view, double) { before_stage(); },
        [before_stage](double) { before_stage(); });
    session_->fill(n_most_sequences, kDepth);
    session_->set_trace(&trace_);
}

std::vector<TuneStepTimer::Place> TuneStepTimer::places_of(int n_sequences) const {
    const Model& model = session_->model();
    const int size = rows_class_of_cpu(RowClass::kDecode, n_sequences);
    std::vector<Place> places;
    const auto add = [&](std::string_view stage, int layer, const LinearGroup& weights) {
        const MatmulCall call =
            matmul_call(RowClass::kDecode, size, weights.weights[0]->weight.n_cols(), weights);
        auto place = std::find_if(places.begin(), places.end(),
                                  [&](const Place& p) { return p.call == call; });
        if (place == places.end()) place = places.insert(place, {call, {}});
        place->spans.emplace_back(stage, layer);
    };
    for (const Layer& layer : model.weights.layers) {
        add("attn_in", layer.index, {layer.q, layer.k, layer.v});
        add("attn_out", layer.index, layer.o);
        add("ffn_in", layer.index, {layer.gate, layer.up});
        add("ffn_out", layer.index, layer.down);
    }
    add("head", -1, model.weights.head);
    return places;
}

std::vector<MatmulCall> TuneStepTimer::calls(int n_sequences) const {
    std::vector<MatmulCall> calls;
    for (const Place& place : places_of(n_sequences)) calls.push_back(place.call);
    return calls;
}

std::vector<int> TuneStepTimer::n_layers(int n_sequences) const {
    std::vector<int> n;
    for (const Place& place : places_of(n_sequences)) {
        n.push_back(static_cast<int>(place.spans.size()));
    }
    return n;
}

std::vector<double> TuneStepTimer::sample(int n_sequences, const Tuning& tuning) {
    const std::vector<Place> places = places_of(n_sequences);
    session_->set_tuning(&tuning);
    std::vector<double> sums(places.size(), 0);
    int n_steps = 0;
    for (double ns = 0; ns < kSampleNs; n_steps++) {
        session_->decode(n_sequences, kDepth, 1);
        for (const NodeSpan& span : trace_.spans()) {
            for (size_t i = 0; i < places.size(); i++) {
                const auto& of = places[i].spans;
                if (std::find(of.begin(), of.end(), std::pair(span.node, span.layer)) != of.end()) {
                    sums[i] += static_cast<double>(span.elapsed_ns());
                }
            }
        }
        ns += static_cast<double>(trace_.elapsed_ns());
    }
    session_->set_tuning(nullptr);
    for (double& sum : sums) sum /= n_steps;
    return sums;
}

}  // namespace ridge
