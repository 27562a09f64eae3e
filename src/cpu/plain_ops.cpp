#include <algorithm>
#include <cmath>

#include "cpu/plain.h"
#include "model/step.h"
#include "ref/ref.h"

namespace ridge {
namespace plain {
namespace {

constexpr int64_t kRowGrain = 4;  // rows that a thread takes at a time in row-wise operators

}  // namespace

// embed_rows: out[i] = table[token[i]]
//   table [n_vocab, d_model] any format; out [n_rows, d_model] f32. A row at a time.
void embed_rows(Step& s, const Tensor& table, Tokens token, Rows out) {
    if (s.planning) return;
    s.pool.parallel_for(out.n_rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; i++) {
            unpack_row(table, token[static_cast<size_t>(i)], out.row<float>(i));
        }
    });
}

// rms_norm: out[i, h] = x[i, h] / sqrt(mean(x[i, h]^2) + eps) * weight        (Zhang and Sennrich
// 2019, equation 4)
//   x, out [n_rows, n_heads, d_head] f32; weight [d_head] f32; the sum of squares in f64.
void rms_norm(Step& s, Heads x, const Tensor& weight, float eps, Heads out) {
    if (s.planning) return;
    CHECK(weight.format->id == FormatId::kF32 && weight.n_cols() == x.d_head);
    auto* w = reinterpret_cast<const float*>(weight.planes[0].data);
    s.pool.parallel_for(x.rows.n_rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; i++) {
            for (int64_t h = 0; h < x.n_heads; h++) {
                const float* in = x.head<float>(i, h);
                float* to = out.head<float>(i, h);
                double sum = 0;
                for (int64_t j = 0; j < x.d_head; j++) sum += static_cast<double>(in[j]) * in[j];
                auto scale =
                    static_cast<float>(1 / std::sqrt(sum / static_cast<double>(x.d_head) + eps));
                for (int64_t j = 0; j < x.d_head; j++) to[j] = in[j] * scale * w[j];
            }
        }
    });
}

// rope: (a, b) -> (a cos t - b sin t, a sin t + b cos t), t = position[i] * frequency[pair]
//   x [n_rows, n_heads, d_head] f32 in place; pairs as table.style says; what lies behind d_rope
//   stays. t, its sine and its cosine in f64, made once for all heads of a row.
void rope(Step& s, Heads x, Positions position, const RopeTable& table) {
    if (s.planning) return;
    const int64_t n_pairs = static_cast<int64_t>(table.frequency.size());
    const bool half_split = table.style == RopeStyle::kHalfSplit;
    const int64_t first_step = half_split ? 1 : 2, second = half_split ? n_pairs : 1;
    s.pool.parallel_for(x.rows.n_rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; i++) {
            if (position[static_cast<size_t>(i)] < 0) continue;
            for (int64_t pair = 0; pair < n_pairs; pair++) {
                double angle =
                    position[static_cast<size_t>(i)] * table.frequency[static_cast<size_t>(pair)];
                auto sine = static_cast<float>(std::sin(angle)),
                     cosine = static_cast<float>(std::cos(angle));
                for (int64_t h = 0; h < x.n_heads; h++) {
                    float* a = x.head<float>(i, h) + pair * first_step;
                    float* b = a + second;
                    float turned = *a * cosine - *b * sine;
                    *b = *a * sine + *b * cosine;
                    *a = turned;
                }
            }
        }
    });
}

// swiglu: out[i, j] = g / (1 + exp(-g)) * u, g = gate_up[i, j], u = gate_up[i, d_ff + j] (Shazeer
// 2020)
//   gate_up [n_rows, 2 * d_ff] f32, out [n_rows, d_ff] f32. exp(-g) may be infinite: g / inf is the
//   right -0.
void swiglu(Step& s, Rows gate_up, Rows out) {
    if (s.planning) return;
    constexpr int64_t kGrain = 256;  // columns, so that one row is shared by all threads
    const int64_t d_ff = out.n_cols, n_pieces = (d_ff + kGrain - 1) / kGrain;
    s.pool.parallel_for(out.n_rows * n_pieces, 8, [&](int64_t begin, int64_t end, int) {
        for (int64_t piece = begin; piece < end; piece++) {
            const float* gate = gate_up.row<float>(piece / n_pieces);
            float* to = out.row<float>(piece / n_pieces);
            int64_t first = piece % n_pieces * kGrain, last = std::min(first + kGrain, d_ff);
            for (int64_t j = first; j < last; j++)
                to[j] = gate[j] / (1 + std::exp(-gate[j])) * gate[d_ff + j];
        }
    });
}

// add: x[i] += y[i]            x, y [n_rows, d] f32
void add(Step& s, Rows y, Rows x) {
    if (s.planning) return;
    s.pool.parallel_for(x.n_rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; i++) {
            float* to = x.row<float>(i);
            const float* from = y.row<float>(i);
            for (int64_t j = 0; j < x.n_cols; j++) to[j] += from[j];
        }
    });
}

}  // namespace plain

void add_plain_ops(Tables& tables, std::string_view checkpoint) {
    tables.ops.embed_rows.set(checkpoint, plain::embed_rows);
    tables.ops.rms_norm.set(checkpoint, plain::rms_norm);
    tables.ops.matmul.set(checkpoint, plain::matmul);
    tables.ops.rope.set(checkpoint, plain::rope);
    tables.ops.kv_append.set(checkpoint, plain::kv_append);
    tables.ops.attention.set(checkpoint, plain::attention);
    tables.ops.swiglu.set(checkpoint, plain::swiglu);
    tables.ops.add.set(checkpoint, plain::add);
}

}  // namespace ridge
