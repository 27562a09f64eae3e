#pragma once

#include <span>

#include "model/tables.h"

namespace ridge::cpu {

// drawn[i] from logits[i] as batch.sample_rows[i] says: the tokens that ref::sample draws, in
// passes over maxima of blocks of logits instead of over logits.
void sample(Step& s, Rows logits, std::span<Sampled> drawn);

}  // namespace ridge::cpu
