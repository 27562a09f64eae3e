#include "model/rope_table.h"

#include <cmath>

#include "base/check.h"

namespace ridge {

RopeTable make_rope_table(const Config& config) {
    RopeTable table;
    table.style = config.rope_style;
    size_t n_pairs = static_cast<size_t>(config.d_rope / 2);
    CHECK(config.rope_factors.empty() || config.rope_factors.size() == n_pairs);
    for (size_t i = 0; i < n_pairs; i++) {
        double frequency =
            std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / config.d_rope);
        table.frequency.push_back(config.rope_factors.empty() ? frequency
                                                              : frequency / config.rope_factors[i]);
    }
    return table;
}

}  // namespace ridge
