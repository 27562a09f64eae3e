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

Buffer on_device(int64_t n_bytes) {
    return device_buffer(static_cast<size_t>(n_bytes), "memory for sampling");
}

int64_t row_bytes(int64_t n_rows, int64_t n_words) {
    return n_rows * static_cast<int64_t>(sizeof(RowDraw)) +
           n_words * static_cast<int64_t>(sizeof(int32_t));
}

}  // namespace

SampleMirror::SampleMirror(int64_t n_rows, cudaStream_t stream)
    : n_rows_(std::max<int64_t>(n_rows, 1)),
      n_words_(n_rows_ * kWordsOfRow),
      fixed_(on_device(static_cast<int64_t>(sizeof(DrawnPlace)) +
                       n_rows_ * static_cast<int64_t>(sizeof(Token) + sizeof(int32_t)))),
      rows_(on_device(row_bytes(n_rows_, n_words_))) {
    check(cudaMemsetAsync(fixed_.data(), 0, fixed_.n_bytes(), stream), "sampling");
}

void SampleMirror::begin_step(int slot) {
    slot_ = slot;
    is_added_ = is_drawn_by_step_ = draws_from_all_ = false;
    slots_[static_cast<size_t>(slot)].expected = {};
}

bool SampleMirror::add(std::span<const SampleRow> rows, int64_t n_vocab, Packet& packet,
                       cudaStream_t stream) {
    const SampleNeeds needs = sample_needs(rows);
    CHECK(needs.n_rows <= n_rows_);
    const bool moves = needs.n_words() > n_words_;
    if (moves) {
        check(cudaStreamSynchronize(stream), "sampling");
        const int64_t n_words = std::max(needs.n_words(), 2 * n_words_);
        rows_ = on_device(row_bytes(n_rows_, n_words));
        n_words_ = n_words;
    }
    Slot& slot = slots_[static_cast<size_t>(slot_)];
    if (needs.n_top > slot.n_top || slot.pinned.n_bytes() == 0) {
        Slot larger;
        larger.n_top = std::max(needs.n_top, kTopOfRow);
        larger.pinned = pinned_buffer(static_cast<size_t>(n_rows_ * larger.stride()),
                                      "pinned memory for what is drawn");
        slot.n_top = larger.n_top, slot.pinned = std::move(larger.pinned);
    }
    auto* draws = reinterpret_cast<RowDraw*>(rows_.data());
    auto* words = reinterpret_cast<int32_t*>(draws + n_rows_);
    *packet.add(reinterpret_cast<DrawnPlace*>(fixed_.data()), 1) = {slot.pinned.data(),
                                                                    slot.stride()};
    write_draws(rows, n_vocab, packet.add(draws, needs.n_rows));
    if (needs.n_biases > 0) write_biases(rows, packet.add(words, needs.n_biases));
    if (needs.n_history > 0) {
        write_histories(rows, packet.add_tokens(words + needs.n_biases, needs.n_history));
    }
    draws_from_all_ = std::any_of(rows.begin(), rows.end(), [](const SampleRow& row) {
        return cuda::draws_from_all(*row.params);
    });
    is_added_ = true;
    return moves;
}

SamplePlaces SampleMirror::places() const {
    SamplePlaces places{};
    places.draws = reinterpret_cast<const RowDraw*>(rows_.data());
    places.words = reinterpret_cast<const int32_t*>(places.draws + n_rows_);
    places.drawn = reinterpret_cast<const DrawnPlace*>(fixed_.data());
    places.tokens = reinterpret_cast<Token*>(fixed_.data() + sizeof(DrawnPlace));
    places.arrivals = reinterpret_cast<int32_t*>(places.tokens + n_rows_);
    return places;
}

void SampleMirror::expect(std::span<const SampleRow> rows, std::span<Sampled> drawn) {
    CHECK(rows.size() == drawn.size() && static_cast<int64_t>(rows.size()) <= n_rows_);
    Slot& slot = slots_[static_cast<size_t>(slot_)];
    slot.expected = drawn;
    slot.positions.clear();
    for (const SampleRow& row : rows) slot.positions.push_back(row.position);
}

void SampleMirror::collect(int slot) {
    Slot& of_step = slots_[static_cast<size_t>(slot)];
    const std::span<Sampled> expected = std::exchange(of_step.expected, {});
    const std::byte* at = of_step.pinned.data();
    for (size_t i = 0; i < expected.size(); i++, at += of_step.stride()) {
        expected[i] = sampled_of(*reinterpret_cast<const DrawnRow*>(at), of_step.positions[i]);
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
