#include "cuda/upload.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "cuda/check.h"
#include "cuda/memory.h"

namespace ridge::cuda {

Upload::Upload(ThreadPool& pool, cudaStream_t stream) : pool_(pool), stream_(stream) {
    for (Buffer& staging : staging_) {
        staging = pinned_buffer(kStagingBytes, "pinned memory for uploads");
    }
}

Upload::~Upload() {
    cudaStreamSynchronize(stream_);
}

void Upload::fill_parts(std::byte* out, int64_t first, int64_t n, size_t part_bytes,
                        const Fill& fill) {
    pool_.parallel_for(n, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; i++) {
            fill(first + i, out + static_cast<size_t>(i) * part_bytes);
        }
    });
}

void Upload::parts(Destination to, int64_t n_parts, size_t part_bytes,
                   const std::function<void(int64_t part, std::byte* out)>& fill) {
    CHECK(part_bytes > 0 && part_bytes <= kStagingBytes);
    if (to.host != nullptr) return fill_parts(to.host, 0, n_parts, part_bytes, fill);
    const auto at_once = static_cast<int64_t>(kStagingBytes / part_bytes);
    for (int64_t first = 0; first < n_parts; first += at_once) {
        const int64_t n = std::min(at_once, n_parts - first);
        std::byte* staging = staging_[next_].data();
        check(cudaEventSynchronize(sent_[next_].get()), "upload");
        fill_parts(staging, first, n, part_bytes, fill);
        check(cudaMemcpyAsync(to.device + static_cast<size_t>(first) * part_bytes, staging,
                              static_cast<size_t>(n) * part_bytes, cudaMemcpyHostToDevice, stream_),
              "upload");
        check(cudaEventRecord(sent_[next_].get(), stream_), "upload");
        next_ ^= 1;
    }
}

void Upload::bytes(Destination to, const std::byte* from, size_t n_bytes) {
    constexpr size_t kPart = size_t{1} << 20;
    const auto n_whole = static_cast<int64_t>(n_bytes / kPart);
    parts(to, n_whole, kPart, [&](int64_t part, std::byte* out) {
        std::memcpy(out, from + static_cast<size_t>(part) * kPart, kPart);
    });
    const size_t done = static_cast<size_t>(n_whole) * kPart;
    if (done == n_bytes) return;
    parts(to + done, 1, n_bytes - done,
          [&](int64_t, std::byte* out) { std::memcpy(out, from + done, n_bytes - done); });
}

void Upload::wait() {
    check(cudaStreamSynchronize(stream_), "upload");
}

}  // namespace ridge::cuda
