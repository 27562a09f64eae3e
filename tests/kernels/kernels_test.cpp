#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "cases/claims.h"
#include "support/all_kernels.h"
#include "support/seed.h"
#include "support/thin.h"

// What is claimed of every kernel (cases/claims.h): all checkpoints of the CPU that change an
// operator, on every instruction set.

namespace ridge {
namespace {

// The worst of one subject's differences from the reference.
struct Worst {
    double element = 0, relative_l2 = 0, from_exact = 0;
};

// The claim's checks of an operator on all its kernels. Worst errors are printed: they are what the
// tolerances are chosen by.
void expect(Op op, Claim claim) {
    static const std::deque<IsaKernels> kernels = kernels_of_all_isas();
    std::vector<Check> checks = checks_of(op);
    std::erase_if(checks, [&](const Check& check) {
        return std::find(check.claims.begin(), check.claims.end(), claim) == check.claims.end();
    });
    ASSERT_FALSE(checks.empty());
    const std::vector<Subject> subjects = cpu_subjects(op, kernels, 3);
    CheckPlace place;
    std::map<std::string, Worst> worst;
    uint64_t seed = test_seed();
    for (const Check& check : thinned(std::move(checks), static_cast<uint64_t>(op))) {
        CheckRun run(check, ++seed, place);
        for (const Subject& subject : subjects) {
            SCOPED_TRACE(fmt::format("{}, checkpoint {}, RIDGE_SEED={}", check.c.name,
                                     subject.name(), test_seed()));
            const std::vector<Finding> findings = run.run(subject);
            ASSERT_EQ(findings.size(), check.claims.size());
            for (const Finding& finding : findings) {
                EXPECT_EQ(finding.fault, "") << claim_text(finding.claim);
                if (finding.claim != Claim::kAgrees) continue;
                Worst& w = worst[subject.name()];
                w.element = std::max(w.element, finding.difference.worst);
                w.relative_l2 = std::max(w.relative_l2, finding.difference.relative_l2);
                w.from_exact = std::max(w.from_exact, finding.from_exact);
            }
        }
    }
    for (const auto& [name, w] : worst) {
        fmt::print(
            "{} at {}: worst element {:.2e}, relative L2 {:.2e}, {:.2e} with what operands "
            "lose\n",
            op_name(op), name, w.element, w.relative_l2, w.from_exact);
    }
}

class Kernels : public testing::TestWithParam<Op> {};

TEST_P(Kernels, agree_with_the_reference_on_any_number_of_threads) {
    expect(GetParam(), Claim::kAgrees);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Kernels,
                         testing::Values(Op::kEmbedRows, Op::kRmsNorm, Op::kMatmul, Op::kRope,
                                         Op::kKvAppend, Op::kAttention, Op::kSwiglu, Op::kAdd,
                                         Op::kSample),
                         [](const testing::TestParamInfo<Op>& test) {
                             return std::string(op_name(test.param));
                         });

// Every operator on rows has its first rows come out alike, however many follow.
TEST(BatchInvariance, rows_do_not_depend_on_their_number) {
    for (Op op : {Op::kMatmul, Op::kRmsNorm, Op::kSwiglu, Op::kAdd, Op::kRope}) {
        expect(op, Claim::kRows);
    }
}

TEST(BatchInvariance, a_sequence_attends_alone_as_among_others) {
    expect(Op::kAttention, Claim::kRows);
}

TEST(BatchInvariance, a_prompt_attends_alike_wherever_it_is_cut) {
    expect(Op::kAttention, Claim::kCuts);
}

// What a position holds is nothing to the rows before it, be it no number.
TEST(Attention, rows_do_not_see_later_positions) {
    expect(Op::kAttention, Claim::kLater);
}

}  // namespace
}  // namespace ridge
