#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "cuda/check.h"

namespace ridge::cuda {

// A mark in a stream. `what` names it in errors.
class Event {
  public:
    explicit Event(std::string_view what = "event", unsigned flags = cudaEventDisableTiming) {
        check(cudaEventCreateWithFlags(&event_, flags), what);
    }
    ~Event() { cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    cudaEvent_t get() const { return event_; }

  private:
    cudaEvent_t event_ = nullptr;
};

}  // namespace ridge::cuda
