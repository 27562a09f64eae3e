// The searches for scales: a few candidates, each refined by least squares. For given codes q the
// error of s * q is least at s = sum(x q) / sum(q q), and is then sum(x x) - sum(x q)^2 / sum(q q).

#include <algorithm>
#include <cmath>

#include "base/check.h"
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

// sum(a b) in four lanes, which vector code can follow without changing the result. n: multiple
// of 4.
float dot(const float* a, const float* b, int n) {
    float lanes[4] = {};
    for (int i = 0; i < n; i += 4) {
        for (int l = 0; l < 4; l++) lanes[l] += a[i + l] * b[i + l];
    }
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

// q[i] = the code of x[i] * inverse + offset. x, q [n].
void round_all(const float* __restrict x, int n, float inverse, float offset, int low, int high,
               float* __restrict q) {
    for (int i = 0; i < n; i++) {
        q[i] = static_cast<float>(nearest(inverse * x[i] + offset, low, high));
    }
}

// Keeps the best of the scales that rows of codes give.
class BestScale {
  public:
    void offer(const float* x, const float* q, int n) {
        const float sum_xq = dot(x, q, n), sum_qq = dot(q, q, n);
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
    CHECK(n % 4 == 0 && n <= kSmallBlock);
    const float extreme = value_of_largest_magnitude(x, n);
    if (extreme == 0) return 0;
    BestScale best;
    float q[kSmallBlock];
    for (int step = -9; step <= 9; step += 2) {
        const float end = static_cast<float>(low) + 0.1f * static_cast<float>(step);
        round_all(x, n, end / extreme, 0, low, -low - 1, q);
        best.offer(x, q, n);
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
    CHECK(n % 4 == 0 && n <= kSmallBlock);
    const float extreme = value_of_largest_magnitude(x, n);
    if (extreme == 0) return 0;
    BestScale best;
    float q[kSmallBlock];
    for (int end : {kIq4Values[0], kIq4Values[15]}) {  // the extreme value goes to either end
        for (int step = -8; step <= 8; step += 4) {
            const float inverse = static_cast<float>(end + step) / extreme;
            for (int i = 0; i < n; i++) {
                q[i] = static_cast<float>(kIq4Values[nearest_iq4_level(inverse * x[i])]);
            }
            best.offer(x, q, n);
        }
    }
    return best.scale();
}

FittedScaleMin fit_scale_min(const float* x, int n, int top) {
    CHECK(n % 4 == 0 && n <= kSmallBlock);
    const float low = std::min(0.0f, *std::min_element(x, x + n));
    const float high = *std::max_element(x, x + n);
    if (!(high > low)) return {0, -low};
    const float steps = static_cast<float>(top), count = static_cast<float>(n);
    float q[kSmallBlock], ones[kSmallBlock];
    std::fill(ones, ones + n, 1.0f);
    const float sum_x = dot(x, ones, n);
    FittedScaleMin best = {(high - low) / steps, -low};
    float best_error = INFINITY;
    for (int step = -4; step <= 14; step += 2) {
        const float inverse = (steps + 0.1f * static_cast<float>(step)) / (high - low);
        round_all(x, n, inverse, -inverse * low, 0, top, q);
        const float sum_q = dot(q, ones, n), sum_xq = dot(x, q, n), sum_qq = dot(q, q, n);
        // Least squares over both; where the min would turn negative, over the scale alone.
        const float determinant = count * sum_qq - sum_q * sum_q;
        if (!(determinant > 0)) continue;
        FittedScaleMin fit = {(count * sum_xq - sum_x * sum_q) / determinant,
                              (sum_q * sum_xq - sum_qq * sum_x) / determinant};
        if (fit.min < 0) fit = {sum_xq / sum_qq, 0};
        // sum((scale * q - min - x)^2) written out, without sum(x x), which is always the same
        const float error = fit.scale * fit.scale * sum_qq + count * fit.min * fit.min -
                            2 * fit.scale * fit.min * sum_q - 2 * fit.scale * sum_xq +
                            2 * fit.min * sum_x;
        if (fit.scale > 0 && error < best_error) best_error = error, best = fit;
    }
    return best;
}

}  // namespace ridge
