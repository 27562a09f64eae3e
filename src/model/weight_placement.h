#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ridge {

// Buffers of the device's memory that streamed layers use in turns: while one is computed from, the
// other is filled.
constexpr int kStreamBuffers = 2;

// Where a model's weights lie on a device with memory of its own. Those of streamed layers lie in
// the host's, and come to the device each time before the layer is computed.
struct WeightPlacement {
    struct StreamedLayer {
        int layer = 0;
        int64_t n_bytes = 0;  // of its weights
    };
    std::vector<StreamedLayer> streamed;  // ascending; number i goes through buffer i mod 2
    int64_t resident_bytes = 0;           // of weights that stay in the device's memory
    int64_t streamed_bytes = 0;           // of all streamed layers together
    int64_t buffer_bytes = 0;             // of each buffer: the largest streamed layer

    int64_t device_bytes() const { return resident_bytes + kStreamBuffers * buffer_bytes; }
    int64_t bytes_a_step() const;  // that come to the device
};

// Keeps as many layers in room_bytes of the device's memory as fit beside other_bytes, which always
// stay: embedding, head and norms. Streamed layers stand at even distances among the others, so
// that computing those gives copies time; and their number is even if it can be, so that the last
// one of a step and the first of the next use different buffers. `stream_all`: no layer stays.
// Where nothing fits, all layers are streamed, and device_bytes() tells how much room that would
// want.
WeightPlacement place_weights(std::span<const int64_t> layer_bytes, int64_t other_bytes,
                              int64_t room_bytes, bool stream_all);

}  // namespace ridge
