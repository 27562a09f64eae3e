#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cases/claims.h"
#include "cases/subject.h"
#include "cmd/verify_report.h"

namespace ridge {

// What is verified of all that could be. Empty lists: everything.
struct VerifyFilter {
    std::vector<std::string> ops{}, checkpoints{}, formats{};
    std::string case_part{};  // that a case's name must hold
    int64_t thin = 1;         // every thin-th case, from one on that the seed chooses

    bool wants_op(std::string_view name) const;
    bool wants_checkpoint(std::string_view name) const;
    // Of names such as formats_of() gives: one of them, or a part of one ("f16" of "bf16 f16").
    bool wants_format(const std::vector<std::string>& names) const;
    bool wants_case(std::string_view name) const;
};

// `index` is a case's number among all of its kind: whether a thinned run has it.
bool is_taken(size_t index, int64_t thin, uint64_t seed);

// One check of an operator with the seed of its inputs, which do not depend on what else is run.
struct SeededCheck {
    Check check;
    uint64_t seed;
};
std::vector<SeededCheck> select_checks(Op op, const VerifyFilter& filter, uint64_t seed);

// The kernels of a backend.
struct KernelSource {
    std::string backend;
    std::function<std::vector<Subject>(Op)> subjects;
};
// One operator's kernels, and the checks that are selected for them.
struct KernelWork {
    Op op;
    std::vector<Subject> subjects;
    std::vector<SeededCheck> checks;
};
std::vector<KernelWork> kernel_work(const KernelSource& source, const VerifyFilter& filter,
                                    uint64_t seed);

// `done` is called behind each check with its name, `alive` more often: both may throw to end it
// all; `failed` with each failure as it is found.
struct VerifyEvents {
    std::function<void(std::string_view name)> done;
    std::function<void()> alive;
    std::function<void(const VerifyFailure&)> failed;
};

// One case of some formats, to the rows of those that are wanted.
void add_case(VerifyReport& report, VerifyKey key, const std::vector<std::string>& formats,
              const VerifyFilter& filter, VerifyFigures figures, const std::string& case_name,
              const std::string& fault, const VerifyEvents& events);

// Runs the checks of the work on its subjects and adds what is found to the report.
void verify_kernels(const std::string& backend, const KernelWork& work, const VerifyFilter& filter,
                    CheckPlace& place, const VerifyEvents& events, VerifyReport& report);

}  // namespace ridge
