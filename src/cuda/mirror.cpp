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

// Pages up to the one of the span's last position.
int64_t n_pages_of(const Batch& batch, const SequenceSpan& span) {
    const std::span<const int32_t> positions = batch.positions.subspan(
        static_cast<size_t>(span.first_row), static_cast<size_t>(span.n_rows));
    int32_t last = -1;
    for (int32_t position : positions) last = std::max(last, position);
    return kv_pages_of(last + 1);
}

}  // namespace

BatchMirror::BatchMirror(int64_t n_rows, int64_t n_pages, const RopeTable& rope,
                         cudaStream_t stream)
    : n_rows_(n_rows), n_pages_(n_pages) {
    const auto n_frequencies = static_cast<int64_t>(rope.frequency.size());
    Places sizes(nullptr);
    place_mirror(sizes, n_rows, n_pages, n_frequencies);
    memory_ = device_buffer(static_cast<size_t>(sizes.used()), "memory for batches");
    Places places(memory_.data());
    device_ = place_mirror(places, n_rows, n_pages, n_frequencies);
    check(cudaMemcpyAsync(device_.rope_frequency, rope.frequency.data(),
                          rope.frequency.size() * sizeof(double), cudaMemcpyHostToDevice, stream),
          "sending RoPE's frequencies");
}

void BatchMirror::add(const Batch& batch, Packet& packet) const {
    const auto n_rows = static_cast<int64_t>(batch.n_rows()),
               n_spans = static_cast<int64_t>(batch.spans.size()),
               n_logit_rows = static_cast<int64_t>(batch.logit_rows.size());
    CHECK(n_rows <= n_rows_ && n_spans <= n_rows_ && n_logit_rows <= n_rows_);
    const auto copy = [](auto from, auto* to) { std::copy(from.begin(), from.end(), to); };
    copy(batch.tokens, packet.add_tokens(device_.tokens, n_rows));
    copy(batch.positions, packet.add(device_.positions, n_rows));
    copy(batch.slots, packet.add(device_.slots, n_rows));
    copy(batch.logit_rows, packet.add(device_.logit_rows, n_logit_rows));
    int32_t* sequence_of_row = packet.add(device_.sequence_of_row, n_rows);
    for (size_t i = 0; i < batch.spans.size(); i++) {
        const SequenceSpan& span = batch.spans[i];
        std::fill_n(sequence_of_row + span.first_row, span.n_rows, static_cast<int32_t>(i));
    }
    Sequence* sequence = packet.add(device_.sequences, n_spans);
    int64_t n_pages = 0;
    for (const SequenceSpan& span : batch.spans) {
        *sequence = {span.first_row, span.n_rows, -1, 0};
        if (span.kv.page_table == nullptr) {
            sequence->base_page = static_cast<int32_t>(span.kv.page(0));
        } else {
            sequence->pages = static_cast<int32_t>(n_pages);
            n_pages += n_pages_of(batch, span);
        }
        sequence++;
    }
    CHECK(n_pages <= n_pages_);
    int32_t* pages = packet.add(device_.pages, n_pages);
    for (const SequenceSpan& span : batch.spans) {
        if (span.kv.page_table == nullptr) continue;
        pages = std::copy_n(span.kv.page_table, n_pages_of(batch, span), pages);
    }
}

}  // namespace ridge::cuda
