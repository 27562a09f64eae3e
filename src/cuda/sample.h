#pragma once

#include <string_view>

#include "model/tables.h"

namespace ridge::cuda {

// sample on the device: SampleMirror::send, enqueue_sample, the end of the stream, then
// SampleMirror::collect.
void sample(Step& s, Rows logits, std::span<Sampled> drawn);
std::string_view unfit_for_sample(const Step& s, const Rows& logits,
                                  const std::span<Sampled>& drawn);

// The part that a captured graph can hold: the kernels, and the copy of what was drawn to pinned
// memory. What it launches depends on the numbers of rows and of tokens, and on
// SampleMirror::draws_from_all().
void enqueue_sample(Step& s, Rows logits);

}  // namespace ridge::cuda
