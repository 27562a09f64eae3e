#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/context.h"
#include "cuda/packet.h"
#include "model/batch.h"
#include "model/rope_table.h"
#include "model/rows.h"

namespace ridge::cuda {

// Keeps a batch's data at fixed device addresses (Mirror).
class BatchMirror {
  public:
    BatchMirror() = default;
    // Room for batches of n_rows rows, and page tables of n_pages pages together.
    BatchMirror(int64_t n_rows, int64_t n_pages, const RopeTable& rope, cudaStream_t stream);

    Mirror mirror() const { return device_; }
    // Puts the batch in the packet that brings it there.
    void add(const Batch& batch, Packet& packet) const;

  private:
    int64_t n_rows_ = 0, n_pages_ = 0;
    Buffer memory_;
    Mirror device_{};
};

}  // namespace ridge::cuda
