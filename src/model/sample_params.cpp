#include "model/sample_params.h"

namespace ridge {

// The generator's state after `position` steps from `seed`, mixed: output number `position`.
double sample_uniform(uint64_t seed, int64_t position) {
    uint64_t z = seed + (static_cast<uint64_t>(position) + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return static_cast<double>(z >> 11) * 0x1p-53;
}

}  // namespace ridge
