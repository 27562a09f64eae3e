#include <cmath>

#include "model/step.h"
#include "ref/ref.h"

namespace ridge::ref {

void rope(Step& step, Heads x, Positions position, const RopeTable& table) {
    if (step.planning) return;
    CHECK(static_cast<int64_t>(position.size()) == x.rows.n_rows && table.d_rope() <= x.d_head);
    const int64_t n_pairs = table.d_rope() / 2;
    const bool half_split = table.style == RopeStyle::kHalfSplit;
    for (int64_t i = 0; i < x.rows.n_rows; i++) {
        if (position[i] < 0) continue;
        for (int64_t pair = 0; pair < n_pairs; pair++) {
            const double angle = position[i] * table.frequency[pair];
            const double cosine = std::cos(angle), sine = std::sin(angle);
            const int64_t a = half_split ? pair : 2 * pair;
            const int64_t b = half_split ? pair + n_pairs : 2 * pair + 1;
            for (int64_t h = 0; h < x.n_heads; h++) {
                float* head = x.head<float>(i, h);
                const double xa = head[a], xb = head[b];
                head[a] = static_cast<float>(xa * cosine - xb * sine);
                head[b] = static_cast<float>(xa * sine + xb * cosine);
            }
        }
    }
}

}  // namespace ridge::ref
