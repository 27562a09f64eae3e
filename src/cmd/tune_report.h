#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cmd/tune_search.h"
#include "engine/tuning_cache.h"

namespace ridge {

// What `tune` found, and how it is shown.

// One case before and after; without a duel where nothing else seemed faster.
struct TunedCase {
    std::string name;
    std::string chosen;                  // of what it was measured for; empty: as it was
    double before_ns = 0, after_ns = 0;  // of a call, medians
    Duel duel;
};
struct TunedCall {
    std::string op, call;
    std::string chosen;  // "ahead_kib 12, grain_kib 64"; empty: as it was
    std::vector<TunedCase> cases;
};

// A case's name for a table: neighbours that are alike once, "8 x d1 of 129".
std::string short_name(const std::string& name);

std::string tune_table(const std::vector<TunedCall>& calls);
// About the model and the machine: the fields that every benchmark's JSON has.
nlohmann::ordered_json tune_json(const std::vector<TunedCall>& calls,
                                 const nlohmann::ordered_json& about);
// What a file holds.
std::string cache_table(const TuningCache& cache, const std::string& path);

}  // namespace ridge
