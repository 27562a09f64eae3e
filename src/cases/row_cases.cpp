#include "cases/case.h"
#include "format/affine.h"

namespace ridge {
namespace {

// Decoding a weight is exact: bit for bit.
void add_embed_rows(std::vector<Case>& cases) {
    for (const Format& format : formats()) {
        for (int64_t n_rows : {1, 7}) {
            cases.push_back(finish_case({.op = Op::kEmbedRows,
                                         .n_rows = n_rows,
                                         .d_in = 512,
                                         .weights = {{.d_out = 100, .format = format.id}}}));
        }
    }
}

void add_rms_norm(std::vector<Case>& cases) {
    auto add = [&](int64_t n_rows, int64_t d, Fill fill, float scale, float eps,
                   std::string_view note) {
        cases.push_back(finish_case({.op = Op::kRmsNorm,
                                     .n_rows = n_rows,
                                     .d_in = d,
                                     .eps = eps,
                                     .fill = fill,
                                     .scale = scale,
                                     .tolerance = 4e-6f},
                                    note));
    };
    for (int64_t d : {64, 576, 2048, 2560, 4096, 8192}) {
        for (int64_t n_rows : {1, 8, 65}) add(n_rows, d, Fill::kNormal, 1, 1e-5f, "");
    }
    add(2, 33, Fill::kNormal, 1, 1e-6f, "odd width");
    for (int64_t d : {100, 256, 260, 4100, 16384}) add(3, d, Fill::kNormal, 1, 1e-5f, "");
    add(1, 2048, Fill::kConstant, 0, 1e-5f, "zeros");
    add(1, 2048, Fill::kConstant, 1e-20f, 1e-5f, "squares below float32");
    add(1, 2048, Fill::kConstant, 1e4f, 1e-5f, "the sum of squares passes f16");
    add(1, 8192, Fill::kNormal, 1e4f, 1e-6f, "the sum of squares passes f16");
    add(3, 2048, Fill::kNormal, 1e-3f, 1e-5f, "eps weighs");
    add(3, 2048, Fill::kNormal, 1e-3f, 1e-6f, "eps weighs");
    add(3, 576, Fill::kOutlier, 3e3f, 1e-5f, "one outlier");
    add(2, 1000, Fill::kNormal, 1e25f, 1e-5f, "squares pass float32");
    add(2, 1000, Fill::kConstant, 1e19f, 1e-5f, "squares near the end of float32");
    for (int64_t d : {1, 31, 32, 95, 1023}) add(3, d, Fill::kNormal, 1, 1e-5f, "no whole vectors");
    for (int n_heads : {1, 3, 32}) {
        for (int64_t d : {64, 128, 256, 320}) {
            cases.push_back(finish_case({.op = Op::kRmsNorm,
                                         .n_rows = 5,
                                         .d_in = d,
                                         .n_heads = n_heads,
                                         .eps = 1e-6f,
                                         .tolerance = 4e-6f},
                                        "each head"));
        }
    }
}

void add_swiglu(std::vector<Case>& cases) {
    auto add = [&](int64_t n_rows, int64_t d, Fill fill, float scale, std::string_view note) {
        cases.push_back(finish_case({.op = Op::kSwiglu,
                                     .n_rows = n_rows,
                                     .d_in = d,
                                     .fill = fill,
                                     .scale = scale,
                                     .tolerance = 4e-6f},
                                    note));
    };
    for (int64_t d : {1, 33, 1536, 8192}) {
        for (int64_t n_rows : {1, 3, 8, 65}) {
            if (n_rows * d <= 100000) add(n_rows, d, Fill::kNormal, 2, "");
        }
    }
    add(2, 256, Fill::kSigns, 1e4f, "gates of 1e4, -1e4, 0, -0");
    add(2, 256, Fill::kSigns, 80, "exp near the end of float32");
    add(2, 256, Fill::kNormal, 30, "tails");
    add(2, 256, Fill::kConstant, -1e4f, "exp(-gate) is infinite");
    add(2, 1000, Fill::kNormal, 1e4f, "gates of some 1e4");
    add(3, 1025, Fill::kNormal, 2, "one column more than a task's");
}

void add_add(std::vector<Case>& cases) {
    for (int64_t d : {1, 33, 576, 4096}) {
        for (int64_t n_rows : {1, 3, 65}) {
            cases.push_back(finish_case({.op = Op::kAdd, .n_rows = n_rows, .d_in = d}));
        }
    }
    cases.push_back(finish_case({.op = Op::kAdd, .n_rows = 2, .d_in = 64, .scale = 7e4f}));
}

}  // namespace

void add_row_cases(std::vector<Case>& cases) {
    add_embed_rows(cases);
    add_rms_norm(cases);
    add_swiglu(cases);
    add_add(cases);
}

}  // namespace ridge
