#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/rope_table.h"
#include "model/rows.h"
#include "model/tables.h"

namespace ridge {

// Memory for the intermediates of a step. It is planned by a dry run of the tables at the largest
// batch and never grows afterwards. Three regions: one for what lives through the step or a layer,
// and two that neighbouring stages use in turns, since they may overlap on a GPU.
class Scratch {
  public:
    static constexpr int kRegions = 3;
    static constexpr size_t kAlignBytes = 256;

    size_t planned_bytes() const;  // after a dry run: of all regions together
    void place(
        const Buffer& buffer);  // of at least planned_bytes(): the regions get their addresses
    void begin_step();
    Rows take(int64_t n_rows, int64_t n_cols, DType dtype);

    // For tests, before the dry run: so many bytes more behind each room, NaN in any type. Whether
    // something was written there since the step began is found as rooms are given back.
    void set_guard_bytes(size_t n_bytes) { guard_bytes_ = n_bytes; }
    bool is_overrun();

  private:
    friend class LayerScope;
    friend class StageScope;
    friend class ScratchScope;

    struct Guard {
        int region;
        size_t begin, end;  // in the region
    };
    void give_back(int region, size_t used) {
        used_[region] = used;
        if (!guards_.empty()) check_guards(region, used);
    }
    void check_guards(int region, size_t used);

    const Buffer* buffer_ = nullptr;  // null while planning
    size_t used_[kRegions] = {}, peak_[kRegions] = {}, base_[kRegions] = {};
    int region_ = 0;      // 0 outside stages
    int last_stage_ = 2;  // the region of the stage that ran last: 1 or 2
    size_t guard_bytes_ = 0;
    std::vector<Guard> guards_;  // of rooms in use
    bool overrun_ = false;
};

// What is taken in a layer's body is free again behind it.
class LayerScope {
  public:
    explicit LayerScope(Scratch& memory) : memory_(memory), used_(memory.used_[0]) {}
    ~LayerScope() { memory_.give_back(0, used_); }
    LayerScope(const LayerScope&) = delete;

  private:
    Scratch& memory_;
    size_t used_;
};

// What is taken in a stage lies in the other region than what its neighbours take.
class StageScope {
  public:
    explicit StageScope(Scratch& memory) : memory_(memory) {
        memory.region_ = memory.last_stage_ = 3 - memory.last_stage_;
        memory.give_back(memory.region_, 0);
    }
    ~StageScope() { memory_.region_ = 0; }
    StageScope(const StageScope&) = delete;

  private:
    Scratch& memory_;
};

// What is taken in a part of an op is free again behind it: for backends that have done what was
// asked when a call returns.
class ScratchScope {
  public:
    explicit ScratchScope(Scratch& memory)
        : memory_(memory), region_(memory.region_), used_(memory.used_[region_]) {}
    ~ScratchScope() { memory_.give_back(region_, used_); }
    ScratchScope(const ScratchScope&) = delete;

  private:
    Scratch& memory_;
    int region_;
    size_t used_;
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
    // The classes of the rows that ops are given: the batch's own, in the head those of the rows
    // that want logits. They cover all rows, in order.
    std::span<const SequenceSpan> spans = batch.spans;
    std::vector<Fallback>* fallbacks = nullptr;  // of a dry run: what nodes note
    StepTrace* trace = nullptr;                  // of a step that is traced: every call

    Rows scratch(int64_t n_rows, int64_t n_cols, DType dtype = DType::kF32) {
        return memory.take(n_rows, n_cols, dtype);
    }
};

}  // namespace ridge
