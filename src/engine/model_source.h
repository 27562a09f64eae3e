#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "file/model_file.h"
#include "text/token.h"

namespace ridge {

// What -m names: a GGUF file, a folder with safetensors, or synth:NAME:FORMAT.

bool is_synth(const std::string& model);

ModelFile open_model_file(const std::string& model, uint64_t synth_seed,
                          const std::function<void(double share)>& progress = {});

// For those who only look: of a synth model the header alone is made, and its weights are zero.
ModelFile open_model_header(const std::string& model);

bool holds_tokenizer(const ModelFile& file);
// Ids that end an answer, as a model without a tokenizer still names them.
std::vector<Token> bare_end_tokens(const ModelFile& file, int64_t n_vocab);

}  // namespace ridge
