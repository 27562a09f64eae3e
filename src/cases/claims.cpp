#include "cases/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "base/error.h"
#include "format/format.h"

namespace ridge {
namespace {

struct ClaimTexts {
    std::string_view name, text;
};
constexpr ClaimTexts kClaims[kNumClaims] = {
    {"agrees", "results are the reference's, each element, and nothing else is written to"},
    {"threads",
     "the bits are the same on 1, 2 and more threads, and of weights as files have them"},
    {"rows", "a row's bits do not depend on the rows beside it"},
    {"cuts", "a row's bits do not depend on how its prompt is cut into steps"},
    {"later", "a row's bits do not depend on what later positions hold, be it no number"},
};

// Of rows whose first ones are computed alone.
constexpr int64_t kMostRows = 67;
constexpr int64_t kFewerRows[] = {1, 2, 3, 4, 5, 8, 9, 64, 65};
constexpr int32_t kCutAfter[] = {1, 7, 64, 65, 128};

std::span<const float> rows_of(const Outputs& all, int64_t first, int64_t n) {
    return std::span(all.values)
        .subspan(static_cast<size_t>(first * all.n_cols), static_cast<size_t>(n * all.n_cols));
}

// Compared as bits, so that -0 and 0 differ: empty, or the first element that does.
std::string first_difference(std::span<const float> want, std::span<const float> got,
                             int64_t n_cols) {
    if (want.size() != got.size()) {
        return fmt::format("{} values, expected {}", got.size(), want.size());
    }
    for (size_t i = 0; i < want.size(); i++) {
        const auto a = std::bit_cast<uint32_t>(want[i]), b = std::bit_cast<uint32_t>(got[i]);
        if (a == b) continue;
        return fmt::format("row {}, column {}: {}, expected {} (bits {:08x}, expected {:08x})",
                           static_cast<int64_t>(i) / n_cols, static_cast<int64_t>(i) % n_cols,
                           got[i], want[i], b, a);
    }
    return {};
}

std::string first_difference(const Outputs& want, const Outputs& got) {
    if (same_bits(want, got)) return {};
    if (want.n_cols == got.n_cols && !want.values.empty()) {
        std::string difference = first_difference(want.values, got.values, want.n_cols);
        if (!difference.empty()) return difference;
    }
    for (size_t i = 0; i < std::min(want.sampled.size(), got.sampled.size()); i++) {
        const Sampled &a = want.sampled[i], &b = got.sampled[i];
        if (a.token != b.token) {
            return fmt::format("row {}: token {}, expected {}", i, b.token, a.token);
        }
    }
    return "log probabilities have other bits";
}

void append_fault(std::string& faults, std::string_view where, const std::string& fault) {
    if (faults.empty() && !fault.empty()) faults = fmt::format("{}{}", where, fault);
}

Difference judge(Case c, const Standard& standard, const Outputs& want, const Outputs& got) {
    c.tolerance = standard.element;
    Difference difference = compare(c, want, got);
    const double most = standard.relative_l2;
    if (difference.fault.empty() && most > 0 && !(difference.relative_l2 < most)) {
        difference.fault = fmt::format("relative L2 of all elements {:.3g}, expected below {:.3g}",
                                       difference.relative_l2, most);
    }
    return difference;
}

void add_numbers_of_rows(Op op, std::vector<Check>& checks) {
    std::vector<Case> cases;
    if (op == Op::kMatmul) {
        for (const Format& format : formats()) {
            Case& c = cases.emplace_back(Case{.op = op, .d_in = 768});
            c.weights = {{37, format.id, true}, {13, format.id}};
        }
    }
    if (op == Op::kRmsNorm) cases.push_back({.op = op, .d_in = 100, .n_heads = 3});
    if (op == Op::kSwiglu || op == Op::kAdd) cases.push_back({.op = op, .d_in = 300});
    if (op == Op::kRope) {
        Case& c = cases.emplace_back(Case{.op = op, .n_heads = 2, .d_head = 64, .d_rope = 64});
        for (int32_t i = 0; i < kMostRows; i++) c.positions.push_back(5 * i + 3);
    }
    for (Case& c : cases) {
        c.n_rows = kMostRows;
        for (RowClass row_class : {RowClass::kDecode, RowClass::kPrompt}) {
            c.row_class = row_class;
            checks.push_back(
                {finish_case(c, row_class == RowClass::kDecode ? "decode rows" : "prompt rows"),
                 {Claim::kRows}});
        }
    }
}

Case attention_of(std::vector<CaseSequence> sequences, DType dtype, bool paged) {
    return {.op = Op::kAttention,
            .n_heads = 6,
            .n_kv_heads = 2,
            .d_head = 64,
            .sequences = std::move(sequences),
            .paged = paged,
            .k_dtype = dtype,
            .v_dtype = dtype};
}

std::vector<CaseSequence> eight_sequences() {
    const RowClass decode = RowClass::kDecode, prompt = RowClass::kPrompt;
    return {{1, 1, decode, 1},   {64, 1, decode, 2},  {300, 70, prompt, 3}, {33, 1, decode, 4},
            {65, 65, prompt, 5}, {257, 1, decode, 6}, {2, 2, prompt, 7},    {128, 1, decode, 8}};
}

void add_company(std::vector<Check>& checks) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
        for (bool paged : {false, true}) {
            checks.push_back(
                {finish_case(attention_of(eight_sequences(), dtype, paged), "together"),
                 {Claim::kRows}});
        }
    }
    const std::vector<CaseSequence> whole = {{200, 200, RowClass::kPrompt, 1}};
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
        checks.push_back({finish_case(attention_of(whole, dtype, true), "cut"), {Claim::kCuts}});
    }
}

void add_later_positions(std::vector<Check>& checks) {
    const RowClass prompt = RowClass::kPrompt;
    for (DType dtype : {DType::kF16, DType::kF32, DType::kBF16}) {
        for (int64_t nonfinite_position : {64, 70, 105, 129}) {
            Case c = attention_of({{130, 130, prompt, 1}, {110, 9, prompt, 2}, {65, 5, prompt, 3}},
                                  dtype, true);
            c.masked = nonfinite_position == 105;
            c.nonfinite_position = nonfinite_position;
            c.tolerance = 2e-5f, c.cancels = true;
            checks.push_back(
                {finish_case(c, fmt::format("position {} is no number", nonfinite_position)),
                 {Claim::kLater}});
        }
    }
}

bool is_shown_by_a_run(Claim claim) {
    return claim == Claim::kAgrees || claim == Claim::kThreads;
}

}  // namespace

std::string_view claim_name(Claim claim) {
    return kClaims[static_cast<size_t>(claim)].name;
}

std::string_view claim_text(Claim claim) {
    return kClaims[static_cast<size_t>(claim)].text;
}

std::vector<Check> checks_of(Op op) {
    std::vector<Check> checks;
    for (Case& c : all_cases()) {
        if (c.op == op) checks.push_back({std::move(c), {Claim::kAgrees, Claim::kThreads}});
    }
    add_numbers_of_rows(op, checks);
    if (op == Op::kAttention) {
        add_company(checks);
        add_later_positions(checks);
    }
    return checks;
}

CheckRun::CheckRun(const Check& check, uint64_t seed, CheckPlace& place)
    : check_(check), seed_(seed), place_(place) {
    if (is_shown_by_a_run(check_.claims.at(0))) run_.emplace(check_.c, seed_);
}

Outputs CheckRun::run_on(const Subject& subject, const Case& c, std::string& fault) {
    Outputs outputs = ridge::run_case(c, seed_, subject.tables, place_.two, place_.device);
    append_fault(fault, "", outputs.fault);
    return outputs;
}

const Outputs& CheckRun::reference_of(const Tables& reference, const std::string& operands) {
    const auto [at, is_new] = references_.try_emplace(operands);
    if (!is_new) return at->second;
    at->second = run_->run(reference, place_.one);
    if (!at->second.fault.empty()) {
        throw Error("{}: the reference: {}", check_.c.name, at->second.fault);
    }
    return at->second;
}

void CheckRun::run_case(const Subject& subject, std::vector<Finding>& findings) {
    const Standard standard = subject.standard(subject, check_.c);
    const Outputs got = run_->run(subject.tables, place_.one, place_.device);
    Finding agrees{.claim = Claim::kAgrees};
    const Outputs& want = reference_of(subject.reference, standard.operands);
    agrees.difference = judge(check_.c, standard, want, got);
    agrees.fault = agrees.difference.fault;
    const Outputs& exact = reference_of(exact_reference(), std::string(kNotRounded));
    agrees.from_exact = compare(check_.c, exact, got).relative_l2;
    findings.push_back(std::move(agrees));
    if (place_.device != nullptr) return;

    Finding threads{.claim = Claim::kThreads};
    append_fault(threads.fault,
                 "on 2 threads: ", first_difference(got, run_->run(subject.tables, place_.two)));
    append_fault(threads.fault, fmt::format("on {} threads: ", place_.many.size()),
                 first_difference(got, run_->run(subject.tables, place_.many)));
    const bool packed = subject.tables.matmul_layout != &row_major_layout();
    if (packed && (check_.c.op == Op::kMatmul || check_.c.op == Op::kEmbedRows)) {
        Tables unpacked = subject.tables;
        unpacked.matmul_layout = &row_major_layout();
        append_fault(threads.fault, "weights as files have them: ",
                     first_difference(got, run_->run(unpacked, place_.two)));
    }
    findings.push_back(std::move(threads));
}

std::string CheckRun::compare_numbers_of_rows(const Subject& subject) {
    std::string fault;
    const Outputs all = run_on(subject, check_.c, fault);
    for (int64_t n_rows : kFewerRows) {
        Case fewer = check_.c;
        fewer.n_rows = n_rows;
        if (!fewer.positions.empty()) fewer.positions.resize(static_cast<size_t>(n_rows));
        append_fault(fault, fmt::format("{} rows alone: ", n_rows),
                     first_difference(rows_of(all, 0, n_rows), run_on(subject, fewer, fault).values,
                                      all.n_cols));
    }
    return fault;
}

// Alone a sequence lies the other way in the cache, too.
std::string CheckRun::compare_sequences(const Subject& subject) {
    std::string fault;
    const Outputs together = run_on(subject, check_.c, fault);
    int64_t first_row = 0;
    for (const CaseSequence& s : check_.c.sequences) {
        Case alone = check_.c;
        alone.sequences = {s}, alone.paged = !check_.c.paged;
        append_fault(
            fault, fmt::format("{} rows of {} alone: ", s.n_rows, s.n_ctx),
            first_difference(rows_of(together, first_row, s.n_rows),
                             run_on(subject, finish_case(alone), fault).values, together.n_cols));
        first_row += s.n_rows;
    }
    return fault;
}

std::string CheckRun::compare_cuts(const Subject& subject) {
    std::string fault;
    const Outputs whole = run_on(subject, check_.c, fault);
    const int64_t n_ctx = check_.c.sequences[0].n_ctx;
    for (int32_t chunk : kCutAfter) {
        for (int64_t first = 0; first < n_ctx; first += chunk) {
            const auto n_rows = static_cast<int32_t>(std::min<int64_t>(chunk, n_ctx - first));
            Case piece = check_.c;
            piece.sequences[0].n_ctx = first + n_rows, piece.sequences[0].n_rows = n_rows;
            append_fault(
                fault, fmt::format("rows {} to {} alone: ", first, first + n_rows - 1),
                first_difference(rows_of(whole, first, n_rows),
                                 run_on(subject, finish_case(piece), fault).values, whole.n_cols));
        }
    }
    return fault;
}

// Rows before the position that holds no numbers have the bits that they have without; those from
// it on have what the reference has, where elements are judged one by one.
std::string CheckRun::compare_later_positions(const Subject& subject) {
    std::string fault;
    Case finite_case = check_.c;
    finite_case.nonfinite_position = -1;
    const Outputs finite = run_on(subject, finite_case, fault),
                  got = run_on(subject, check_.c, fault);
    int64_t first_row = 0;
    for (const CaseSequence& s : check_.c.sequences) {
        const int64_t n_before =
            std::clamp<int64_t>(check_.c.nonfinite_position - (s.n_ctx - s.n_rows), 0, s.n_rows);
        append_fault(fault, fmt::format("rows of {} before the position: ", s.n_ctx),
                     first_difference(rows_of(finite, first_row, n_before),
                                      rows_of(got, first_row, n_before), got.n_cols));
        first_row += s.n_rows;
    }
    Standard standard = subject.standard(subject, check_.c);
    if (standard.element >= 1) return fault;
    standard.relative_l2 = 0;
    const Outputs want = ridge::run_case(check_.c, seed_, subject.reference, place_.two);
    append_fault(fault, "rows from the position on: ", judge(check_.c, standard, want, got).fault);
    return fault;
}

std::vector<Finding> CheckRun::run(const Subject& subject) {
    std::vector<Finding> findings;
    for (Claim claim : check_.claims) {
        switch (claim) {
            case Claim::kAgrees:
                run_case(subject, findings);
                break;
            case Claim::kThreads:  // with the former
                break;
            case Claim::kRows:
                findings.push_back({.claim = claim,
                                    .fault = check_.c.sequences.empty()
                                                 ? compare_numbers_of_rows(subject)
                                                 : compare_sequences(subject)});
                break;
            case Claim::kCuts:
                findings.push_back({.claim = claim, .fault = compare_cuts(subject)});
                break;
            case Claim::kLater:
                findings.push_back({.claim = claim, .fault = compare_later_positions(subject)});
                break;
        }
    }
    return findings;
}

}  // namespace ridge
