#include "model/sample_params.h"

#include "base/split_mix.h"

namespace ridge {

double sample_uniform(uint64_t seed, int64_t position) {
    const uint64_t state = seed + (static_cast<uint64_t>(position) + 1) * kSplitMixStep;
    return static_cast<double>(split_mix(state) >> 11) * 0x1p-53;
}

}  // namespace ridge
