#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "model/config.h"
#include "model/tuning.h"
#include "model/weights.h"

namespace ridge {

// What `tune` measures for a model: the calls of its steps for which something can be chosen.

// Values of one parameter to be tried, by its name.
struct TuneTrial {
    std::string_view parameter;
    std::vector<int> values;
};

// One choice, and the cases that it is for: it must be faster in one of them and slower in none.
template <class Call, class T>
struct TuneJob {
    using Values = T;
    Call call;
    std::vector<Case> cases;
    std::vector<TuneTrial> trials;
    // Prompts of few rows, in ascending order: up to which they run faster as decode rows do.
    std::vector<Case> few_rows;
};
using MatmulJob = TuneJob<MatmulCall, MatmulTuning>;
using AttentionJob = TuneJob<AttentionCall, AttentionTuning>;

struct TunePlan {
    std::vector<MatmulJob> matmuls;
    std::vector<AttentionJob> attentions;
};

// The steps that are tuned for.
struct TuneSteps {
    DType k_dtype = DType::kF16, v_dtype = DType::kF16;
    std::vector<int64_t> n_depth, n_parallel, n_prompt;
};

// `backend`: "cpu" or "cuda"; `isa`: of the CPU's kernels. Of the weights only shapes and formats
// are looked at. What takes most of a decode step comes first.
TunePlan plan_tuning(const Config& config, const Weights& weights, const TuneSteps& steps,
                     std::string_view backend, std::string_view isa);

}  // namespace ridge
