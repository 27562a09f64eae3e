#include <algorithm>

#include "cpu/dot.h"
#include "cpu/plain.h"
#include "model/step.h"

namespace ridge::plain {
namespace {

constexpr int64_t kWeightGrain = 16;  // weight rows that a thread takes at a time

// One weight row, unpacked to w [d_in] f32, times every row of x; the results go to column `column`
// of out.
void multiply_row(const float* w, float bias, Rows x, int64_t column, Rows out) {
    int64_t i = 0;
    for (; i + 4 <= x.n_rows; i += 4) {
        float sums[4];
        dot4(w, x.row<float>(i), x.stride, x.n_cols, sums);
        for (int64_t r = 0; r < 4; r++) out.row<float>(i + r)[column] = sums[r] + bias;
    }
    for (; i < x.n_rows; i++) out.row<float>(i)[column] = dot(w, x.row<float>(i), x.n_cols) + bias;
}

}  // namespace

// matmul: out[i, j] = sum_k x[i, k] * w[j, k] + bias[j]
//   x [n_rows, d_in] f32; one to three weights w [d_out, d_in] of any format and layout, biases
//   [d_out] f32; out [n_rows, sum of d_out] f32. Each weight row is unpacked once to f32 and
//   multiplied with every row of x; threads share the weight rows. Sums in f32, eight lanes. Reads
//   each weight byte once.
void matmul(Step& s, Rows x, LinearGroup group, Rows out) {
    Rows unpacked = s.scratch(s.pool.size(), x.n_cols);
    if (s.planning) return;
    CHECK(out.n_cols == group.d_out());
    s.pool.parallel_for(out.n_cols, kWeightGrain, [&](int64_t begin, int64_t end, int worker) {
        float* w = unpacked.row<float>(worker);
        int64_t first = 0;  // column of out where the current weight starts
        for (int g = 0; g < group.n_weights; g++) {
            const Linear& linear = *group.weights[static_cast<size_t>(g)];
            int64_t d_out = linear.weight.n_rows();
            CHECK(linear.weight.n_cols() == x.n_cols);
            auto* bias =
                linear.bias ? reinterpret_cast<const float*>(linear.bias.planes[0].data) : nullptr;
            for (int64_t j = std::max(begin, first); j < std::min(end, first + d_out); j++) {
                unpack_row(linear.weight, j - first, w);
                multiply_row(w, bias == nullptr ? 0.0f : bias[j - first], x, j, out);
            }
            first += d_out;
        }
    });
}

}  // namespace ridge::plain
