#pragma once

#include <memory>

#include "cases/case_run.h"
#include "cuda/backend.h"

namespace ridge {

// Runs operator cases on one GPU. `context` is what the tables of its checkpoints want as
// Caps::kernels; it lives as long as the device.
struct CudaCases {
    std::unique_ptr<CaseDevice> device;
    Caps caps;
};
CudaCases make_cuda_cases(const CudaOptions& options);

}  // namespace ridge
