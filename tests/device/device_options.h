#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include "engine/engine.h"

namespace ridge {

// A small model in memory, on the device that RIDGE_TEST_DEVICE names.
inline OpenOptions synth_options(const std::string& format, int64_t n_ctx,
                                 const std::string& checkpoint = {}) {
    OpenOptions options;
    options.model = "synth:smollm2-135m:" + format;
    const char* device = std::getenv("RIDGE_TEST_DEVICE");
    options.device = device == nullptr ? "cuda:0" : device;
    options.n_ctx = n_ctx;
    options.checkpoint = checkpoint;
    return options;
}

}  // namespace ridge
