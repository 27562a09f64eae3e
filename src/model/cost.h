#pragma once

#include <cstdint>

#include "model/config.h"
#include "model/kv_cache.h"
#include "model/rows.h"
#include "model/weights.h"

namespace ridge {

// Bytes of weights that one decode step reads: every matrix and vector once, of the embedding one
// row (all of it where it is the LM head too).
int64_t decode_weight_bytes(const Config& config, const Weights& weights);

// The same of prepared weights as they lie in memory: more or fewer than the file has.
int64_t decode_memory_bytes(const Config& config, const Weights& weights);

// Bytes of all weights as stored, a tied head once.
int64_t total_weight_bytes(const Config& config, const Weights& weights);

// Parameters, a tied head once.
int64_t n_parameters(const Config& config, const Weights& weights);

}  // namespace ridge
