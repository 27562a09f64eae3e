#pragma once

#include <cstdint>
#include <string_view>

namespace ridge {

// For tests: a device that is not there, or that fails.
struct Fault {
    enum Kind : uint8_t {
        kNone,
        kNoDriver,   // "no-driver"
        kBadDriver,  // "bad-driver": one that does not fit what the kernel has of it
        kNoGpu,      // "no-gpu"
        kTooOld,     // "too-old": the one GPU has a compute capability of 7.5
        kNoContext,  // "full": the one GPU has no memory for the driver's own
        kFull,       // "full@N": allocations of device memory fail after the first N
        kLost,       // "lost@N": after N steps a kernel fails, and with it all that comes
    };
    Kind kind = kNone;
    int64_t after = 0;
};

// As written above; Error for anything else.
Fault parse_fault(std::string_view text);
// Of RIDGE_CUDA_FAULT; kNone where it is not set.
Fault fault_from_environment();

}  // namespace ridge
