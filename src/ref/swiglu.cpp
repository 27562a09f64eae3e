#include <cmath>

#include "model/step.h"
#include "ref/ref.h"

namespace ridge::ref {

// The exponential is only taken of what is not positive, so that it never overflows. silu(-0) is
// -0.
static double silu(double gate) {
    if (gate >= 0) return gate / (1 + std::exp(-gate));
    const double e = std::exp(gate);
    return gate * e / (1 + e);
}

// Shazeer 2020 (GLU Variants), equation 6, without its beta.
void swiglu(Step& step, Rows gate_up, Rows out) {
    if (step.planning) return;
    CHECK(gate_up.n_rows == out.n_rows && gate_up.n_cols == 2 * out.n_cols);
    for (int64_t i = 0; i < out.n_rows; i++) {
        const float* gate = gate_up.row<float>(i);
        const float* up = gate + out.n_cols;
        float* to = out.row<float>(i);
        for (int64_t j = 0; j < out.n_cols; j++) {
            to[j] = static_cast<float>(silu(gate[j]) * double{up[j]});
        }
    }
}

}  // namespace ridge::ref
