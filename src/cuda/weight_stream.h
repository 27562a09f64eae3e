#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <vector>

#include "cuda/context.h"
#include "cuda/event.h"
#include "cuda/stream_schedule.h"
#include "cuda/upload.h"
#include "model/step.h"
#include "model/tables.h"
#include "model/weight_placement.h"

namespace ridge::cuda {

// The weights of streamed layers: each layer's in one run of pinned host memory, from where one
// copy brings them to the buffer that its kernels read. Addresses of weights are the buffer's, and
// stay.
class WeightStream {
  public:
    // `buffers` [buffer_bytes] each. Steps run on the stream `computing`.
    WeightStream(const WeightPlacement& placement, std::array<Buffer, kStreamBuffers> buffers,
                 cudaStream_t computing);
    ~WeightStream();
    WeightStream(const WeightStream&) = delete;

    bool has(int layer) const { return number_of(layer) >= 0; }
    // Room for a weight of a layer, the next one behind those before.
    Destination take(int layer, size_t n_bytes);

    // Around the kernels of a layer that it has.
    void before(int layer);
    void after(int layer);

    // Rate of copying all streamed layers one after the other, the median of some passes, in GB/s.
    // Between steps.
    double measure_gbps();

  private:
    friend class StreamSchedule;
    static constexpr const char* kWhat = "stream of weights";

    struct Layer {
        Buffer pinned;
        size_t n_bytes, n_taken = 0;
    };

    int number_of(int layer) const {
        const auto i = static_cast<size_t>(layer);
        return layer >= 0 && i < numbers_.size() ? numbers_[i] : -1;
    }
    void start_copy(int number, int buffer);
    double copy_all_seconds(const Event& begin, const Event& end);

    // StreamSchedule's Queues.
    void computed(int buffer);
    void copy(int number, int buffer);
    void wait(int buffer);

    std::vector<int> numbers_;  // of each layer among the streamed ones; -1: it is none
    std::vector<Layer> layers_;
    std::array<Buffer, kStreamBuffers> buffers_;
    cudaStream_t computing_, copying_ = nullptr;
    std::array<Event, kStreamBuffers> computed_{Event(kWhat), Event(kWhat)},
        copied_{Event(kWhat), Event(kWhat)};
    StreamSchedule schedule_;
};

// Runs `body`, the kernels of a layer, with its weights on the device: where they are streamed,
// when they have come.
template <class Body>
void with_weights(const Step& s, int layer, const Body& body) {
    WeightStream* weights = context_of(s).weights;
    const bool streams = !s.planning && weights != nullptr && weights->has(layer);
    if (streams) weights->before(layer);
    body();
    if (streams) weights->after(layer);
}

// A whole layer: its weights brought to the device where they are streamed, then the entry below.
void layer_with_its_weights(Step& s, const Layer& layer, Rows x, KvLayer kv);

}  // namespace ridge::cuda
