#include "cuda/mirror.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked_math.h"
#include "cuda/check.h"
#include "cuda/memory.h"

namespace ridge::cuda {
namespace {

// Arrays one behind the other, each aligned for any of their types.
class Places {
  public:
    explicit Places(std::byte* base) : base_(base) {}
    template <class T>
    T* take(int64_t n) {
        std::byte* at = base_ + used_;
        used_ += round_up(n * static_cast<int64_t>(sizeof(T)), 256);
        return reinterpret_cast<T*>(at);
    }
    int64_t used() const { return used_; }

  private:
    std::byte* base_;
    int64_t used_ = 0;
};

Mirror place_mirror(Places& places, int64_t n_rows, int64_t n_pages, int64_t n_frequencies) {
    Mirror m{};
    m.tokens = places.take<Token>(n_rows);
    m.positions = places.take<int32_t>(n_rows);
    m.slots = places.take<int64_t>(n_rows);
    m.sequence_of_row = places.take<int32_t>(n_rows);
    m.sequences = places.take<Sequence>(n_rows);
    m.logit_rows = places.take<int32_t>(n_rows);
    m.pages = places.take<int32_t>(n_pages);
    m.rope_frequency = places.take<double>(n_frequencies);
    return m;
}

}  // namespace

Mirror BatchMirror::place(std::byte* base) const {
    Places places(base);
    return place_mirror(places, n_rows_, n_pages_, n_frequencies_);
}

BatchMirror::BatchMirror(int64_t n_rows, int64_t n_pages, const RopeTable& rope,
                         cudaStream_t stream)
    : n_rows_(n_rows),
      n_pages_(n_pages),
      n_frequencies_(static_cast<int64_t>(rope.frequency.size())) {
    Places places(nullptr);
    place_mirror(places, n_rows_, n_pages_, n_frequencies_);
    const auto n_bytes = static_cast<size_t>(places.used());
    pinned_ = pinned_buffer(n_bytes, "pinned memory for batches");
    memory_ = device_buffer(n_bytes, "memory for batches");
    host_ = place(pinned_.data()), device_ = place(memory_.data());
    std::copy(rope.frequency.begin(), rope.frequency.end(), host_.rope_frequency);
    check(cudaMemcpyAsync(memory_.data(), pinned_.data(), n_bytes, cudaMemcpyHostToDevice, stream),
          "sending RoPE's frequencies");
}

void BatchMirror::send(const Batch& batch, cudaStream_t stream) {
    CHECK(batch.n_rows() <= n_rows_ && static_cast<int64_t>(batch.spans.size()) <= n_rows_ &&
          static_cast<int64_t>(batch.logit_rows.size()) <= n_rows_);
    std::copy(batch.tokens.begin(), batch.tokens.end(), host_.tokens);
    std::copy(batch.positions.begin(), batch.positions.end(), host_.positions);
    std::copy(batch.slots.begin(), batch.slots.end(), host_.slots);
    std::copy(batch.logit_rows.begin(), batch.logit_rows.end(), host_.logit_rows);
    int64_t n_pages = 0;
    for (size_t i = 0; i < batch.spans.size(); i++) {
        const SequenceSpan& span = batch.spans[i];
        Sequence& sequence = host_.sequences[i];
        sequence = {span.first_row, span.n_rows, -1, 0};
        int32_t last = -1;
        for (int32_t row = span.first_row; row < span.first_row + span.n_rows; row++) {
            host_.sequence_of_row[row] = static_cast<int32_t>(i);
            last = std::max(last, batch.positions[static_cast<size_t>(row)]);
        }
        if (span.kv.page_table == nullptr) {
            sequence.base_page = static_cast<int32_t>(span.kv.page(0));
            continue;
        }
        const int64_t n = kv_pages_of(last + 1);
        CHECK(n_pages + n <= n_pages_);
        sequence.pages = static_cast<int32_t>(n_pages);
        std::copy(span.kv.page_table, span.kv.page_table + n, host_.pages + n_pages);
        n_pages += n;
    }
    // Everything up to the last page in use; what is constant lies behind.
    const auto n_bytes =
        static_cast<size_t>(reinterpret_cast<std::byte*>(host_.pages + n_pages) - pinned_.data());
    check(cudaMemcpyAsync(memory_.data(), pinned_.data(), n_bytes, cudaMemcpyHostToDevice, stream),
          "sending a batch");
}

}  // namespace ridge::cuda
