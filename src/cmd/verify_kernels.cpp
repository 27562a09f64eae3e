#include "cmd/verify_kernels.h"

#include <algorithm>
#include <utility>

namespace ridge {
namespace {

bool is_listed(const std::vector<std::string>& list, std::string_view name) {
    return list.empty() || std::find(list.begin(), list.end(), name) != list.end();
}

// Whether `names`, parted by blanks, hold `name`.
bool has_part(std::string_view names, std::string_view name) {
    if (names == name) return true;
    const size_t blank = names.find(' ');
    return blank != names.npos &&
           (names.substr(0, blank) == name || names.substr(blank + 1) == name);
}

}  // namespace

bool VerifyFilter::wants_op(std::string_view name) const {
    return is_listed(ops, name);
}

bool VerifyFilter::wants_checkpoint(std::string_view name) const {
    return is_listed(checkpoints, name);
}

bool VerifyFilter::wants_format(const std::vector<std::string>& names) const {
    if (formats.empty()) return true;
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
        return std::any_of(formats.begin(), formats.end(),
                           [&](const std::string& wanted) { return has_part(name, wanted); });
    });
}

bool VerifyFilter::wants_case(std::string_view name) const {
    return name.find(case_part) != name.npos;
}

bool is_taken(size_t index, int64_t thin, uint64_t seed) {
    const auto n = static_cast<uint64_t>(thin);
    return uint64_t{index} % n == seed % n;
}

std::vector<SeededCheck> select_checks(Op op, const VerifyFilter& filter, uint64_t seed) {
    std::vector<Check> all = checks_of(op);
    const auto most = static_cast<int64_t>(all.size());  // so that one is taken
    std::vector<SeededCheck> selected;
    for (size_t i = 0; i < all.size(); i++) {
        if (!is_taken(i, std::min(filter.thin, most), seed)) continue;
        if (!filter.wants_format(formats_of(all[i].c)) || !filter.wants_case(all[i].c.name))
            continue;
        selected.push_back({std::move(all[i]), seed + 1 + i});
    }
    return selected;
}

std::vector<KernelWork> kernel_work(const KernelSource& source, const VerifyFilter& filter,
                                    uint64_t seed) {
    std::vector<KernelWork> all;
    for (int i = 0; i < kNumOps; i++) {
        const Op op = static_cast<Op>(i);
        if (!filter.wants_op(op_name(op))) continue;
        KernelWork work{op, source.subjects(op), select_checks(op, filter, seed)};
        std::erase_if(work.subjects, [&](const Subject& subject) {
            return !filter.wants_checkpoint(subject.checkpoint);
        });
        if (!work.subjects.empty() && !work.checks.empty()) all.push_back(std::move(work));
    }
    return all;
}

void add_case(VerifyReport& report, VerifyKey key, const std::vector<std::string>& formats,
              const VerifyFilter& filter, VerifyFigures figures, const std::string& case_name,
              const std::string& fault, const VerifyEvents& events) {
    figures.n_cases = 1, figures.n_failed = fault.empty() ? 0 : 1;
    bool told = fault.empty();
    for (const std::string& format : formats) {
        if (!filter.wants_format({format})) continue;
        key.format = format;
        report.add(key, figures);
        if (told) continue;
        told = true;
        report.add_failure({key, case_name, fault});
        events.failed(report.failures().back());
    }
}

void verify_kernels(const std::string& backend, const KernelWork& work, const VerifyFilter& filter,
                    CheckPlace& place, const VerifyEvents& events, VerifyReport& report) {
    for (const auto& [check, seed] : work.checks) {
        CheckRun run(check, seed, place);
        for (const Subject& subject : work.subjects) {
            VerifyKey key{.backend = backend,
                          .node = std::string(op_name(work.op)),
                          .checkpoint = subject.checkpoint,
                          .isa = subject.isa};
            for (const Finding& finding : run.run(subject)) {
                key.claim = claim_name(finding.claim);
                const VerifyFigures figures{.worst = finding.difference.worst,
                                            .relative_l2 = finding.difference.relative_l2,
                                            .from_exact = finding.from_exact};
                add_case(report, key, formats_of(check.c), filter, figures, check.c.name,
                         finding.fault, events);
            }
            events.alive();
        }
        events.done(check.c.name);
    }
}

}  // namespace ridge
