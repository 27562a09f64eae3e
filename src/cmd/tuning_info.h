#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/engine.h"

namespace ridge {

// Which choices of `ridge tune` a model ran with: {"time", "n_choices", "n_changes"}, null where
// there were none.
nlohmann::ordered_json tuning_json(const TuningInfo& tuning);
// For lines that people read: "tuned 2026-11-30T14:05:11Z"; empty where there were none.
std::string tuning_text(const TuningInfo& tuning);

}  // namespace ridge
