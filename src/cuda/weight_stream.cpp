#include "cuda/weight_stream.h"

#include <algorithm>

#include "base/check.h"
#include "cuda/check.h"
#include "cuda/memory.h"
#include "cuda/ranges.h"

namespace ridge::cuda {

WeightStream::WeightStream(const WeightPlacement& placement,
                           std::array<Buffer, kStreamBuffers> buffers, cudaStream_t computing)
    : buffers_(std::move(buffers)),
      computing_(computing),
      schedule_(static_cast<int>(placement.streamed.size())) {
    for (const WeightPlacement::StreamedLayer& layer : placement.streamed) {
        numbers_.resize(static_cast<size_t>(layer.layer) + 1, -1);
        numbers_.back() = static_cast<int>(layers_.size());
        layers_.push_back({Buffer(), static_cast<size_t>(layer.n_bytes)});
    }
    check(cudaStreamCreateWithFlags(&copying_, cudaStreamNonBlocking), kWhat);
}

WeightStream::~WeightStream() {
    cudaStreamSynchronize(copying_);  // memory is not given back under a copy
    cudaStreamDestroy(copying_);
}

Destination WeightStream::take(int layer, size_t n_bytes) {
    const int number = number_of(layer);
    CHECK(number >= 0);
    Layer& room = layers_[static_cast<size_t>(number)];
    // Pinning takes its time: layer by layer, so that progress can be shown.
    if (room.n_taken == 0) {
        room.pinned = pinned_buffer(room.n_bytes, "pinned memory for streamed layers");
    }
    const size_t at = room.n_taken;
    room.n_taken += n_bytes;
    CHECK(room.n_taken <= room.n_bytes);
    const Buffer& buffer = buffers_[static_cast<size_t>(StreamSchedule::buffer_of(number))];
    return {buffer.data() + at, room.pinned.data() + at};
}

void WeightStream::before(int layer) {
    schedule_.before(number_of(layer), *this);
}

void WeightStream::after(int layer) {
    schedule_.after(number_of(layer), *this);
}

void WeightStream::computed(int buffer) {
    check(cudaEventRecord(computed_[static_cast<size_t>(buffer)].get(), computing_),
          "streaming weights");
}

void WeightStream::copy(int number, int buffer) {
    const auto b = static_cast<size_t>(buffer);
    check(cudaStreamWaitEvent(copying_, computed_[b].get(), 0), "streaming weights");
    start_copy(number, buffer);
    check(cudaEventRecord(copied_[b].get(), copying_), "streaming weights");
}

void WeightStream::wait(int buffer) {
    check(cudaStreamWaitEvent(computing_, copied_[static_cast<size_t>(buffer)].get(), 0),
          "streaming weights");
}

void WeightStream::start_copy(int number, int buffer) {
    const Layer& layer = layers_[static_cast<size_t>(number)];
    check(cudaMemcpyAsync(buffers_[static_cast<size_t>(buffer)].data(), layer.pinned.data(),
                          layer.n_bytes, cudaMemcpyHostToDevice, copying_),
          "streaming weights");
}

double WeightStream::copy_all_seconds(const Event& begin, const Event& end) {
    check(cudaEventRecord(begin.get(), copying_), "measuring the link");
    for (size_t i = 0; i < layers_.size(); i++) {
        const int number = static_cast<int>(i);
        start_copy(number, StreamSchedule::buffer_of(number));
    }
    check(cudaEventRecord(end.get(), copying_), "measuring the link");
    check(cudaEventSynchronize(end.get()), "measuring the link");
    return 1e-3 * elapsed_ms(begin, end, "measuring the link");
}

double WeightStream::measure_gbps() {
    constexpr size_t kPasses = 3;
    check(cudaStreamSynchronize(computing_), "measuring the link");
    schedule_.forget();
    const Event begin("measuring the link", cudaEventDefault),
        end("measuring the link", cudaEventDefault);
    std::array<double, kPasses> seconds{};
    for (double& s : seconds) s = copy_all_seconds(begin, end);
    std::nth_element(seconds.begin(), seconds.begin() + kPasses / 2, seconds.end());
    size_t n_bytes = 0;
    for (const Layer& layer : layers_) n_bytes += layer.n_bytes;
    return 1e-9 * static_cast<double>(n_bytes) / seconds[kPasses / 2];
}

void layer_with_its_weights(Step& s, const ridge::Layer& layer, Rows x, KvLayer kv) {
    const Range range("layer", layer.index);
    with_weights(s, layer.index, [&] { s.tables.layer.below("plain", s, layer, x, kv); });
}

}  // namespace ridge::cuda
