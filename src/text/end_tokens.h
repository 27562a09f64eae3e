#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/token.h"

namespace ridge {

// Adds eos_token_id of a config.json or generation_config.json: an id or a list of ids. Nothing
// where the file (`config` null) or the key is absent; Error, beginning with `where`, for an id
// that is no token of the vocabulary.
void add_eos_token_ids(const Json* config, const std::string& where, int64_t n_vocab,
                       std::vector<Token>& ids);

}  // namespace ridge
