#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "cmd/verify_kernels.h"
#include "cmd/verify_matrix.h"
#include "cmd/verify_models.h"
#include "cmd/verify_report.h"
#include "ref/ref.h"
#include "support/error_of.h"

namespace ridge {
namespace {

VerifyKey key_of(const std::string& isa, const std::string& format,
                 const std::string& claim = "agrees") {
    return {"cpu", "matmul", "gemm", isa, format, claim};
}

VerifyFigures figures_of(double l2, int64_t n_failed = 0) {
    return {.n_cases = 1,
            .n_failed = n_failed,
            .worst = 2 * l2,
            .relative_l2 = l2,
            .from_exact = 3 * l2};
}

TEST(VerifyReport, a_row_holds_the_worst_of_its_cases) {
    VerifyReport report;
    report.add(key_of("avx2", "Q4_0"), figures_of(1e-6));
    report.add(key_of("avx2", "Q8_0"), figures_of(5e-6));
    report.add(key_of("avx2", "Q4_0"), figures_of(3e-6));
    ASSERT_EQ(report.rows().size(), 2u);
    const VerifyFigures& first = report.rows()[0].figures;
    EXPECT_EQ(first.n_cases, 2);
    EXPECT_EQ(first.relative_l2, 3e-6);
    EXPECT_EQ(first.worst, 6e-6);
    EXPECT_EQ(report.exit_status(), 0);
}

TEST(VerifyReport, one_failure_or_nothing_at_all_is_status_1) {
    EXPECT_EQ(VerifyReport().exit_status(), 1);
    VerifyReport report;
    report.add(key_of("avx2", "Q4_0"), figures_of(1, 1));
    report.add_failure({key_of("avx2", "Q4_0"), "matmul: 1 rows", "row 0, column 3: 1"});
    report.add(key_of("avx2", "Q8_0"), figures_of(0));
    EXPECT_EQ(report.exit_status(), 1);
    EXPECT_EQ(failure_line(report.failures()[0], 7),
              "matmul at gemm on avx2, Q4_0, agrees: matmul: 1 rows, --seed 7: row 0, column 3: 1");
    const auto json = verify_json(report);
    EXPECT_EQ(json["rows"][0]["holds"], false);
    EXPECT_EQ(json["rows"][1]["holds"], true);
    EXPECT_EQ(json["failures"][0]["case"], "matmul: 1 rows");
    const std::string table = verify_table(report, false);
    EXPECT_NE(table.find("1 FAIL"), std::string::npos) << table;
}

TEST(VerifyReport, the_table_has_one_row_for_formats_that_hold) {
    VerifyReport report;
    for (const char* format : {"Q4_0", "Q8_0"}) {
        for (const char* claim : {"agrees", "threads"}) {
            report.add(key_of("avx2", format, claim), figures_of(1e-6));
        }
    }
    const std::string table = verify_table(report, false);
    EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3);
    EXPECT_NE(table.find("2 formats"), std::string::npos);
    const std::string full = verify_table(report, true);
    EXPECT_EQ(std::count(full.begin(), full.end(), '\n'), 5);
}

// A wrong kernel in a list of its own, as a user's would stand there.
void wrong_norm(Step& s, Heads x, const Tensor& weight, float eps, Heads out) {
    ref::rms_norm(s, x, weight, eps, out);
    if (!s.planning && x.n_heads == 3) out.rows.row<float>(1)[2] = NAN;
}

constexpr Checkpoint kWithWrongNorm[] = {
    {"ref", "", [](Tables& t, const Caps&) { ref::add_ref_ops(t, "ref"); }},
    {"mine", "", [](Tables& t, const Caps&) { t.ops.rms_norm.set("mine", wrong_norm); }}};

VerifyReport verify_wrong_norm(const VerifyFilter& filter, int* n_told = nullptr) {
    const KernelSource source{"cpu", [](Op op) {
                                  const NamedCaps machine[] = {{"", {}}};
                                  return subjects_of(kWithWrongNorm, op, machine);
                              }};
    VerifyReport report;
    CheckPlace place;
    const VerifyEvents events{[](std::string_view) {}, [] {},
                              [&](const VerifyFailure&) {
                                  if (n_told != nullptr) ++*n_told;
                              }};
    for (const KernelWork& work : kernel_work(source, filter, 5)) {
        verify_kernels("cpu", work, filter, place, events, report);
    }
    return report;
}

TEST(VerifyKernels, a_wrong_kernel_is_found_with_its_case_and_element) {
    int n_told = 0;
    const VerifyReport report =
        verify_wrong_norm({.ops = {"rms_norm"}, .checkpoints = {"mine"}}, &n_told);
    EXPECT_EQ(report.exit_status(), 1);
    ASSERT_FALSE(report.failures().empty());
    EXPECT_EQ(static_cast<size_t>(n_told), report.failures().size());
    for (const VerifyFailure& failure : report.failures()) {
        EXPECT_EQ(failure.key.kernel(), "rms_norm at mine");
        EXPECT_NE(failure.case_name.find(" x 3 x "), std::string::npos) << failure.case_name;
    }
    EXPECT_NE(report.failures()[0].fault.find("row 1, column 2: nan"), std::string::npos)
        << report.failures()[0].fault;
}

TEST(VerifyKernels, filters_choose_what_runs) {
    EXPECT_TRUE(verify_wrong_norm({.ops = {"rms_norm"}, .checkpoints = {"ref"}}).holds());
    EXPECT_TRUE(verify_wrong_norm({.ops = {"rms_norm"}, .case_part = "x 1 x 576"}).holds());
    EXPECT_TRUE(verify_wrong_norm({.ops = {"rms_norm"}, .formats = {"Q4_0"}}).rows().empty());
    const VerifyFilter filter{.formats = {"f16"}};
    EXPECT_TRUE(filter.wants_format({"bf16 f16"}));
    EXPECT_TRUE(filter.wants_format({"f16"}));
    EXPECT_FALSE(filter.wants_format({"bf16"}));
}

// A case's inputs are those of its number, whatever else runs; every case has its turn.
TEST(VerifyKernels, thinned_runs_take_cases_with_the_seeds_that_they_have_in_whole_runs) {
    const std::vector<SeededCheck> all = select_checks(Op::kRmsNorm, {}, 5);
    std::set<uint64_t> seen;
    for (uint64_t seed : {5, 6, 7}) {
        for (const SeededCheck& one : select_checks(Op::kRmsNorm, {.thin = 3}, seed)) {
            const uint64_t index = one.seed - seed - 1;
            EXPECT_EQ(one.check.c.name, all.at(index).check.c.name);
            seen.insert(index);
        }
    }
    EXPECT_EQ(seen.size(), all.size());
    EXPECT_EQ(select_checks(Op::kRmsNorm, {.thin = 1'000'000}, 77).size(), 1u);
}

TEST(VerifyModels, logits_are_compared_by_position) {
    const ModelLogits want = {{3, 4}, {0, 5}}, got = {{3, 4}, {3, 5}};
    const LogitsDifference difference = compare_logits(want, got);
    EXPECT_EQ(difference.fault, "");
    EXPECT_DOUBLE_EQ(difference.worst, 0.6);
    EXPECT_EQ(difference.worst_position, 1);
    EXPECT_DOUBLE_EQ(difference.relative_l2, std::sqrt(9 / 50.0));
    EXPECT_EQ(difference.n_argmax, 2);
    EXPECT_EQ(first_other_logit(want, want), "");
    EXPECT_EQ(first_other_logit(want, got), "position 1, logit 0: 3, expected 0");
    EXPECT_NE(compare_logits(want, {{3, 4}, {NAN, 5}}).fault, "");
    EXPECT_NE(compare_logits(want, {{3, 4}}).fault, "");
}

TEST(VerifyMatrix, a_run_takes_the_place_of_older_rows_of_its_keys) {
    Verification known;
    merge_run(known, {"a",
                      "2026-01-01",
                      "1",
                      1,
                      1,
                      {{key_of("avx2", "Q4_0"), figures_of(1e-6)},
                       {key_of("amx", "Q4_0"), figures_of(2e-6)}}});
    merge_run(known, {"b", "2026-01-02", "2", 2, 1, {{key_of("avx2", "Q4_0"), figures_of(3e-6)}}});
    ASSERT_EQ(known.runs.size(), 2u);
    ASSERT_EQ(known.runs[0].rows.size(), 1u);
    EXPECT_EQ(known.runs[0].rows[0].key.isa, "amx");
    merge_run(known, {"b", "2026-01-03", "3", 3, 1, {{key_of("amx", "Q4_0"), figures_of(3e-6)}}});
    ASSERT_EQ(known.runs.size(), 2u);
    EXPECT_EQ(known.runs[0].commit, "2");
}

TEST(VerifyMatrix, what_is_kept_comes_back) {
    Verification known;
    known.evidence.push_back({.continuous = true,
                              .by = "tests",
                              .backend = "cpu",
                              .nodes = {"matmul"},
                              .isas = {"", "avx2"}});
    merge_run(known, {"a \"quoted\" one",
                      "2026-01-01",
                      "1",
                      1,
                      3,
                      {{key_of("avx2", "Q4_0"), figures_of(1e-6)},
                       {key_of("avx2", "Q4_0", "threads"), {.n_cases = 4}}}});
    const std::string text = verification_text(known);
    const Verification again = read_verification(text, "x.json");
    EXPECT_EQ(verification_text(again), text);
    ASSERT_EQ(again.runs.size(), 1u);
    EXPECT_EQ(again.runs[0].thin, 3);
    ASSERT_EQ(again.runs[0].rows.size(), 2u);
    EXPECT_EQ(again.runs[0].rows[0].figures.relative_l2, 1e-6);
    EXPECT_EQ(again.runs[0].rows[1].figures.n_cases, 4);
    EXPECT_NE(error_of([] { read_verification("{\"runs\": 3}", "x.json"); }).find("x.json"),
              std::string::npos);
}

TEST(VerifyMatrix, a_cell_says_what_is_known_of_each_instruction_set) {
    const KnownKernels kernels{
        "cpu", {{"matmul", {{"gemm", {"avx2", "amx", "neon"}}}, {{"Q4_0", {"agrees"}}}}}};
    Verification known;
    EXPECT_NE(matrix_text(kernels, known).find("| `gemm` | Q4_0 |  |  |  |  | review |"),
              std::string::npos)
        << matrix_text(kernels, known);
    known.evidence.push_back(
        {.continuous = true, .by = "tests", .backend = "cpu", .isas = {"avx2"}});
    merge_run(known, {"M", "2026-01-01", "abc", 5, 1, {{key_of("amx", "Q4_0"), figures_of(1e-6)}}});
    const std::string text = matrix_text(kernels, known);
    EXPECT_NE(text.find("| `gemm` | Q4_0 | 1 | 2.0e-06 | 1.0e-06 | 3.0e-06 | "
                        "tested; amx: measured 1; neon: review |"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("1. `ridge verify`, M, 2026-01-01, at abc, seed 5\n"), std::string::npos);
    EXPECT_NE(text.find("continuously tested: tests on avx2"), std::string::npos) << text;
}

TEST(VerifyMatrix, sections_are_replaced_and_the_prose_around_them_stays) {
    const std::string text =
        "before\n<!-- ridge verify: cpu -->\nold\n<!-- ridge verify: end of cpu -->\nbehind\n";
    EXPECT_EQ(
        replace_section(text, "cpu", "new\n", "x.md"),
        "before\n<!-- ridge verify: cpu -->\nnew\n<!-- ridge verify: end of cpu -->\nbehind\n");
    for (const std::string& bad :
         {std::string("none"), text + text,
          std::string("<!-- ridge verify: end of cpu -->\n<!-- ridge verify: cpu -->\n")}) {
        EXPECT_EQ(error_of([&] {
                      replace_section(bad, "cpu", "", "x.md");
                  }).rfind("x.md: no section \"cpu\"", 0),
                  0u);
    }
}

// Which kernels, checkpoints, formats and claims there are is for the code to say.
TEST(VerifyMatrix, the_document_has_what_the_code_lists) {
    const std::string docs = std::string(RIDGE_TESTS_DIR) + "/../docs/verification";
    const std::string text = read_file(docs + ".md", 1 << 24);
    const Verification known = read_verification(read_file(docs + ".json", 1 << 24), "json");
    EXPECT_TRUE(with_sections(text, known, "docs/verification.md") == text)
        << "docs/verification.md is not what docs/verification.json and the tables give: "
           "ridge verify --write docs/verification.md makes it anew";
    for (const auto& session : CaseSession::all_backends()) {
        for (const Checkpoint& checkpoint : session->checkpoints()) {
            EXPECT_NE(text.find(fmt::format("| `{}` |", checkpoint.name)), std::string::npos)
                << checkpoint.name;
        }
    }
}

}  // namespace
}  // namespace ridge
