#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "cases/case_run.h"
#include "cases/claims.h"
#include "cuda/case_subjects.h"
#include "cuda/checkpoints.h"
#include "cuda/tiles.h"
#include "device/device_cases.h"
#include "support/seed.h"
#include "support/thin.h"

// The operators of every checkpoint on a GPU. Needs one: scripts/device-test runs this.

namespace ridge {
namespace {

constexpr Op kOps[] = {Op::kEmbedRows, Op::kRmsNorm, Op::kMatmul, Op::kRope,  Op::kKvAppend,
                       Op::kAttention, Op::kSwiglu,  Op::kAdd,    Op::kSample};

class Operators : public testing::TestWithParam<Op> {};

// Operands are rounded to f16, each by 2^-11 at most; elements are judged together, and each must
// be a number where the reference's is.
constexpr float kRounded = 1e-3f, kFinite = 1e30f;

TEST_P(Operators, agree_with_the_reference) {
    const CudaCases cuda = make_cuda_cases({.threads = 2});
    CheckPlace place;
    place.device = cuda.device.get();
    const std::vector<Subject> subjects = cuda_subjects(GetParam(), cuda.caps);
    std::map<std::string, Difference> worst;
    uint64_t seed = test_seed();
    std::vector<Check> checks = checks_of(GetParam());
    std::erase_if(checks, [](const Check& check) { return check.claims[0] != Claim::kAgrees; });
    for (const Check& check : thinned(std::move(checks), static_cast<uint64_t>(GetParam()))) {
        CheckRun run(check, ++seed, place);
        for (const Subject& subject : subjects) {
            SCOPED_TRACE(fmt::format("{}, checkpoint {}, RIDGE_SEED={}", check.c.name,
                                     subject.name(), test_seed()));
            for (const Finding& finding : run.run(subject)) {
                EXPECT_EQ(finding.fault, "");
                Difference& w = worst[subject.name()];
                w.worst = std::max(w.worst, finding.difference.worst);
                w.relative_l2 = std::max(w.relative_l2, finding.difference.relative_l2);
            }
        }
    }
    for (const auto& [name, w] : worst) {
        fmt::print("{} at {}: worst element {:.2e}, relative L2 {:.2e}\n", op_name(GetParam()),
                   name, w.worst, w.relative_l2);
    }
}

INSTANTIATE_TEST_SUITE_P(Cuda, Operators, testing::ValuesIn(kOps),
                         [](const testing::TestParamInfo<Op>& test) {
                             return std::string(op_name(test.param));
                         });

// What `matvec` makes of cases on a GPU.
class Matvec : public testing::Test {
  protected:
    // Near the reference, too.
    Outputs run(const Case& c, uint64_t seed) {
        auto& [cuda, pool, ref_tables] = device_;
        CaseRun run(c, seed);
        const Outputs got = run.run(tables_, pool, cuda.device.get());
        Case judged = c;
        judged.tolerance = kFinite;
        const Difference difference = compare(judged, run.run(ref_tables, pool), got);
        EXPECT_EQ(difference.fault, "");
        EXPECT_LT(difference.relative_l2, kRounded);
        return got;
    }
    // The first row of many has the bits that it has alone.
    void expect_first_row_alone(const Case& c) {
        SCOPED_TRACE(fmt::format("{}, RIDGE_SEED={}", c.name, test_seed()));
        const Outputs together = run(c, test_seed());
        Case first = c;
        first.n_rows = 1;
        const Outputs alone = run(finish_case(first), test_seed());
        for (int64_t j = 0; j < alone.n_cols; j++) {
            EXPECT_EQ(alone.values[static_cast<size_t>(j)],
                      together.values[static_cast<size_t>(j)]);
        }
    }

  private:
    DeviceCases device_;
    const Tables tables_ = resolve_tables(cuda_checkpoints(), "matvec", device_.cuda.caps);
};

// Rows so long that shared memory does not hold eight of them: they are multiplied in fewer at a
// time, and give what they give alone.
TEST_F(Matvec, takes_as_many_rows_as_there_is_room_for) {
    for (FormatId format : {FormatId::kBF16, FormatId::kQ6_K, FormatId::kQ8_0}) {
        for (int64_t d_in : {9728, 14336, 32768}) {
            Case c{.op = Op::kMatmul, .n_rows = 8, .d_in = d_in};
            c.weights = {{48, format}};
            expect_first_row_alone(finish_case(c));
        }
    }
}

// A single row goes to other kernels than several do, of rows of some lengths to ones that are made
// for those: it has the bits that it has in company.
TEST_F(Matvec, a_row_alone_is_what_it_is_in_company) {
    for (const Format& format : formats()) {
        if (!ridge::cuda::has_tiles(format.id)) continue;
        for (int64_t d_in : {512, 2048, 2560, 4096, 4352, 8192, 9728, 28672}) {
            Case c{.op = Op::kMatmul, .n_rows = 3, .d_in = d_in};
            c.weights = {{40, format.id}, {20, format.id, true}};
            expect_first_row_alone(finish_case(c));
        }
    }
}

// Inputs and weights are brought to what f16 holds and back, by powers of two.
TEST_F(Matvec, agrees_with_the_reference_at_any_magnitude) {
    struct Magnitude {
        Fill fill;
        float scale, weight_scale;
    };
    uint64_t seed = test_seed();
    for (const Format& format : formats()) {
        if (!ridge::cuda::has_tiles(format.id)) continue;
        std::vector<Magnitude> magnitudes = {{Fill::kNormal, 1e-30f, 1},
                                             {Fill::kNormal, 1e30f, 1},
                                             {Fill::kOutlier, 1e6f, 1},
                                             {Fill::kNormal, 1e-3f, 1e4f}};
        if (format.id == FormatId::kBF16) {
            magnitudes.push_back({Fill::kNormal, 1e25f, 1e-30f});
            magnitudes.push_back({Fill::kNormal, 1e-25f, 1e30f});
        }
        for (const Magnitude& m : magnitudes) {
            for (int64_t n_rows : {1, 3, 8}) {
                Case c{.op = Op::kMatmul, .n_rows = n_rows, .d_in = 512};
                c.weights = {{.d_out = 33, .format = format.id},
                             {.d_out = 70, .format = format.id, .bias = true}};
                c.fill = m.fill, c.scale = m.scale, c.weight_scale = m.weight_scale;
                c = finish_case(c);
                SCOPED_TRACE(fmt::format("{}, x {}, weights {}, RIDGE_SEED={}", c.name, m.scale,
                                         m.weight_scale, test_seed()));
                run(c, ++seed);
            }
        }
    }
}

}  // namespace
}  // namespace ridge
