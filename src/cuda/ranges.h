#pragma once

#include <cstdint>

namespace ridge::cuda {

// Names of what the host is about, for Nsight Systems (NVTX). Within each other; where no tool
// listens they cost a call through a pointer. Of a captured step they are seen as it is captured.
void begin_range(const char* name);
void end_range();

class Range {
  public:
    explicit Range(const char* name) { begin_range(name); }
    Range(const char* what, int64_t number);  // "layer 12"
    ~Range() { end_range(); }
    Range(const Range&) = delete;
};

}  // namespace ridge::cuda
