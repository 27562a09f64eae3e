#pragma once

#include <span>
#include <string_view>

#include "model/tables.h"

namespace ridge::cuda {

// sample on the device: SampleMirror::add where that has not been done, enqueue_sample, and
// SampleMirror::expect. What is drawn is there when the step has ended and SampleMirror::collect
// has been called.
void sample(Step& s, Rows logits, std::span<Sampled> drawn);
std::string_view unfit_for_sample(const Step& s, const Rows& logits,
                                  const std::span<Sampled>& drawn);
// Whether these tables sample such rows so.
bool draws_on_device(const Tables& tables, int64_t n_vocab, std::span<const SampleRow> rows);

// The part that a captured graph can hold: the kernels. What it launches depends on the numbers of
// rows and of tokens, and on SampleMirror::draws_from_all().
void enqueue_sample(Step& s, Rows logits);

}  // namespace ridge::cuda
