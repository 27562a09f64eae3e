#include "model/step.h"
#include "ref/host_kv.h"
#include "ref/ref.h"

namespace ridge::ref {

void kv_append(Step& step, Heads k, Heads v, KvLayer kv) {
    if (step.planning) return;
    const std::span<const int64_t> slots = step.batch.slots;
    CHECK(static_cast<int64_t>(slots.size()) == k.rows.n_rows && v.rows.n_rows == k.rows.n_rows);
    CHECK(k.n_heads == kv.n_kv_heads && v.n_heads == kv.n_kv_heads);
    CHECK(k.d_head == kv.d_head && v.d_head == kv.d_head);
    for (int64_t i = 0; i < k.rows.n_rows; i++) {
        if (slots[i] < 0) continue;
        for (int64_t h = 0; h < kv.n_kv_heads; h++) {
            store_row(k.head<float>(i, h), host_k(kv, slots[i], h));
            store_row(v.head<float>(i, h), host_v(kv, slots[i], h));
        }
    }
}

}  // namespace ridge::ref
