#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cases/subject.h"
#include "engine/engine.h"

namespace ridge {

// The kernels of one backend, to run cases on.
class CaseSession {
  public:
    virtual ~CaseSession() = default;

    // Of options: device, cpu_isa (this set alone; empty: all that the machine has) and n_threads.
    // Error for a device or an instruction set that is not there.
    static std::unique_ptr<CaseSession> open(OpenOptions options);
    // Of every backend that this build has, for every instruction set and whatever the machine is:
    // tables that may be looked at, and must not be run.
    static std::vector<std::unique_ptr<CaseSession>> all_backends();

    virtual std::string backend() const = 0;  // "cpu", "cuda"
    virtual std::string device() const = 0;   // "cuda:0"
    virtual std::string gpu() const { return {}; }
    virtual CaseDevice* case_device() const { return nullptr; }  // null: the host
    virtual std::span<const Checkpoint> checkpoints() const = 0;
    virtual std::vector<Subject> subjects(Op op) const = 0;
};

}  // namespace ridge
