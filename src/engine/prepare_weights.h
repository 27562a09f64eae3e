#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/engine.h"
#include "model/backend.h"

namespace ridge {

// What holds weights back from being packed, and what they may take.
struct PrepareOptions {
    bool repack = true;         // false: weights stay where the file maps them
    bool in_memory = false;     // the source is memory, too, and is given back weight by weight
    bool stream = false;        // all layers are streamed, also where they would fit
    uint64_t memory_bytes = 0;  // for weights, the KV cache and steps; 0: unknown
    int64_t step_bytes = 0;     // of these for steps
    std::string cache;          // how errors call the KV cache: "the KV cache at -c 4096"
};

// Of the memory that prepare_weights() takes, what it takes at the least, however many layers are
// streamed.
int64_t least_weight_bytes(const Backend& backend, const Model& model, bool repack);

// Rows of a prompt's step: n_wanted, or half as many as often as it takes so that no more layers
// are streamed for the memory that step_bytes(rows) wants than where there are kStepRows. Before
// the weights are prepared; of `options` all but step_bytes.
int choose_step_rows(const PrepareOptions& options, const KvCache& kv, const Backend& backend,
                     const Model& model, int n_wanted,
                     const std::function<int64_t(int)>& step_bytes);

// Puts the model's weights, as they lie in `file`, where the backend wants them, and tells which of
// them are streamed. Those that are packed cannot give way as those in the page cache can, so an
// Error says when memory will not do, before it is taken: at once, or where sizes depend on what
// weights hold, once that is known.
WeightPlacement prepare_weights(const ModelFile& file, const PrepareOptions& options,
                                const KvCache& kv, Backend& backend, Model& model,
                                const Progress& progress);

}  // namespace ridge
