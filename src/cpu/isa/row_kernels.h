#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/isa/exp.h"
#include "cpu/isa/vector_bytes.h"
#include "cpu/row_kernels.h"

// RowKernels in plain loops, which compilers turn into vectors of whatever instruction set the
// including file is compiled for. Sums and maxima, which no compiler may reorder, run in lanes of a
// vector type that both g++ and clang split up where registers are narrower: the order of sums is
// the same everywhere. No product is contracted with a sum.

namespace ridge::cpu {
namespace {

constexpr int kFloats = kVectorBytes / 4, kDoubles = kVectorBytes / 8;  // in a register
using Floats = float __attribute__((vector_size(kVectorBytes)));
using Ints = int32_t __attribute__((vector_size(kVectorBytes)));
using Doubles = double __attribute__((vector_size(kVectorBytes)));

// rms_norm: out[i] = x[i] / sqrt(sum_j x[j]^2 / n + eps) * weight[i]
//   x, weight, out [n] f32. The sum of squares in f64, so that no x overflows it: 32 lanes, lane l
//   of elements l + 32 i in order, then lanes added in halves, then the elements behind the last
//   32. Widening costs nothing that a decode step would show: the row is in the first cache.
inline double sum_of_squares(const float* x, int64_t n) {
    constexpr int kLanes = 32;
    Doubles lanes[kLanes / kDoubles] = {};
    int64_t k = 0;
    for (; k + kLanes <= n; k += kLanes) {
#pragma GCC unroll 16
        for (int v = 0; v < kLanes / kDoubles; v++) {
            double wide[kDoubles];
            for (int l = 0; l < kDoubles; l++) wide[l] = double{x[k + v * kDoubles + l]};
            Doubles w;
            memcpy(&w, wide, sizeof w);
            lanes[v] += w * w;
        }
    }
    double sums[kLanes];
    memcpy(sums, lanes, sizeof sums);
    for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; l++) sums[l] += sums[l + half];
    }
    for (; k < n; k++) sums[0] += double{x[k]} * double{x[k]};
    return sums[0];
}
void rms_norm_row(const float* x, int64_t n, const float* weight, float eps, float* out) {
    const double mean = sum_of_squares(x, n) / static_cast<double>(n);
    const auto scale = static_cast<float>(1 / __builtin_sqrt(mean + static_cast<double>(eps)));
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * scale * weight[i];
}

// rope_angles: cosine[i] = cos(a), sine[i] = sin(a), a = position * frequency[i]
//   frequency [n_pairs] f64; cosine, sine [n_pairs] f32. a = k pi/2 + r with |r| <= pi/4 (pi/2 in
//   two parts of f64), Taylor's polynomials in r to below 1e-12, and k's two low bits say which is
//   which and of what sign.
void rope_angles_row(int32_t position, const double* __restrict frequency, int64_t n_pairs,
                     float* __restrict cosine, float* __restrict sine) {
    constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
    const auto at = static_cast<double>(position);
    for (int64_t i = 0; i < n_pairs; i++) {
        const double angle = at * frequency[i];
        const double shifted = angle * 0.63661977236758134308 + kRound;
        const double k = shifted - kRound;
        const double r = (angle - k * 1.57079632673412561417) - k * 6.07710050650619224932e-11;
        const double z = r * r;
        double s = -1.0 / 39916800;
        s = s * z + 1.0 / 362880;
        s = s * z - 1.0 / 5040;
        s = s * z + 1.0 / 120;
        s = s * z - 1.0 / 6;
        s = (s * z) * r + r;
        double c = 1.0 / 479001600;
        c = c * z - 1.0 / 3628800;
        c = c * z + 1.0 / 40320;
        c = c * z - 1.0 / 720;
        c = c * z + 1.0 / 24;
        c = c * z - 0.5;
        c = c * z + 1.0;
        // All ones where the quarter turn swaps the two; then the signs, as the top bit.
        const uint64_t quarter = bits_of_double(shifted);
        const uint64_t swap = 0 - (quarter & 1);
        const uint64_t s_bits = bits_of_double(s), c_bits = bits_of_double(c);
        const uint64_t changed = (s_bits ^ c_bits) & swap;
        const uint64_t s_sign = (quarter & 2) << 62, c_sign = ((quarter + 1) & 2) << 62;
        sine[i] = static_cast<float>(double_of_bits(s_bits ^ changed ^ s_sign));
        cosine[i] = static_cast<float>(double_of_bits(c_bits ^ changed ^ c_sign));
    }
}

// (a, b) -> (a cos - b sin, a sin + b cos). Elements behind the pairs stay.
void rope_half_split_row(float* x, int64_t n_heads, int64_t d_head, int64_t n_pairs,
                         const float* __restrict cosine, const float* __restrict sine) {
    for (int64_t h = 0; h < n_heads; h++) {
        float* __restrict first = x + h * d_head;
        float* __restrict second = first + n_pairs;
        for (int64_t i = 0; i < n_pairs; i++) {
            const float a = first[i], b = second[i];
            first[i] = a * cosine[i] - b * sine[i];
            second[i] = a * sine[i] + b * cosine[i];
        }
    }
}
void rope_interleaved_row(float* x, int64_t n_heads, int64_t d_head, int64_t n_pairs,
                          const float* __restrict cosine, const float* __restrict sine) {
    for (int64_t h = 0; h < n_heads; h++) {
        float* __restrict pair = x + h * d_head;
        for (int64_t i = 0; i < n_pairs; i++) {
            const float a = pair[2 * i], b = pair[2 * i + 1];
            pair[2 * i] = a * cosine[i] - b * sine[i];
            pair[2 * i + 1] = a * sine[i] + b * cosine[i];
        }
    }
}

// swiglu: out[i] = silu(gate[i]) * up[i], silu(g) = g / (1 + exp(-g)), as g exp(g) / (1 + exp(g))
// where g < 0: the exponential is only taken of what is not positive, and never overflows.
void swiglu_row(const float* gate, const float* up, int64_t n, float* out) {
    for (int64_t i = 0; i < n; i++) {
        const float g = gate[i];
        const float e = exp_float(select(g < 0, g, -g));
        const float numerator = select(g < 0, g * e, g);
        out[i] = numerator / (1.0f + e) * up[i];
    }
}

void add_row(const float* __restrict y, int64_t n, float* __restrict x) {
    for (int64_t i = 0; i < n; i++) x[i] += y[i];
}

// The maxima of kFloats lanes of n_rows rows of 16, and bits of is_nan where a lane has a NaN.
inline void lane_maxima(const float* x, int64_t n_rows, Ints& is_nan, float* maxima) {
    Floats max = {};
    Ints nan = is_nan;
    max -= __builtin_inff();
    for (int64_t i = 0; i < n_rows; i++) {
        Floats v;
        memcpy(&v, x + kLogitLanes * i, sizeof v);
        nan |= v != v;
        max = v > max ? v : max;
    }
    memcpy(maxima, &max, sizeof max);
    is_nan = nan;
}
bool logit_maxima_row(const float* x, int64_t n, float* maxima) {
    Ints is_nan = {};
    for (; n > 0; n -= kLogitPiece, x += kLogitPiece, maxima += kLogitLanes) {
        float padded[kLogitPiece];
        const float* piece = x;
        if (n < kLogitPiece) {
            for (float& v : padded) v = -__builtin_inff();
            memcpy(padded, x, static_cast<size_t>(n) * sizeof(float));
            piece = padded;
        }
        for (int l = 0; l < kLogitLanes; l += kFloats) {
            lane_maxima(piece + l, kLogitBlock, is_nan, maxima + l);
        }
    }
    int32_t any = 0;
    for (int l = 0; l < kFloats; l++) any |= is_nan[l];
    return any != 0;
}

// sum_exp: 64 exponentials at a time, then added to 8 lanes.
inline void exp_of_64(const float* __restrict x, double lowest, double highest, double inverse,
                      double* __restrict out) {
    for (int i = 0; i < 64; i++) {
        const double wide = static_cast<double>(x[i]);
        const double weight = exp_negative((wide - highest) * inverse);
        out[i] = select(wide >= lowest, weight, 0.0);
    }
}
double sum_exp_row(const float* x, int64_t n, double lowest, double highest, double inverse) {
    double lanes[64] = {};
    for (; n > 0; n -= 64, x += 64) {
        double weights[64];
        float padded[64];
        const float* piece = x;
        if (n < 64) {
            for (float& v : padded) v = -__builtin_inff();
            memcpy(padded, x, static_cast<size_t>(n) * sizeof(float));
            piece = padded;
        }
        exp_of_64(piece, lowest, highest, inverse, weights);
        for (int l = 0; l < 64; l++) lanes[l] += weights[l];
    }
    for (int half = 32; half > 0; half /= 2) {
        for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
    }
    return lanes[0];
}

void fill_row_kernels(RowKernels& rows) {
    rows.rms_norm = rms_norm_row;
    rows.rope_angles = rope_angles_row;
    rows.rope_half_split = rope_half_split_row;
    rows.rope_interleaved = rope_interleaved_row;
    rows.swiglu = swiglu_row;
    rows.add = add_row;
    rows.logit_maxima = logit_maxima_row;
    rows.sum_exp = sum_exp_row;
}

}  // namespace
}  // namespace ridge::cpu
