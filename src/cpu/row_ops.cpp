#include "cpu/row_ops.h"

#include <algorithm>

#include "cpu/kernels_of_isa.h"
#include "model/step.h"

namespace ridge::cpu {
namespace {

// Elements that a thread takes at a time: some 0.5 us of a norm, a rotation or an addition.
constexpr int64_t kGrainElements = 8192;

int64_t grain_of_rows(int64_t n_cols) {
    return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, n_cols));
}

}  // namespace

// rms_norm: out[i, h] = x[i, h] / sqrt(mean(x[i, h]^2) + eps) * weight        (Zhang and Sennrich
// 2019, equation 4)
//   x, out [n_rows, n_heads, d_head] f32; weight [d_head] f32; the sum of squares in f64, in 32
//   lanes. One thread a head. 3 * 4 * d_head bytes of a head, which lie in a cache.
//   d_head = 2,048: one row 0.21 us, plain 1.27; 256 rows on two threads 55 us, plain 331 (AVX-512;
//   2-core AMD EPYC of family 26, a080829).
void rms_norm(Step& s, Heads x, const Tensor& weight, float eps, Heads out) {
    if (s.planning) return;
    CHECK(weight.format->id == FormatId::kF32 && weight.n_cols() == x.d_head);
    CHECK(out.n_heads == x.n_heads && out.d_head == x.d_head && out.rows.n_rows == x.rows.n_rows);
    auto* w = reinterpret_cast<const float*>(weight.planes[0].data);
    const RowKernels& kernels = kernels_of(s).rows;
    s.pool.parallel_for(
        x.rows.n_rows * x.n_heads, grain_of_rows(x.d_head), [&](int64_t begin, int64_t end, int) {
            for (int64_t i = begin; i < end; i++) {
                const int64_t row = i / x.n_heads, h = i % x.n_heads;
                kernels.rms_norm(x.head<float>(row, h), x.d_head, w, eps, out.head<float>(row, h));
            }
        });
}

// rope: (a, b) -> (a cos t - b sin t, a sin t + b cos t), t = position[i] * frequency[pair]
//   x [n_rows, n_heads, d_head] f32 in place; pairs as table.style says; what lies behind d_rope
//   stays. t, its sine and its cosine in f64, rounded to f32 once and shared by all heads of a row.
//   32 heads of 64: one row 0.11 us, plain 1.12; 256 rows 32 us, plain 155 (as above).
void rope(Step& s, Heads x, Positions position, const RopeTable& table) {
    const auto n_pairs = static_cast<int64_t>(table.frequency.size());
    const Rows turns = s.scratch(s.pool.size(), 2 * n_pairs);  // cosines, then sines
    if (s.planning) return;
    CHECK(static_cast<int64_t>(position.size()) == x.rows.n_rows && 2 * n_pairs <= x.d_head);
    const RowKernels& kernels = kernels_of(s).rows;
    const auto rotate =
        table.style == RopeStyle::kHalfSplit ? kernels.rope_half_split : kernels.rope_interleaved;
    s.pool.parallel_for(
        x.rows.n_rows, grain_of_rows(x.rows.n_cols), [&](int64_t begin, int64_t end, int worker) {
            float* cosine = turns.row<float>(worker);
            float* sine = cosine + n_pairs;
            for (int64_t i = begin; i < end; i++) {
                const int32_t at = position[static_cast<size_t>(i)];
                if (at < 0) continue;
                kernels.rope_angles(at, table.frequency.data(), n_pairs, cosine, sine);
                rotate(x.head<float>(i, 0), x.n_heads, x.d_head, n_pairs, cosine, sine);
            }
        });
}

// swiglu: out[i, j] = silu(gate_up[i, j]) * gate_up[i, d_ff + j], silu(g) = g / (1 + exp(-g))
// (Shazeer 2020)
//   gate_up [n_rows, 2 * d_ff] f32, out [n_rows, d_ff] f32. Pieces of 1,024 columns, two of which
//   are worth a loop over threads. d_ff = 8,192: one row 3.2 us, plain 15.2; 256 rows 0.92 ms,
//   plain 6.0 (as above).
void swiglu(Step& s, Rows gate_up, Rows out) {
    if (s.planning) return;
    CHECK(gate_up.n_rows == out.n_rows && gate_up.n_cols == 2 * out.n_cols);
    constexpr int64_t kPiece = 1024;
    const int64_t d_ff = out.n_cols, n_pieces = (d_ff + kPiece - 1) / kPiece;
    const RowKernels& kernels = kernels_of(s).rows;
    s.pool.parallel_for(out.n_rows * n_pieces, 2, [&](int64_t begin, int64_t end, int) {
        for (int64_t piece = begin; piece < end; piece++) {
            const int64_t row = piece / n_pieces, first = piece % n_pieces * kPiece;
            const float* gate = gate_up.row<float>(row) + first;
            kernels.swiglu(gate, gate + d_ff, std::min(kPiece, d_ff - first),
                           out.row<float>(row) + first);
        }
    });
}

// add: x[i] += y[i]            x, y [n_rows, d] f32
void add(Step& s, Rows y, Rows x) {
    if (s.planning) return;
    CHECK(y.n_rows == x.n_rows && y.n_cols == x.n_cols);
    const RowKernels& kernels = kernels_of(s).rows;
    s.pool.parallel_for(x.n_rows, grain_of_rows(x.n_cols), [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; i++) {
            kernels.add(y.row<float>(i), x.n_cols, x.row<float>(i));
        }
    });
}

}  // namespace ridge::cpu
