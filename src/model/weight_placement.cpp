#include "model/weight_placement.h"

#include <algorithm>
#include <numeric>

namespace ridge {
namespace {

// n_streamed layers, at even distances.
WeightPlacement placement_of(std::span<const int64_t> layer_bytes, int64_t other_bytes,
                             int64_t n_streamed) {
    WeightPlacement placement;
    const auto n_layers = static_cast<int64_t>(layer_bytes.size());
    placement.resident_bytes = std::accumulate(layer_bytes.begin(), layer_bytes.end(), other_bytes);
    for (int64_t i = 0; i < n_streamed; i++) {
        const int64_t layer = i * n_layers / n_streamed;
        const int64_t n_bytes = layer_bytes[static_cast<size_t>(layer)];
        placement.streamed.push_back({static_cast<int>(layer), n_bytes});
        placement.resident_bytes -= n_bytes, placement.streamed_bytes += n_bytes;
        placement.buffer_bytes = std::max(placement.buffer_bytes, n_bytes);
    }
    return placement;
}

}  // namespace

// A layer that has a buffer for itself stays there.
int64_t WeightPlacement::bytes_a_step() const {
    int64_t n = 0;
    for (size_t i = 0; i < streamed.size(); i++) {
        if (i >= kStreamBuffers || i + kStreamBuffers < streamed.size()) n += streamed[i].n_bytes;
    }
    return n;
}

WeightPlacement place_weights(std::span<const int64_t> layer_bytes, int64_t other_bytes,
                              int64_t room_bytes, bool stream_all) {
    const auto n_layers = static_cast<int64_t>(layer_bytes.size());
    auto of = [&](int64_t n) { return placement_of(layer_bytes, other_bytes, n); };
    if (stream_all) return of(n_layers);
    if (WeightPlacement all_stay = of(0); all_stay.device_bytes() <= room_bytes) return all_stay;
    // As many layers as there are buffers might as well stay.
    for (int64_t n = kStreamBuffers + 2; n < n_layers; n += 2) {
        if (WeightPlacement some = of(n); some.device_bytes() <= room_bytes) return some;
    }
    return of(n_layers);
}

}  // namespace ridge
