#include "cuda/graph.h"

#include <algorithm>

#include "cuda/check.h"
#include "cuda/context.h"
#include "cuda/sample.h"
#include "cuda/sample_mirror.h"
#include "model/step.h"

namespace ridge::cuda {
namespace {

// What is between begin and end of a capture; also left by an exception, which spoils the capture
// and nothing else.
cudaGraphExec_t capture(cudaStream_t stream, const std::function<void()>& body) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing a step");
    cudaGraph_t graph = nullptr;
    try {
        body();
    } catch (...) {
        cudaStreamEndCapture(stream, &graph);
        if (graph != nullptr) cudaGraphDestroy(graph);
        throw;
    }
    check(cudaStreamEndCapture(stream, &graph), "capturing a step");
    cudaGraphExec_t executable = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    check(status, "instantiating a captured step");
    return executable;
}

}  // namespace

Graph::Graph(cudaStream_t stream, const std::function<void()>& body)
    : graph_(capture(stream, body)) {}

void Graph::launch(cudaStream_t stream) const {
    check(cudaGraphLaunch(graph_, stream), "launching a captured step");
}

std::string_view unfit_for_graph(const Step& s, const Weights&, const KvCache&, const Rows&) {
    if (context_of(s).weights != nullptr) return "layers are streamed";
    return s.trace == nullptr ? "" : kTracedByCalls;
}

void step_in_graph(Step& s, const Weights& w, const KvCache& kv, Rows logits) {
    auto below = [&] { s.tables.step.below("graph", s, w, kv, logits); };
    const Context& c = context_of(s);
    if (s.planning || !have_one_decode_row_each(s.spans) || c.graphs == nullptr) return below();
    const int64_t n_rows = s.batch.n_rows();
    const auto n_logit_rows = static_cast<int64_t>(s.batch.logit_rows.size());
    // Of fewer rows it matters which: the step is cut into runs of them.
    if (n_logit_rows != 0 && n_logit_rows != n_rows) return below();
    const bool draws = c.sampling->is_added(), draws_from_all = c.sampling->draws_from_all();
    std::vector<GraphCache::Entry>& entries = c.graphs->entries_;
    auto entry = std::find_if(entries.begin(), entries.end(), [&](const GraphCache::Entry& e) {
        return e.n_rows == n_rows && e.n_logit_rows == n_logit_rows && e.draws == draws &&
               e.draws_from_all == draws_from_all && e.cache == kv.pages.data() &&
               e.logits == logits.buffer->data();
    });
    if (entry == entries.end()) {
        entries.push_back({n_rows, n_logit_rows, draws, draws_from_all, kv.pages.data(),
                           logits.buffer->data(), nullptr});
        return below();
    }
    if (entry->graph == nullptr) {
        entry->graph = std::make_unique<const Graph>(c.stream, [&] {
            below();
            if (draws) enqueue_sample(s, logits);
        });
    }
    entry->graph->launch(c.stream);
    if (draws) c.sampling->set_drawn_by_step();
}

}  // namespace ridge::cuda
