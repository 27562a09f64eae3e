#include "cuda/sample_mirror.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "cuda/check.h"
#include "cuda/memory.h"

namespace ridge::cuda {
namespace {

// Of a row, to begin with.
constexpr int64_t kWordsOfRow = 256;
constexpr int kTopOfRow = 20;

Buffer pinned(int64_t n_bytes) {
    return pinned_buffer(static_cast<size_t>(n_bytes), "pinned memory for sampling");
}
Buffer on_device(int64_t n_bytes) {
    return device_buffer(static_cast<size_t>(n_bytes), "memory for sampling");
}

}  // namespace

SampleMirror::SampleMirror(int64_t n_rows, cudaStream_t stream)
    : n_rows_(std::max<int64_t>(n_rows, 1)),
      n_words_(n_rows_ * kWordsOfRow),
      n_top_(kTopOfRow),
      arrivals_(on_device(n_rows_ * static_cast<int64_t>(sizeof(int32_t)))) {
    check(cudaMemsetAsync(arrivals_.data(), 0, arrivals_.n_bytes(), stream), "sampling");
    allocate();
}

void SampleMirror::allocate() {
    const int64_t n_bytes = n_rows_ * static_cast<int64_t>(sizeof(RowDraw)) +
                            n_words_ * static_cast<int64_t>(sizeof(int32_t));
    if (static_cast<int64_t>(rows_.n_bytes()) != n_bytes) {
        pinned_rows_ = pinned(n_bytes), rows_ = on_device(n_bytes);
    }
    const int64_t drawn_bytes = n_rows_ * places().drawn_stride;
    if (static_cast<int64_t>(drawn_.n_bytes()) != drawn_bytes) {
        pinned_drawn_ = pinned(drawn_bytes), drawn_ = on_device(drawn_bytes);
    }
}

bool SampleMirror::reserve(const SampleNeeds& needs) {
    CHECK(needs.n_rows <= n_rows_);
    if (needs.n_words <= n_words_ && needs.n_top <= n_top_) return false;
    if (needs.n_words > n_words_) n_words_ = std::max(needs.n_words, 2 * n_words_);
    n_top_ = std::max(n_top_, needs.n_top);
    allocate();
    return true;
}

bool SampleMirror::send(std::span<const SampleRow> rows, int64_t n_vocab, cudaStream_t stream) {
    const SampleNeeds needs = sample_needs(rows);
    const bool has_moved = reserve(needs);
    auto* draws = reinterpret_cast<RowDraw*>(pinned_rows_.data());
    auto* words = reinterpret_cast<int32_t*>(draws + n_rows_);
    write_sample_rows(rows, n_vocab, draws, words);
    draws_from_all_ = std::any_of(rows.begin(), rows.end(), [](const SampleRow& row) {
        return cuda::draws_from_all(*row.params);
    });
    const auto n_bytes = static_cast<size_t>(reinterpret_cast<std::byte*>(words + needs.n_words) -
                                             pinned_rows_.data());
    check(
        cudaMemcpyAsync(rows_.data(), pinned_rows_.data(), n_bytes, cudaMemcpyHostToDevice, stream),
        "sending how rows are drawn");
    return has_moved;
}

SamplePlaces SampleMirror::places() const {
    SamplePlaces places{};
    places.draws = reinterpret_cast<const RowDraw*>(rows_.data());
    places.words = reinterpret_cast<const int32_t*>(places.draws + n_rows_);
    places.arrivals = reinterpret_cast<int32_t*>(arrivals_.data());
    places.drawn = drawn_.data();
    places.drawn_stride = static_cast<int64_t>(sizeof(DrawnRow)) +
                          n_top_ * static_cast<int64_t>(sizeof(TokenLogprob));
    return places;
}

void SampleMirror::fetch(int64_t n_rows, cudaStream_t stream) {
    CHECK(n_rows <= n_rows_);
    check(cudaMemcpyAsync(pinned_drawn_.data(), drawn_.data(),
                          static_cast<size_t>(n_rows * places().drawn_stride),
                          cudaMemcpyDeviceToHost, stream),
          "reading what was drawn");
}

void SampleMirror::collect(std::span<const SampleRow> rows, std::span<Sampled> drawn) const {
    CHECK(rows.size() == drawn.size() && static_cast<int64_t>(rows.size()) <= n_rows_);
    const std::byte* at = pinned_drawn_.data();
    for (size_t i = 0; i < rows.size(); i++, at += places().drawn_stride) {
        drawn[i] = sampled_of(*reinterpret_cast<const DrawnRow*>(at), rows[i].position);
    }
}

Sampled sampled_of(const DrawnRow& row, int64_t position) {
    switch (row.status) {
        case DrawnRow::kNan:
            throw Error("position {}: the logits hold NaN, expected finite numbers", position);
        case DrawnRow::kInfinite:
            throw Error("position {}: the logit of token {} is +inf, expected finite numbers",
                        position, row.token);
        case DrawnRow::kNothing:
            throw Error("position {}: all logits are -inf, expected a finite one", position);
        case DrawnRow::kToken:
            break;
    }
    return {row.token, row.logprob, {row.top(), row.top() + row.n_top}};
}

}  // namespace ridge::cuda
