#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/context.h"
#include "model/batch.h"
#include "model/rope_table.h"
#include "model/rows.h"

namespace ridge::cuda {

// Keeps a batch's data at fixed device addresses (Mirror). All of a step's travels in one copy out
// of pinned memory.
class BatchMirror {
  public:
    BatchMirror() = default;
    // Room for batches of n_rows rows, and page tables of n_pages pages together.
    BatchMirror(int64_t n_rows, int64_t n_pages, const RopeTable& rope, cudaStream_t stream);

    Mirror mirror() const { return device_; }
    // After the step that used the batch before has ended.
    void send(const Batch& batch, cudaStream_t stream);

  private:
    Mirror place(std::byte* base) const;

    int64_t n_rows_ = 0, n_pages_ = 0, n_frequencies_ = 0;
    Buffer pinned_, memory_;
    Mirror host_{}, device_{};
};

}  // namespace ridge::cuda
