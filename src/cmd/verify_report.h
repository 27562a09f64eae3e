#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cases/claims.h"

namespace ridge {

// What `ridge verify` finds: a row for each kernel, format and claim.

constexpr std::string_view kStepNode = "step";       // of whole models
constexpr std::string_view kGoldenClaim = "golden";  // of their logits

// One kernel, one format (of whole models: one model), one claim.
struct VerifyKey {
    std::string backend{};     // "cpu"
    std::string node{};        // "matmul"
    std::string checkpoint{};  // "gemm"
    std::string isa{};         // "avx2"; empty where the kernel is the same on all
    std::string format{};      // "Q4_0"
    std::string claim{};       // "agrees"

    std::string kernel() const;  // "matmul at gemm on avx2"
    auto tied() const { return std::tie(backend, node, checkpoint, isa, format, claim); }
    bool operator<(const VerifyKey& other) const { return tied() < other.tied(); }
    bool operator==(const VerifyKey& other) const { return tied() == other.tied(); }
};

// Of the cases of one key.
struct VerifyFigures {
    int64_t n_cases = 0, n_failed = 0;
    double worst = 0;        // error of an element, as Case::tolerance measures it
    double relative_l2 = 0;  // from the reference: the equation in float64 of the operands that the
                             // kernel multiplies, rounded where it rounds them
    double from_exact = 0;   // from the equation of the operands as they were given

    void add(const VerifyFigures& other);
};

struct VerifyFailure {
    VerifyKey key;
    std::string case_name, fault;
};

class VerifyReport {
  public:
    void add(const VerifyKey& key, const VerifyFigures& figures);
    // Of a case whose rows count it as failed, once where it is of several formats.
    void add_failure(VerifyFailure failure) { failures_.push_back(std::move(failure)); }

    struct Row {
        VerifyKey key;
        VerifyFigures figures;
    };
    const std::vector<Row>& rows() const { return rows_; }  // in the order in which they came
    const std::vector<VerifyFailure>& failures() const { return failures_; }

    // Kernels, formats and claims of which something was verified and nothing failed.
    bool holds() const { return !rows_.empty() && failures_.empty(); }
    int exit_status() const { return holds() ? 0 : 1; }

  private:
    std::vector<Row> rows_;
    std::map<VerifyKey, size_t> index_;
    std::vector<VerifyFailure> failures_;
};

// "matmul at gemm on avx2, Q4_0, agrees: CASE, --seed 5: row 0, column 3: 1.5, expected 2 (...)"
std::string failure_line(const VerifyFailure& failure, uint64_t seed);

// Rows under a heading. Not `full`: one for all formats that are alike, those that fail alone.
std::string verify_table(const VerifyReport& report, bool full);

// {"rows": [{"op", "checkpoint", ...}], "failures": [...]}
nlohmann::ordered_json verify_json(const VerifyReport& report);

}  // namespace ridge
