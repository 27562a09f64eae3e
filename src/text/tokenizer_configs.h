#pragma once

#include "base/json.h"

namespace ridge {

// The JSON files beside a tokenizer.json; null where there is none.
struct TokenizerConfigs {
    const Json* tokenizer_config = nullptr;
    const Json* generation_config = nullptr;
    const Json* config = nullptr;
};

}  // namespace ridge
