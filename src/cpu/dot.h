#pragma once

#include <cstdint>

namespace ridge {

// Sums of products in eight lanes, lane l taking every eighth element from l on, then lanes added
// in pairs: the same order for one vector and for four, and one that compilers turn into vector
// code on any machine.
constexpr int kDotLanes = 8;

inline float sum_lanes(const float* lane) {
    float a = lane[0] + lane[4], b = lane[1] + lane[5], c = lane[2] + lane[6],
          d = lane[3] + lane[7];
    return (a + c) + (b + d);
}

// Elements behind the last whole group of lanes.
inline float dot_tail(const float* w, const float* x, int64_t begin, int64_t n) {
    float sum = 0;
    for (int64_t k = begin; k < n; k++) sum += w[k] * x[k];
    return sum;
}

inline float dot(const float* w, const float* x, int64_t n) {
    float lane[kDotLanes] = {};
    int64_t k = 0;
    for (; k + kDotLanes <= n; k += kDotLanes) {
        for (int l = 0; l < kDotLanes; l++) lane[l] += w[k + l] * x[k + l];
    }
    return sum_lanes(lane) + dot_tail(w, x, k, n);
}

// out[i] = dot(w, x + i * stride) for four vectors that share each load of w.
inline void dot4(const float* w, const float* x, int64_t stride, int64_t n, float out[4]) {
    const float *x0 = x, *x1 = x + stride, *x2 = x + 2 * stride, *x3 = x + 3 * stride;
    float lane0[kDotLanes] = {}, lane1[kDotLanes] = {}, lane2[kDotLanes] = {},
          lane3[kDotLanes] = {};
    int64_t k = 0;
    for (; k + kDotLanes <= n; k += kDotLanes) {
        for (int l = 0; l < kDotLanes; l++) {
            float weight = w[k + l];
            lane0[l] += weight * x0[k + l];
            lane1[l] += weight * x1[k + l];
            lane2[l] += weight * x2[k + l];
            lane3[l] += weight * x3[k + l];
        }
    }
    out[0] = sum_lanes(lane0) + dot_tail(w, x0, k, n);
    out[1] = sum_lanes(lane1) + dot_tail(w, x1, k, n);
    out[2] = sum_lanes(lane2) + dot_tail(w, x2, k, n);
    out[3] = sum_lanes(lane3) + dot_tail(w, x3, k, n);
}

}  // namespace ridge
