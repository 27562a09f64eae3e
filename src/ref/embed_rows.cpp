#include "model/step.h"
#include "ref/ref.h"

namespace ridge::ref {

void embed_rows(Step& step, const Tensor& table, Tokens token, Rows out) {
    if (step.planning) return;
    CHECK(out.n_rows == static_cast<int64_t>(token.size()) && out.n_cols == table.n_cols());
    for (int64_t i = 0; i < out.n_rows; i++) {
        CHECK(token[i] >= 0 && token[i] < table.n_rows());
        unpack_row(table, token[i], out.row<float>(i));
    }
}

}  // namespace ridge::ref
