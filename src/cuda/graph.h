#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "model/tables.h"

namespace ridge::cuda {

// A graph that can be started.
class Graph {
  public:
    // What `body` starts on the stream. What it throws spoils the graph and nothing else.
    Graph(cudaStream_t stream, const std::function<void()>& body);
    ~Graph() { cudaGraphExecDestroy(graph_); }
    Graph(const Graph&) = delete;
    void launch(cudaStream_t stream) const;

  private:
    cudaGraphExec_t graph_ = nullptr;
};

// Captured decode steps, one for each batch size. A step's kernels read positions, tokens and page
// tables from the batch's mirror, whose addresses stay, so that one capture serves every position.
class GraphCache {
  public:
    // When the addresses that steps were captured with are no longer what they were.
    void clear() { entries_.clear(); }

  private:
    friend void step_in_graph(Step& s, const Weights& w, const KvCache& kv, Rows logits);

    struct Entry {
        int64_t n_rows, n_logit_rows;
        bool draws, draws_from_all;  // tokens, too, and how (SampleMirror)
        const std::byte *cache, *logits;
        std::unique_ptr<const Graph> graph;  // null: has run once, is captured the next time
    };
    std::vector<Entry> entries_;
};

// A whole decode step as one graph, with the drawing of its tokens: captured from the entry below
// at the second step of its size. Steps with prompt rows go below as they are.
void step_in_graph(Step& s, const Weights& w, const KvCache& kv, Rows logits);
// Steps of streamed layers: copies from the host set their pace. A step that is traced runs call by
// call.
std::string_view unfit_for_graph(const Step& s, const Weights& w, const KvCache& kv,
                                 const Rows& logits);

}  // namespace ridge::cuda
