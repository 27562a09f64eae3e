#pragma once

#include "engine/engine.h"
#include "model/ceiling.h"

namespace ridge {

// A device without a model, and what it can do (Backend::measure_ceilings). `device` has what
// describes the device: its name, GPU, threads and instruction set.
struct DeviceCeilings {
    ModelInfo device;
    Ceilings ceilings;
};
DeviceCeilings measure_device_ceilings(const OpenOptions& options, const CeilingEvents& events);

}  // namespace ridge
