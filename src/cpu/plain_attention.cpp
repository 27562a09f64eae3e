#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/dot.h"
#include "cpu/plain.h"
#include "model/step.h"
#include "ref/host_kv.h"

namespace ridge::plain {
namespace {

constexpr int kBlock =
    64;  // cache positions that one rescaling of the online softmax covers; absolute boundaries

// The query heads of one row that share one K and V head, with what the online softmax keeps of
// each.
struct HeadGroup {
    int64_t n_heads, d_head;
    const float* q;  // [n_heads, d_head]
    float* out;      // [n_heads, d_head], not yet divided by the sum
    float* highest;  // [n_heads] largest score so far
    float* sum;      // [n_heads] of exp(score - highest)
    float* weight;   // [n_heads, kBlock] scores of the block, then their exp
};

// Turns the block's n scores of each head into weights, and what has been summed so far to the same
// highest score.
void rescale(HeadGroup& g, int n) {
    for (int64_t h = 0; h < g.n_heads; h++) {
        float* weight = g.weight + h * kBlock;
        float highest = g.highest[h];
        for (int p = 0; p < n; p++) highest = std::max(highest, weight[p]);
        float shrink = std::exp(g.highest[h] - highest);  // exp(-inf) = 0 at the first block
        float sum = g.sum[h] * shrink;
        for (int p = 0; p < n; p++) {
            weight[p] = std::exp(weight[p] - highest);
            sum += weight[p];
        }
        g.highest[h] = highest, g.sum[h] = sum;
        for (int64_t j = 0; j < g.d_head; j++) g.out[h * g.d_head + j] *= shrink;
    }
}

void attend(HeadGroup g, const KvView& view, const KvLayer& kv, int64_t kv_head,
            int64_t n_positions, float* row) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(g.d_head));
    std::fill(g.out, g.out + g.n_heads * g.d_head, 0.0f);
    std::fill(g.highest, g.highest + g.n_heads, -std::numeric_limits<float>::infinity());
    std::fill(g.sum, g.sum + g.n_heads, 0.0f);
    for (int64_t first = 0; first < n_positions; first += kBlock) {
        int n = static_cast<int>(std::min<int64_t>(kBlock, n_positions - first));
        for (int p = 0; p < n; p++) {
            load_row(host_k(kv, view.slot(first + p), kv_head), row);
            for (int64_t h = 0; h < g.n_heads; h++) {
                g.weight[h * kBlock + p] = dot(g.q + h * g.d_head, row, g.d_head) * scale;
            }
        }
        rescale(g, n);
        for (int p = 0; p < n; p++) {
            load_row(host_v(kv, view.slot(first + p), kv_head), row);
            for (int64_t h = 0; h < g.n_heads; h++) {
                float weight = g.weight[h * kBlock + p];
                float* out = g.out + h * g.d_head;
                for (int64_t j = 0; j < g.d_head; j++) out[j] += weight * row[j];
            }
        }
    }
    if (n_positions == 0) return;  // a masked row: zeros
    for (int64_t h = 0; h < g.n_heads; h++) {
        for (int64_t j = 0; j < g.d_head; j++) g.out[h * g.d_head + j] /= g.sum[h];
    }
}

const KvView& view_of(const Batch& batch, int64_t row) {
    for (const SequenceSpan& span : batch.spans) {
        if (row < span.first_row + span.n_rows) return span.kv;
    }
    CHECK(!"a row outside every span");
    return batch.spans[0].kv;
}

}  // namespace

// kv_append: cache[slot[i]] = k[i], v[i]; slot -1 is skipped
//   k, v [n_rows, n_kv_heads, d_head] f32; cache as ref/host_kv.h lays it out: one rounding.
void kv_append(Step& s, Heads k, Heads v, KvLayer kv) {
    if (s.planning) return;
    for (int64_t i = 0; i < k.rows.n_rows; i++) {
        int64_t slot = s.batch.slots[static_cast<size_t>(i)];
        if (slot < 0) continue;
        for (int64_t h = 0; h < k.n_heads; h++) {
            store_row(k.head<float>(i, h), host_k(kv, slot, h));
            store_row(v.head<float>(i, h), host_v(kv, slot, h));
        }
    }
}

// attention: out[i, h] = sum_p softmax_p(q[i, h] . K[p] / sqrt(d_head)) V[p], p = 0..position[i]
//   q, out [n_rows, n_heads, d_head] f32; cache as kv_append writes it; n_heads / n_kv_heads heads
//   share each K and V. Online softmax (Milakov and Gimelshein 2018) over blocks of 64 positions
//   that start at multiples of 64, in order. Threads share the pairs of row and K/V head. Position
//   -1 gives zeros.
void attention(Step& s, Heads q, KvLayer kv, Heads out) {
    const int64_t heads_per_kv = q.n_heads / kv.n_kv_heads;
    Rows scratch = s.scratch(s.pool.size(), kv.d_head + heads_per_kv * (kBlock + 2));
    if (s.planning) return;
    s.pool.parallel_for(
        q.rows.n_rows * kv.n_kv_heads, 1, [&](int64_t begin, int64_t end, int worker) {
            float* row = scratch.row<float>(worker);
            float* state = row + kv.d_head;
            for (int64_t task = begin; task < end; task++) {
                int64_t i = task / kv.n_kv_heads, kv_head = task % kv.n_kv_heads,
                        h = kv_head * heads_per_kv;
                HeadGroup heads{heads_per_kv,
                                kv.d_head,
                                q.head<float>(i, h),
                                out.head<float>(i, h),
                                state,
                                state + heads_per_kv,
                                state + 2 * heads_per_kv};
                int64_t n_positions = int64_t{s.batch.positions[static_cast<size_t>(i)]} + 1;
                attend(heads, view_of(s.batch, i), kv, kv_head, n_positions, row);
            }
        });
}

}  // namespace ridge::plain
