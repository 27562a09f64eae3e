#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "cmd/step_profile.h"

namespace ridge {

// What every JSON of a traced step says in the same words.

nlohmann::ordered_json matrices_json(std::span<const NodeGroup::Matrix> matrices);
nlohmann::ordered_json bytes_json(const Work& work);  // weights, kv, activations

}  // namespace ridge
