#include "cmd/verify_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace ridge {
namespace {

// A row of the table, for the formats of one kernel and claim.
struct Line {
    std::string kernel, claim, result;
    std::vector<std::string> formats;
    VerifyFigures figures;
};

std::vector<Line> lines_of(const VerifyReport& report, bool full) {
    std::vector<Line> lines;
    std::map<std::tuple<std::string, std::string>, size_t> folded;
    for (const VerifyReport::Row& row : report.rows()) {
        const bool fails = row.figures.n_failed > 0;
        const std::string kernel = row.key.kernel();
        if (!full && !fails) {
            const auto [at, is_new] = folded.try_emplace({kernel, row.key.claim}, lines.size());
            if (!is_new) {
                lines[at->second].formats.push_back(row.key.format);
                lines[at->second].figures.add(row.figures);
                continue;
            }
        }
        lines.push_back({kernel,
                         row.key.claim,
                         fails ? fmt::format("{} FAIL", row.figures.n_failed) : "holds",
                         {row.key.format},
                         row.figures});
    }
    // What is found of a kernel stands together, kernels in the order in which they were run.
    std::map<std::string, size_t> order;
    for (const Line& line : lines) order.try_emplace(line.kernel, order.size());
    std::stable_sort(lines.begin(), lines.end(), [&](const Line& a, const Line& b) {
        return order.at(a.kernel) < order.at(b.kernel);
    });
    return lines;
}

std::string formats_text(const Line& line) {
    if (line.formats.size() == 1) return line.formats[0];
    const bool models = line.kernel.starts_with(kStepNode);
    return fmt::format("{} {}", line.formats.size(), models ? "models" : "formats");
}

bool has_figures(const std::string& claim) {
    return claim == claim_name(Claim::kAgrees) || claim == kGoldenClaim;
}

// A figure, or "-" where the claim has none.
std::string figure(const Line& line, double value) {
    return has_figures(line.claim) ? fmt::format("{:.1e}", value) : "-";
}

}  // namespace

std::string VerifyKey::kernel() const {
    return fmt::format("{} at {}{}{}", node, checkpoint, isa.empty() ? "" : " on ", isa);
}

void VerifyFigures::add(const VerifyFigures& other) {
    n_cases += other.n_cases, n_failed += other.n_failed;
    worst = std::max(worst, other.worst);
    relative_l2 = std::max(relative_l2, other.relative_l2);
    from_exact = std::max(from_exact, other.from_exact);
}

void VerifyReport::add(const VerifyKey& key, const VerifyFigures& figures) {
    const auto [at, is_new] = index_.try_emplace(key, rows_.size());
    if (is_new) rows_.push_back({key, {}});
    rows_[at->second].figures.add(figures);
}

std::string failure_line(const VerifyFailure& failure, uint64_t seed) {
    return fmt::format("{}, {}, {}: {}, --seed {}: {}", failure.key.kernel(), failure.key.format,
                       failure.key.claim, failure.case_name, seed, failure.fault);
}

std::string verify_table(const VerifyReport& report, bool full) {
    const std::vector<Line> lines = lines_of(report, full);
    size_t kernel_width = 6, format_width = 6;
    for (const Line& line : lines) {
        kernel_width = std::max(kernel_width, line.kernel.size());
        format_width = std::max(format_width, formats_text(line).size());
    }
    std::string text = fmt::format("{:<{}}  {:<{}}  {:<7}  {:>5}  {:>7}  {:>7}  {:>8}  result\n",
                                   "kernel", kernel_width, "format", format_width, "claim", "cases",
                                   "worst", "rel. L2", "rounded");
    for (const Line& line : lines) {
        const VerifyFigures& f = line.figures;
        text += fmt::format("{:<{}}  {:<{}}  {:<7}  {:>5}  {:>7}  {:>7}  {:>8}  {}\n", line.kernel,
                            kernel_width, formats_text(line), format_width, line.claim, f.n_cases,
                            figure(line, f.worst), figure(line, f.relative_l2),
                            figure(line, f.from_exact), line.result);
    }
    return text;
}

nlohmann::ordered_json verify_json(const VerifyReport& report) {
    auto key_json = [](const VerifyKey& key) {
        return Json{{"backend", key.backend},       {"op", key.node},
                    {"checkpoint", key.checkpoint}, {"isa", key.isa},
                    {"format", key.format},         {"claim", key.claim}};
    };
    Json rows = Json::array(), failures = Json::array();
    for (const VerifyReport::Row& row : report.rows()) {
        Json json = key_json(row.key);
        json["holds"] = row.figures.n_failed == 0;
        json["n_cases"] = row.figures.n_cases, json["n_failed"] = row.figures.n_failed;
        if (has_figures(row.key.claim)) {
            json["worst_error"] = row.figures.worst;
            json["relative_l2"] = row.figures.relative_l2;
            json["relative_l2_rounded"] = row.figures.from_exact;
        }
        rows.push_back(std::move(json));
    }
    for (const VerifyFailure& failure : report.failures()) {
        Json json = key_json(failure.key);
        json["case"] = failure.case_name, json["fault"] = failure.fault;
        failures.push_back(std::move(json));
    }
    return Json{{"rows", std::move(rows)}, {"failures", std::move(failures)}};
}

}  // namespace ridge
