#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/engine.h"

namespace ridge {

// What every benchmark's JSON says of where and when it ran.

// {"cpu", "n_cores", "os"}, and where the model runs on a GPU {"gpu", "driver", "runtime"} and its
// highest clocks.
nlohmann::ordered_json machine_json(const ModelInfo& model = {});
int64_t now_s();  // seconds since 1970
// Of such seconds, in UTC: "2026-11-29", and "2026-11-29T17:53:29Z".
std::string date_of(int64_t time_s);
std::string time_of(int64_t time_s);

}  // namespace ridge
