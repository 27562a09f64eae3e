#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "model/backend.h"

namespace ridge {

// The device that OpenOptions::device names: "cpu", "cuda:1", "cuda" for the first, "auto". Error
// where there is no such device, or it cannot run Ridge.
struct OpenedDevice {
    std::unique_ptr<Backend> backend;
    // Of how "auto" chose: the GPU, or why there is one that is not used; else empty.
    std::string reason;
};
OpenedDevice open_device(const OpenOptions& options);

// The number behind "cuda:"; 0 for "cuda" alone; none for anything else.
std::optional<int> cuda_index(std::string_view device);

}  // namespace ridge
