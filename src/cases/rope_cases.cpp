#include <numeric>

#include "cases/case.h"

namespace ridge {
namespace {

constexpr int32_t kFarPosition = 131071;

Case rope(std::vector<int32_t> positions, int n_heads, int d_head, RopeStyle style) {
    const auto n_rows = static_cast<int64_t>(positions.size());
    const bool far = positions.back() > 10000;
    return {.op = Op::kRope,
            .n_rows = n_rows,
            .n_heads = n_heads,
            .d_head = d_head,
            .positions = std::move(positions),
            .rope_style = style,
            .d_rope = d_head,
            .tolerance = far ? 1e-4f : 2e-6f,
            .cancels = true};
}

}  // namespace

void add_rope_cases(std::vector<Case>& cases) {
    std::vector<int32_t> prompt(65);
    std::iota(prompt.begin(), prompt.end(), 31);
    for (RopeStyle style : {RopeStyle::kHalfSplit, RopeStyle::kInterleaved}) {
        for (int d_head : {64, 80, 96, 128, 256}) {
            for (int32_t position : {0, 7, kFarPosition}) {
                cases.push_back(finish_case(rope({position}, 4, d_head, style)));
                cases.push_back(finish_case(rope({position, position, position}, 1, d_head, style),
                                            "one for all rows"));
            }
            cases.push_back(
                finish_case(rope({0, 7, 1, 4096, kFarPosition}, 3, d_head, style), "one per row"));
            cases.push_back(finish_case(rope(prompt, 2, d_head, style), "a prompt"));
        }
        for (int d_rope : {2, 16, 32, 62}) {
            Case c = rope({0, 7, kFarPosition}, 3, 64, style);
            c.d_rope = d_rope;
            cases.push_back(finish_case(c, "the tail stays"));
        }
        for (auto [d_head, factor] : {std::pair{64, 32.0}, std::pair{128, 8.0}}) {
            Case c = rope({0, 7, 8191, 8192, kFarPosition}, 4, d_head, style);
            c.rope_theta = 500000;
            c.rope_factors = llama3_rope_factors(d_head, c.rope_theta, factor, 1, 4, 8192);
            cases.push_back(finish_case(c, "Llama 3 scaling"));
        }
        Case c = rope({7, kFarPosition}, 4, 128, style);
        c.rope_theta = 1e6;
        cases.push_back(finish_case(c, "theta 1e6"));
    }
}

}  // namespace ridge
