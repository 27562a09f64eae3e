#include <cmath>
#include <vector>

#include "model/step.h"
#include "ref/ref.h"

namespace ridge::ref {

// Zhang and Sennrich 2019, equation 4.
void rms_norm(Step& step, Heads x, const Tensor& weight, float eps, Heads out) {
    if (step.planning) return;
    CHECK(weight.n_elements() == x.d_head && out.d_head == x.d_head);
    CHECK(out.n_heads == x.n_heads && out.rows.n_rows == x.rows.n_rows);
    const int64_t d = x.d_head;
    std::vector<float> w(static_cast<size_t>(d));
    unpack_row(weight, 0, w.data());
    for (int64_t i = 0; i < x.rows.n_rows; i++) {
        for (int64_t h = 0; h < x.n_heads; h++) {
            const float* from = x.head<float>(i, h);
            float* to = out.head<float>(i, h);
            double sum = 0;
            for (int64_t k = 0; k < d; k++) sum += double{from[k]} * double{from[k]};
            const double scale = 1 / std::sqrt(sum / static_cast<double>(d) + double{eps});
            for (int64_t k = 0; k < d; k++) {
                to[k] = static_cast<float>(double{from[k]} * scale * double{w[k]});
            }
        }
    }
}

}  // namespace ridge::ref
