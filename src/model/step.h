#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/rope_table.h"
#include "model/rows.h"
#include "model/tables.h"

namespace ridge {

// Memory for the intermediates of a step. It is planned by a dry run of the tables at the largest
// batch and never grows afterwards. Three regions: one for what lives through the whole step, and
// two that neighbouring stages use in turns, since they may overlap on a GPU.
class Scratch {
  public:
    static constexpr int kRegions = 3;
    static constexpr size_t kAlignBytes = 256;

    // After a dry run: bytes of all regions together.
    size_t planned_bytes() const;
    // Gives the planned regions their place in one buffer of at least planned_bytes().
    void place(const Buffer& buffer);

    void begin_step();
    void begin_stage();
    void end_stage();
    Rows take(int64_t n_rows, int64_t n_cols, DType dtype);

  private:
    const Buffer* buffer_ = nullptr;  // null while planning
    size_t used_[kRegions] = {}, peak_[kRegions] = {}, base_[kRegions] = {};
    int region_ = 0;      // 0 outside stages
    int last_stage_ = 2;  // region of the stage that ran last: 1 or 2
};

// What a node may use while a step runs.
struct Step {
    const Tables& tables;
    const Ops& ops;
    const Stages& stages;
    const Config& config;
    const RopeTable& rope_table;
    const Batch& batch;
    Scratch& memory;
    ThreadPool& pool;
    bool planning = false;  // a dry run: take scratch, compute nothing

    Rows scratch(int64_t n_rows, int64_t n_cols, DType dtype = DType::kF32) {
        return memory.take(n_rows, n_cols, dtype);
    }
};

}  // namespace ridge
