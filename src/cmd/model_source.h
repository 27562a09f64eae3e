#pragma once

#include <string>
#include <vector>

#include "file/model_file.h"
#include "text/token.h"
#include "text/tokenizer.h"

namespace ridge {

// What -m names, for commands that look at a model without running it.

bool is_synth(const std::string& model);  // synth:NAME:FORMAT

// The file or folder; for synth:NAME:FORMAT its header in memory, with weights that are zero.
ModelFile open_model_file(const std::string& model);

// Of a model, a tokenizer.json, or a folder that holds either.
Tokenizer open_tokenizer(const std::string& model, const std::string& pre);

bool has_tokenizer(const ModelFile& file);
// Ids that end an answer, as a model without a tokenizer still names them.
std::vector<Token> bare_end_tokens(const ModelFile& file);

}  // namespace ridge
