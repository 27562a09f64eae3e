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

// Milliseconds between two marks that the device has come to; their flags: cudaEventDefault.
inline double elapsed_ms(const Event& begin, const Event& end, std::string_view what) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin.get(), end.get()), what);
    return static_cast<double>(ms);
}

}  // namespace ridge::cuda
