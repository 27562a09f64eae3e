#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/engine.h"

namespace ridge {

// The "model" of the objects that --json prints: what ran, and where.
nlohmann::ordered_json model_json(const ModelInfo& info);

}  // namespace ridge
