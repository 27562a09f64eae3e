#include "cases/case.h"
#include "format/affine.h"

namespace ridge {
namespace {

constexpr float kTolerance = 1e-5f;  // float32 sums of a few thousand products

Case matmul(int64_t n_rows, int64_t d_in, std::vector<CaseWeight> weights) {
    return {.op = Op::kMatmul,
            .n_rows = n_rows,
            .d_in = d_in,
            .weights = std::move(weights),
            .row_class = n_rows > 8 ? RowClass::kPrompt : RowClass::kDecode,
            .tolerance = kTolerance,
            .cancels = true};
}

// Every format at row counts around those that kernels are made for.
void add_formats(std::vector<Case>& cases) {
    for (const Format& format : formats()) {
        for (int64_t n_rows : {1, 2, 3, 8, 65}) {
            cases.push_back(finish_case(matmul(
                n_rows, 512, {{.d_out = 37, .format = format.id, .bias = n_rows % 2 == 0}})));
        }
        // The smallest row that a format has, and one that no power of two divides.
        const int64_t block = format.block_elements == 256 ? 256 : 32;
        for (int64_t n_blocks : {1, 3, 7}) {
            const CaseWeight weight{.d_out = 5, .format = format.id, .group_size = 32};
            for (int64_t n_rows : {1, 3, 9}) {
                cases.push_back(finish_case(matmul(n_rows, n_blocks * block, {weight})));
            }
        }
    }
    for (FormatId format : {FormatId::kAffine4, FormatId::kAffine8}) {
        for (int group_size : {32, 64, 128}) {
            for (FormatId scales : {FormatId::kF32, FormatId::kF16, FormatId::kBF16}) {
                const CaseWeight weight{.d_out = 19,
                                        .format = format,
                                        .group_size = group_size,
                                        .scale_format = scales};
                for (int64_t n_rows : {2, 9, 65}) {
                    cases.push_back(finish_case(matmul(n_rows, 384, {weight})));
                }
            }
        }
    }
    for (FormatId format : {FormatId::kF32, FormatId::kF16, FormatId::kBF16}) {
        for (int64_t d_in : {1, 3, 17, 65}) {
            for (int64_t n_rows : {3, 9}) {
                cases.push_back(
                    finish_case(matmul(n_rows, d_in, {{.d_out = 3, .format = format}})));
            }
        }
    }
}

// Weights side by side, as QKV and gate/up are; Q4_K_M files mix formats in one group.
void add_groups(std::vector<Case>& cases) {
    using enum FormatId;
    const std::vector<std::vector<CaseWeight>> groups = {
        {{33, kQ4_K}, {17, kQ6_K}},
        {{40, kQ4_K}, {8, kQ4_K}, {8, kQ6_K}},
        {{48, kQ4_0}, {16, kQ4_0}, {16, kQ4_0}},
        {{48, kBF16, true}, {16, kBF16, true}, {16, kBF16, true}},
        {{40, kQ5_0, true}, {8, kQ8_0}, {24, kF16, true}},
        {{1, kQ8_0}, {1, kF32, true}, {1, kQ2_K}},
        {{32, kAffine4}, {16, kAffine8}, {16, kBF16}},
        {{64, kIQ4_NL}, {64, kIQ4_XS}},
        {{64, kQ3_K}, {64, kQ5_K}},
        {{40, kBF16}, {40, kBF16, true}},  // compact, where that is faster: both, and one
        {{40, kBF16, true}, {40, kQ4_0}},
    };
    for (const auto& group : groups) {
        for (int64_t n_rows : {1, 3, 8, 65}) {
            cases.push_back(finish_case(matmul(n_rows, 768, group)));
        }
    }
    // So many rows that whoever multiplies goes on from one weight to the next.
    for (int64_t n_rows : {1, 8}) {
        cases.push_back(finish_case(
            matmul(n_rows, 256, {{8192, kQ4_0, true}, {512, kQ4_0}, {512, kQ4_0, true}})));
    }
}

// 70,000 does not fit f16, its product with 0.001 does.
void add_extremes(std::vector<Case>& cases) {
    using enum FormatId;
    for (FormatId format : {kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ8_0, kQ4_K, kQ6_K, kAffine4}) {
        for (int64_t n_rows : {1, 63, 64, 65}) {
            for (Fill fill : {Fill::kConstant, Fill::kOutlier}) {
                if (fill == Fill::kOutlier && n_rows > 1) continue;
                Case c = matmul(n_rows, 512, {{.d_out = 33, .format = format}});
                c.fill = fill, c.scale = 70000, c.weight_scale = 1e-3f;
                cases.push_back(finish_case(
                    c, fill == Fill::kConstant ? "activations of 70000" : "one of 70000"));
            }
        }
        Case c = matmul(2, 512, {{.d_out = 33, .format = format}});
        c.fill = Fill::kConstant, c.scale = 0;
        cases.push_back(finish_case(c, "zeros"));
    }
}

// The projections of models as they are: SmolLM2 135M and Llama 3.2 1B.
void add_models(std::vector<Case>& cases) {
    using enum FormatId;
    for (int64_t n_rows : {1, 8}) {
        cases.push_back(
            finish_case(matmul(n_rows, 576, {{576, kQ4_1}, {192, kQ4_1}, {192, kQ4_1}}), "QKV"));
        cases.push_back(
            finish_case(matmul(n_rows, 576, {{1536, kQ4_1}, {1536, kQ4_1}}), "gate, up"));
        cases.push_back(finish_case(matmul(n_rows, 1536, {{576, kQ4_1}}), "down"));
    }
    for (FormatId format : {kBF16, kQ4_0, kQ8_0, kQ4_K}) {
        cases.push_back(
            finish_case(matmul(1, 2048, {{2048, format}, {512, format}, {512, format}}), "QKV"));
        cases.push_back(finish_case(matmul(1, 8192, {{2048, format}}), "down"));
    }
}

}  // namespace

void add_matmul_cases(std::vector<Case>& cases) {
    add_formats(cases);
    add_groups(cases);
    add_extremes(cases);
    add_models(cases);
}

}  // namespace ridge
