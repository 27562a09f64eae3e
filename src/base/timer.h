#pragma once

#include <chrono>
#include <cstdint>

namespace ridge {

// The monotonic clock, from a beginning that is the same for all threads of the process.
inline int64_t monotonic_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// Time since construction or the last restart, on the monotonic clock.
class Timer {
  public:
    void restart() { start_ = Clock::now(); }
    int64_t elapsed_ns() const {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
    }
    double elapsed_ms() const { return static_cast<double>(elapsed_ns()) * 1e-6; }

  private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point start_ = Clock::now();
};

}  // namespace ridge
