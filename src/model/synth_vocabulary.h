#pragma once

#include <string>

#include "file/gguf_writer.h"

namespace ridge {

// Whose tokenizer a synthetic vocabulary stands in for: its pre-tokenizer, control tokens, their
// ids, and its chat template (a compact one).
enum class SynthVocabulary { kLlama3, kQwen2, kQwen3, kSmolLm2 };

// Writes tokenizer.* of a byte-level BPE vocabulary of n_vocab tokens: the 256 bytes, what the
// merges of a built-in list of words give, made-up words that no merge reaches, and the family's
// control tokens, at their published ids where n_vocab is the published size.
void add_synth_vocabulary(SynthVocabulary family, int n_vocab, GgufWriter& writer);

}  // namespace ridge
