#include "cases/claims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "cases/subject.h"
#include "model/step.h"
#include "ref/host_kv.h"
#include "ref/ref.h"
#include "support/seed.h"

// Checks find kernels that are wrong, each in a way that one claim is about.

namespace ridge {
namespace {

void right_ops(Tables& tables, const Caps&) {
    ref::add_ref_ops(tables, "ref");
}

void last_element_off(Step& s, Heads x, const Tensor& weight, float eps, Heads out) {
    ref::rms_norm(s, x, weight, eps, out);
    if (!s.planning) out.rows.row<float>(out.rows.n_rows - 1)[out.rows.n_cols - 1] += 1e-3f;
}

void other_bits_on_three_threads(Step& s, Heads x, const Tensor& weight, float eps, Heads out) {
    ref::rms_norm(s, x, weight, eps, out);
    float& first = out.rows.row<float>(0)[0];
    if (!s.planning && s.pool.size() == 3) first = std::nextafter(first, 10.0f);
}

void other_bits_in_company(Step& s, Heads x, const Tensor& weight, float eps, Heads out) {
    ref::rms_norm(s, x, weight, eps, out);
    float& first = out.rows.row<float>(0)[0];
    if (!s.planning && x.rows.n_rows > 8) first = std::nextafter(first, 10.0f);
}

void other_bits_of_seven_rows(Step& s, Heads q, KvLayer kv, Heads out) {
    ref::attention(s, q, kv, out);
    float& first = out.rows.row<float>(0)[0];
    if (!s.planning && q.rows.n_rows == 7) first = std::nextafter(first, 10.0f);
}

// What the last position of a sequence holds, times 0, comes to all its rows.
void touched_by_the_last_position(Step& s, Heads q, KvLayer kv, Heads out) {
    ref::attention(s, q, kv, out);
    if (s.planning) return;
    std::vector<float> v(static_cast<size_t>(kv.d_head));
    for (const SequenceSpan& span : s.batch.spans) {
        const auto first = s.batch.positions.begin() + span.first_row;
        const int32_t last = *std::max_element(first, first + span.n_rows);
        if (last < 0) continue;  // all masked
        load_row(host_v(kv, span.kv.slot(last), 0), v.data());
        for (int32_t i = span.first_row; i < span.first_row + span.n_rows; i++) {
            out.rows.row<float>(i)[0] += 0 * v[0];
        }
    }
}

// The second of two checkpoints.
Subject subject_of(Op op, void (*apply)(Tables&, const Caps&)) {
    const Checkpoint list[] = {{"ref", "", right_ops}, {"mine", "", apply}};
    const NamedCaps machine[] = {{"", {}}};
    std::vector<Subject> subjects = subjects_of(list, op, machine);
    CHECK(subjects.size() == 2 && subjects[1].name() == "mine");
    return subjects[1];
}

// The claims that a kernel is found to break.
std::set<Claim> broken(Op op, void (*apply)(Tables&, const Caps&)) {
    const Subject subject = subject_of(op, apply);
    CheckPlace place;
    std::set<Claim> claims;
    for (const Check& check : checks_of(op)) {
        if (check.claims[0] == Claim::kAgrees && check.c.bytes > 100'000) continue;  // slow
        for (const Finding& finding : CheckRun(check, test_seed(), place).run(subject)) {
            if (!finding.fault.empty()) claims.insert(finding.claim);
        }
    }
    return claims;
}

using Claims = std::set<Claim>;

TEST(Claims, what_is_right_breaks_none) {
    EXPECT_EQ(broken(Op::kRmsNorm,
                     [](Tables& t, const Caps&) { t.ops.rms_norm.set("mine", ref::rms_norm); }),
              Claims{});
}

TEST(Claims, one_wrong_element_is_no_agreement) {
    EXPECT_TRUE(broken(Op::kRmsNorm, [](Tables& t, const Caps&) {
                    t.ops.rms_norm.set("mine", last_element_off);
                }).contains(Claim::kAgrees));
}

TEST(Claims, the_first_wrong_element_is_named) {
    const Subject subject = subject_of(
        Op::kRmsNorm, [](Tables& t, const Caps&) { t.ops.rms_norm.set("mine", last_element_off); });
    CheckPlace place;
    const Check check = checks_of(Op::kRmsNorm).front();
    ASSERT_EQ(check.c.d_in, 64);
    const std::vector<Finding> findings = CheckRun(check, 1, place).run(subject);
    ASSERT_EQ(findings.size(), 2u);
    EXPECT_EQ(findings[0].fault.rfind("row 0, column 63: ", 0), 0u) << findings[0].fault;
    EXPECT_EQ(findings[1].fault, "");
}

TEST(Claims, other_bits_on_other_threads_are_found) {
    EXPECT_EQ(broken(Op::kRmsNorm,
                     [](Tables& t, const Caps&) {
                         t.ops.rms_norm.set("mine", other_bits_on_three_threads);
                     }),
              Claims{Claim::kThreads});
}

TEST(Claims, rows_that_depend_on_their_number_are_found) {
    EXPECT_EQ(
        broken(Op::kRmsNorm,
               [](Tables& t, const Caps&) { t.ops.rms_norm.set("mine", other_bits_in_company); }),
        Claims{Claim::kRows});
}

TEST(Claims, rows_that_depend_on_a_cut_are_found) {
    EXPECT_EQ(broken(Op::kAttention,
                     [](Tables& t, const Caps&) {
                         t.ops.attention.set("mine", other_bits_of_seven_rows);
                     }),
              Claims{Claim::kCuts});
}

TEST(Claims, rows_that_see_later_positions_are_found) {
    EXPECT_EQ(broken(Op::kAttention,
                     [](Tables& t, const Caps&) {
                         t.ops.attention.set("mine", touched_by_the_last_position);
                     }),
              Claims{Claim::kLater});
}

TEST(Claims, every_operator_has_checks_and_every_claim_is_of_some) {
    Claims claims;
    for (int op = 0; op < kNumOps; op++) {
        const std::vector<Check> checks = checks_of(static_cast<Op>(op));
        EXPECT_FALSE(checks.empty()) << op_name(static_cast<Op>(op));
        for (const Check& check : checks) {
            EXPECT_FALSE(check.c.name.empty());
            claims.insert(check.claims.begin(), check.claims.end());
        }
    }
    EXPECT_EQ(claims.size(), static_cast<size_t>(kNumClaims));
}

TEST(Subjects, are_the_checkpoints_that_change_the_operator) {
    const Checkpoint list[] = {
        {"ref", "", right_ops},
        {"norms", "",
         [](Tables& t, const Caps&) { t.ops.rms_norm.set("norms", last_element_off); }},
        {"stages", "", [](Tables&, const Caps&) {}}};
    const NamedCaps machines[] = {{"one", {}}, {"two", {}}};
    EXPECT_EQ(subjects_of(list, Op::kRmsNorm, machines).size(), 2u);
    EXPECT_EQ(subjects_of(list, Op::kAdd, machines).size(), 1u);
}

TEST(Case, names_its_formats) {
    Case c{.op = Op::kMatmul, .d_in = 256};
    c.weights = {{4, FormatId::kQ4_K}, {4, FormatId::kQ4_K}, {4, FormatId::kQ6_K}};
    EXPECT_EQ(formats_of(c), (std::vector<std::string>{"Q4_K", "Q6_K"}));
    c = {.op = Op::kAttention, .sequences = {{4, 1}}, .k_dtype = DType::kBF16};
    EXPECT_EQ(formats_of(c), std::vector<std::string>{"bf16 f16"});
    c.k_dtype = DType::kF16;
    EXPECT_EQ(formats_of(c), std::vector<std::string>{"f16"});
    EXPECT_EQ(formats_of({.op = Op::kAdd}), std::vector<std::string>{"f32"});
}

}  // namespace
}  // namespace ridge
