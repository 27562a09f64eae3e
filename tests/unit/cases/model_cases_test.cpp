#include "cases/model_cases.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/synth.h"

namespace ridge {
namespace {

// Shapes alone, so nothing is allocated for the weights.
struct Shapes {
    Config config;
    Weights weights;

    Shapes() {
        config.n_layers = 2;
        config.d_model = 2560, config.d_ff = 9728, config.n_vocab = 151936;
        config.n_heads = 32, config.n_kv_heads = 8, config.d_head = 128, config.d_rope = 128;
        config.norm_eps = 1e-6f;
        config.qk_norm = true;
        weights.layers.resize(2);
        for (int i = 0; i < 2; i++) {
            Layer& layer = weights.layers[static_cast<size_t>(i)];
            layer.index = i;
            layer.q = linear(4096, 2560), layer.k = linear(1024, 2560);
            layer.v = linear(1024, 2560, i == 0 ? FormatId::kQ6_K : FormatId::kQ4_K);
            layer.o = linear(2560, 4096);
            layer.gate = linear(9728, 2560), layer.up = linear(9728, 2560);
            layer.down = linear(2560, 9728);
        }
        weights.head = linear(151936, 2560);
        weights.embedding = weights.head.weight;
    }

    static Linear linear(int64_t d_out, int64_t d_in, FormatId format = FormatId::kQ4_K) {
        Linear linear;
        linear.weight.name = "weight";
        linear.weight.format = &format_of(format);
        linear.weight.layout = &row_major_layout();
        linear.weight.n_dims = 2;
        linear.weight.shape = {d_out, d_in};
        return linear;
    }
};

std::vector<std::string> names_of(const std::vector<Case>& cases, Op op) {
    std::vector<std::string> names;
    for (const Case& c : cases) {
        if (c.op == op) names.push_back(c.name);
    }
    return names;
}

TEST(ModelCases, are_the_calls_of_a_decode_step_each_shape_and_format_once) {
    const Shapes shapes;
    StepShape step;
    step.n_ctx = 129;
    const std::vector<Case> cases = model_cases(shapes.config, shapes.weights, step);
    EXPECT_EQ(names_of(cases, Op::kMatmul),
              (std::vector<std::string>{
                  "matmul: 1 rows x 2560 -> 4096 Q4_K 1024 Q4_K 1024 Q6_K",
                  "matmul: 1 rows x 4096 -> 2560 Q4_K",
                  "matmul: 1 rows x 2560 -> 9728 Q4_K 9728 Q4_K",
                  "matmul: 1 rows x 9728 -> 2560 Q4_K",
                  "matmul: 1 rows x 2560 -> 4096 Q4_K 1024 Q4_K 1024 Q4_K",
                  "matmul: 1 rows x 2560 -> 151936 Q4_K",
              }));
    EXPECT_EQ(names_of(cases, Op::kRmsNorm).size(), 3u) << "of rows, of heads of q, of heads of k";
    EXPECT_EQ(
        names_of(cases, Op::kAttention),
        (std::vector<std::string>{"attention: heads 32/8 of 128, f16 f16 contiguous, d1 of 129"}));
    for (Op op : {Op::kEmbedRows, Op::kKvAppend, Op::kSwiglu, Op::kAdd, Op::kSample}) {
        EXPECT_EQ(names_of(cases, op).size(), 1u) << op_name(op);
    }
    const auto gate_up = std::find_if(cases.begin(), cases.end(), [](const Case& c) {
        return c.name == "matmul: 1 rows x 2560 -> 9728 Q4_K 9728 Q4_K";
    });
    // 2 x 9,728 rows of 10 blocks of 144 bytes, and 2,560 + 2 x 9,728 activations of 4.
    EXPECT_EQ(gate_up->bytes, 2 * 9728 * 10 * 144 + 4 * (2560 + 2 * 9728));
    EXPECT_EQ(gate_up->flops, int64_t{2} * 2560 * 2 * 9728);
}

TEST(ModelCases, of_a_prompt_end_with_logits_of_one_row) {
    const Shapes shapes;
    StepShape step;
    step.row_class = RowClass::kPrompt, step.n_rows = 64, step.n_ctx = 64;
    const std::vector<Case> cases = model_cases(shapes.config, shapes.weights, step);
    EXPECT_EQ(names_of(cases, Op::kMatmul).back(), "matmul: 1 rows x 2560 -> 151936 Q4_K");
    EXPECT_EQ(names_of(cases, Op::kMatmul).front(),
              "matmul: 64 rows x 2560 -> 4096 Q4_K 1024 Q4_K 1024 Q6_K");
    for (const Case& c : cases) {
        if (c.op != Op::kAttention) continue;
        EXPECT_EQ(c.sequences.front().row_class, RowClass::kPrompt);
    }
}

}  // namespace
}  // namespace ridge
