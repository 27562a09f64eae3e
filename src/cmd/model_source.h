#pragma once

#include <string>

#include "engine/model_source.h"
#include "text/tokenizer.h"

namespace ridge {

// The tokenizer of a model, of a tokenizer.json, or of a folder that holds either.
Tokenizer open_tokenizer(const std::string& model, const std::string& pre);

}  // namespace ridge
