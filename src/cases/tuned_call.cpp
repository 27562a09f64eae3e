#include "cases/tuned_call.h"

namespace ridge {

MatmulCall matmul_call_of(const Case& c, int size) {
    MatmulCall call{c.row_class, size, c.d_in, {}};
    for (size_t i = 0; i < c.weights.size(); i++) {
        call.weights[i] = {c.weights[i].d_out, c.weights[i].format};
    }
    return call;
}

AttentionCall attention_call_of(const Case& c, RowClass row_class, int size) {
    return {row_class, size, c.n_heads, c.n_kv_heads, c.d_head, c.k_dtype, c.v_dtype};
}

}  // namespace ridge
