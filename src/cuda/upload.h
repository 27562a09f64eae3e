#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <functional>

#include "base/thread_pool.h"
#include "cuda/event.h"
#include "model/rows.h"

namespace ridge::cuda {

// Where a weight goes.
struct Destination {
    std::byte* device = nullptr;
    // Null: it is brought there at once. Else it is left here, in the host's memory.
    std::byte* host = nullptr;

    Destination operator+(size_t n_bytes) const {
        return {device + n_bytes, host == nullptr ? nullptr : host + n_bytes};
    }
};

// Carries bytes to the device through two pinned buffers in turns: while one is on its way the
// other is filled, by all threads.
class Upload {
  public:
    static constexpr size_t kStagingBytes = size_t{32} << 20;  // of each of the two

    Upload(ThreadPool& pool, cudaStream_t stream);
    ~Upload();
    Upload(const Upload&) = delete;

    // n_parts parts of part_bytes each (at most kStagingBytes), one behind the other at `to`, made
    // by fill(part, out), which threads call at once.
    void parts(Destination to, int64_t n_parts, size_t part_bytes,
               const std::function<void(int64_t part, std::byte* out)>& fill);
    // A run of bytes as it lies in host memory.
    void bytes(Destination to, const std::byte* from, size_t n_bytes);
    void wait();  // until all has arrived

  private:
    using Fill = std::function<void(int64_t part, std::byte* out)>;
    void fill_parts(std::byte* out, int64_t first, int64_t n, size_t part_bytes, const Fill& fill);

    ThreadPool& pool_;
    cudaStream_t stream_;
    std::array<Buffer, 2> staging_;
    std::array<Event, 2> sent_{Event("event of an upload"), Event("event of an upload")};
    size_t next_ = 0;
};

}  // namespace ridge::cuda
