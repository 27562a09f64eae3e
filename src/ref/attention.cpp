#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "model/step.h"
#include "ref/host_kv.h"
#include "ref/ref.h"

namespace ridge::ref {

// out[d] = sum_p softmax(q . K[p] / sqrt(d_head))[p] * V[p, d] over positions 0..last of one
// sequence. The largest score is subtracted before the exponential, so that none overflows. q, out
// [d_head].
static void attend(const float* q, const KvLayer& kv, const KvView& view, int64_t kv_head,
                   int64_t last, float* out) {
    const int64_t d = kv.d_head;
    std::vector<float> row(static_cast<size_t>(d));
    std::vector<double> score(static_cast<size_t>(last + 1)), sum(static_cast<size_t>(d));
    double highest = -std::numeric_limits<double>::infinity();
    for (int64_t p = 0; p <= last; p++) {
        load_row(host_k(kv, view.slot(p), kv_head), row.data());
        double dot = 0;
        for (int64_t k = 0; k < d; k++) dot += double{q[k]} * double{row[k]};
        score[p] = dot / std::sqrt(static_cast<double>(d));
        highest = std::max(highest, score[p]);
    }
    double total = 0;
    for (int64_t p = 0; p <= last; p++) {
        const double weight = std::exp(score[p] - highest);
        total += weight;
        load_row(host_v(kv, view.slot(p), kv_head), row.data());
        for (int64_t k = 0; k < d; k++) sum[k] += weight * double{row[k]};
    }
    for (int64_t k = 0; k < d; k++) out[k] = static_cast<float>(sum[k] / total);
}

void attention(Step& step, Heads q, KvLayer kv, Heads out) {
    if (step.planning) return;
    CHECK(q.rows.n_rows == step.batch.n_rows() && out.rows.n_rows == q.rows.n_rows);
    CHECK(q.n_heads % kv.n_kv_heads == 0 && out.n_heads == q.n_heads);
    CHECK(q.d_head == kv.d_head && out.d_head == kv.d_head);
    const int64_t n_sharing = q.n_heads / kv.n_kv_heads;  // query heads of one KV head
    for (const SequenceSpan& span : step.batch.spans) {
        for (int64_t i = span.first_row; i < span.first_row + span.n_rows; i++) {
            const int64_t position = step.batch.positions[i];
            for (int64_t h = 0; h < q.n_heads; h++) {
                if (position < 0) {
                    std::fill_n(out.head<float>(i, h), kv.d_head, 0.0f);
                } else {
                    attend(q.head<float>(i, h), kv, span.kv, h / n_sharing, position,
                           out.head<float>(i, h));
                }
            }
        }
    }
}

}  // namespace ridge::ref
