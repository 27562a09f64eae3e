#include "cmd/tuning_info.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/printable.h"

namespace ridge {

nlohmann::ordered_json tuning_json(const TuningInfo& tuning) {
    if (tuning.n_choices == 0) return {};
    Json json;
    json["time"] = tuning.time;
    json["n_choices"] = tuning.n_choices;
    json["n_changes"] = tuning.n_changes;
    return json;
}

std::string tuning_text(const TuningInfo& tuning) {
    if (tuning.n_choices == 0) return {};
    return fmt::format("tuned {}", printable(tuning.time, 40));
}

}  // namespace ridge
