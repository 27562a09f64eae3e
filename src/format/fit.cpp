// The searches for scales: a few candidates, each refined by least squares. For given codes q the
// error of s * q is least at s = sum(x q) / sum(q q), and is then sum(x x) - sum(x q)^2 / sum(q q).

#include <algorithm>
#include <cmath>

#include "format/encode.h"

namespace ridge {
namespace {

float value_of_largest_magnitude(const float* x, int n) {
    float extreme = 0;
    for (int i = 0; i < n; i++) {
        if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
    }
    return extreme;
}

// Keeps the best of the scales offered to it.
class BestScale {
  public:
    void offer(float sum_xq, float sum_qq) {
        if (!(sum_qq > 0)) return;
        const float gain = sum_xq * sum_xq / sum_qq;  // the error that is saved
        if (gain <= gain_) return;
        gain_ = gain;
        scale_ = sum_xq / sum_qq;
    }
    float scale() const { return scale_; }

  private:
    float gain_ = 0, scale_ = 0;
};

}  // namespace

float fit_scale(const float* x, int n, int low) {
    const float extreme = value_of_largest_magnitude(x, n);
    if (extreme == 0) return 0;
    BestScale best;
    for (int step = -9; step <= 9; step++) {
        const float inverse = (static_cast<float>(low) + 0.1f * static_cast<float>(step)) / extreme;
        float sum_xq = 0, sum_qq = 0;
        for (int i = 0; i < n; i++) {
            const float q = static_cast<float>(nearest(inverse * x[i], low, -low - 1));
            sum_xq += x[i] * q;
            sum_qq += q * q;
        }
        best.offer(sum_xq, sum_qq);
    }
    return best.scale();
}

int nearest_iq4_level(float x) {
    int index = 0;
    for (int i = 0; i < 15; i++) {
        const float middle = 0.5f * static_cast<float>(kIq4Values[i] + kIq4Values[i + 1]);
        index += x > middle ? 1 : 0;
    }
    return index;
}

float fit_iq4_scale(const float* x, int n) {
    const float extreme = value_of_largest_magnitude(x, n);
    if (extreme == 0) return 0;
    BestScale best;
    for (int end : {kIq4Values[0], kIq4Values[15]}) {  // the extreme value goes to either end
        for (int step = -8; step <= 8; step += 2) {
            const float inverse = static_cast<float>(end + step) / extreme;
            float sum_xq = 0, sum_qq = 0;
            for (int i = 0; i < n; i++) {
                const auto q = static_cast<float>(kIq4Values[nearest_iq4_level(inverse * x[i])]);
                sum_xq += x[i] * q;
                sum_qq += q * q;
            }
            best.offer(sum_xq, sum_qq);
        }
    }
    return best.scale();
}

FittedScaleMin fit_scale_min(const float* x, int n, int top) {
    const float low = std::min(0.0f, *std::min_element(x, x + n));
    const float high = *std::max_element(x, x + n);
    if (!(high > low)) return {0, -low};
    const float steps = static_cast<float>(top);
    FittedScaleMin best = {(high - low) / steps, -low};
    float best_error = INFINITY;
    for (int step = -5; step <= 15; step++) {
        const float inverse = (steps + 0.1f * static_cast<float>(step)) / (high - low);
        float sum_x = 0, sum_q = 0, sum_xq = 0, sum_qq = 0, sum_xx = 0;
        for (int i = 0; i < n; i++) {
            const float q = static_cast<float>(nearest(inverse * (x[i] - low), 0, top));
            sum_x += x[i], sum_q += q, sum_xq += x[i] * q, sum_qq += q * q, sum_xx += x[i] * x[i];
        }
        // Least squares over both; where the min would turn negative, over the scale alone.
        const float count = static_cast<float>(n);
        const float determinant = count * sum_qq - sum_q * sum_q;
        if (!(determinant > 0)) continue;
        FittedScaleMin fit = {(count * sum_xq - sum_x * sum_q) / determinant,
                              (sum_q * sum_xq - sum_qq * sum_x) / determinant};
        if (fit.min < 0) fit = {sum_xq / sum_qq, 0};
        // sum((scale * q - min - x)^2), written out
        const float error = fit.scale * fit.scale * sum_qq + count * fit.min * fit.min + sum_xx -
                            2 * fit.scale * fit.min * sum_q - 2 * fit.scale * sum_xq +
                            2 * fit.min * sum_x;
        if (fit.scale > 0 && error < best_error) best_error = error, best = fit;
    }
    return best;
}

}  // namespace ridge
