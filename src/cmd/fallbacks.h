#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "engine/engine.h"

namespace ridge {

// Kernels below the chosen checkpoint that ran in place of its own.

// "attn_in by ops, attention by plain: d_head is not a multiple of 16"; empty of none.
std::string fallbacks_text(std::span<const Fallback> fallbacks);
// [{"op": "attention", "ran": "plain", "skipped": "prefill_attention", "reason": "..."}]
nlohmann::ordered_json fallbacks_json(std::span<const Fallback> fallbacks);

}  // namespace ridge
