#pragma once

#include <cstdint>

namespace ridge::cpu {

// The functions along one row of activations, or of logits, that are written once for each
// instruction set: a part of Kernels (kernels.h). They round alike on all of them. Pointers and
// integers alone, as there.

constexpr int kLogitLanes = 16;
constexpr int kLogitBlock = 64;                             // logits that share a maximum
constexpr int64_t kLogitPiece = kLogitLanes * kLogitBlock;  // of whole blocks

struct RowKernels {
    // out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]; out may be x
    void (*rms_norm)(const float* x, int64_t n, const float* weight, float eps, float* out);

    // cosine[i], sine[i] of position * frequency[i], the angle in f64
    void (*rope_angles)(int32_t position, const double* frequency, int64_t n_pairs, float* cosine,
                        float* sine);
    // Rotates the pairs of n_heads heads that lie d_head apart, in place: (i, i + n_pairs) of each
    void (*rope_half_split)(float* x, int64_t n_heads, int64_t d_head, int64_t n_pairs,
                            const float* cosine, const float* sine);
    // ... and (2 i, 2 i + 1)
    void (*rope_interleaved)(float* x, int64_t n_heads, int64_t d_head, int64_t n_pairs,
                             const float* cosine, const float* sine);

    // out[i] = gate[i] / (1 + exp(-gate[i])) * up[i]; out may be gate or up
    void (*swiglu)(const float* gate, const float* up, int64_t n, float* out);

    // x[i] += y[i]
    void (*add)(const float* y, int64_t n, float* x);

    // maxima[16 p + l] = the maximum of x[1024 p + l + 16 i] over i 0..63: of a lane, so that
    // nothing is ever reduced across lanes. maxima [ceil(n / 1024) * 16]; lanes that end before n
    // is reached have what they have, or -inf. Returns whether there is a NaN, which no maximum
    // shows.
    bool (*logit_maxima)(const float* x, int64_t n, float* maxima);
    // The sum of exp((x[i] - highest) * inverse) over x[i] >= lowest, in f64 as all that is in it.
    // highest at least every x[i].
    double (*sum_exp)(const float* x, int64_t n, double lowest, double highest, double inverse);
};

}  // namespace ridge::cpu
