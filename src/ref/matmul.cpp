#include <vector>

#include "model/step.h"
#include "ref/ref.h"

namespace ridge::ref {

// out[i] = W x[i] + b, one weight of a group.
static void multiply(Rows x, const Linear& linear, Rows out) {
    const Tensor& weight = linear.weight;
    CHECK(weight.n_cols() == x.n_cols && weight.n_rows() == out.n_cols);
    std::vector<float> w(static_cast<size_t>(x.n_cols)), bias(static_cast<size_t>(out.n_cols));
    if (linear.bias) {
        CHECK(linear.bias.n_elements() == out.n_cols);
        unpack_row(linear.bias, 0, bias.data());
    }
    for (int64_t j = 0; j < out.n_cols; j++) {
        unpack_row(weight, j, w.data());
        for (int64_t i = 0; i < x.n_rows; i++) {
            const float* row = x.row<float>(i);
            double sum = 0;
            for (int64_t k = 0; k < x.n_cols; k++) sum += double{row[k]} * double{w[k]};
            out.row<float>(i)[j] = static_cast<float>(sum + double{bias[j]});
        }
    }
}

void matmul(Step& step, Rows x, LinearGroup weights, Rows out) {
    if (step.planning) return;
    CHECK(out.n_rows == x.n_rows && out.n_cols == weights.d_out());
    int64_t first = 0;
    for (int w = 0; w < weights.n_weights; w++) {
        const int64_t n = weights.weights[w]->weight.n_rows();
        multiply(x, *weights.weights[w], out.cols(first, n));
        first += n;
    }
}

}  // namespace ridge::ref
