#include "model/step.h"
#include "ref/ref.h"

namespace ridge::ref {

void add(Step& step, Rows y, Rows x) {
    if (step.planning) return;
    CHECK(y.n_rows == x.n_rows && y.n_cols == x.n_cols);
    for (int64_t i = 0; i < x.n_rows; i++) {
        const float* from = y.row<float>(i);
        float* to = x.row<float>(i);
        for (int64_t k = 0; k < x.n_cols; k++) to[k] += from[k];
    }
}

}  // namespace ridge::ref
