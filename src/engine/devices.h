#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "model/backend.h"

namespace ridge {

// The device that OpenOptions::device names: "cpu", "cuda:1", "cuda" for the first, "auto". Error
// where there is no such device, or it cannot run Ridge.
struct OpenedDevice {
    std::unique_ptr<Backend> backend;
    std::string reason;  // why "auto" chose it; empty where it was named
};
OpenedDevice open_device(const OpenOptions& options);

}  // namespace ridge
