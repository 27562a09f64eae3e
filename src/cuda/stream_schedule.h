#pragma once

#include <algorithm>
#include <array>

#include "model/weight_placement.h"

namespace ridge::cuda {

// Which copy of a streamed layer's weights goes when. Layers are numbered among the streamed ones;
// layer i is computed from buffer i mod 2. Copies run on a queue of their own beside the one that
// computes, and so that it never lacks one: as soon as a layer has been computed, its buffer is
// filled with the next layer that uses it, at a step's end with the first ones of the next step.
//
// Queues is what runs it:
//     computed(buffer)     notes, behind all that was put into the computing queue until now
//     copy(layer, buffer)  to the copying queue: waits for the last computed(buffer), then copies
//     wait(buffer)         to the computing queue: waits for the last copy into the buffer
class StreamSchedule {
  public:
    explicit StreamSchedule(int n_layers) : n_layers_(n_layers) { forget(); }

    static int buffer_of(int layer) { return layer % kStreamBuffers; }

    // The buffers' contents are no longer what was copied there.
    void forget() { held_.fill(-1); }

    // Before a layer's kernels are put into the computing queue.
    template <class Queues>
    void before(int layer, Queues& queues) {
        if (held_[at(layer)] != layer) begin_at(layer, queues);
        queues.wait(buffer_of(layer));
    }
    // After them.
    template <class Queues>
    void after(int layer, Queues& queues) {
        queues.computed(buffer_of(layer));
        const int later = layer + kStreamBuffers;
        const int next = later < n_layers_ ? later : buffer_of(layer);
        if (next != layer) load(next, queues);
    }

  private:
    static size_t at(int layer) { return static_cast<size_t>(buffer_of(layer)); }

    // The first step of all, or one after a step that ended within: what was computed there may
    // still be going on.
    template <class Queues>
    void begin_at(int layer, Queues& queues) {
        const int end = std::min(layer + kStreamBuffers, n_layers_);
        for (int i = layer; i < end; i++) {
            if (held_[at(i)] == i) continue;
            queues.computed(buffer_of(i));
            load(i, queues);
        }
    }
    template <class Queues>
    void load(int layer, Queues& queues) {
        held_[at(layer)] = layer;
        queues.copy(layer, buffer_of(layer));
    }

    int n_layers_;
    std::array<int, kStreamBuffers> held_;  // the layer that a buffer holds once copies have ended
};

}  // namespace ridge::cuda
