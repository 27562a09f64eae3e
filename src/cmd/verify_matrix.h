#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cmd/verify_report.h"
#include "engine/case_session.h"

namespace ridge {

// The matrix of docs/verification.md: which kernels there are is said by the code, what is known of
// them by docs/verification.json, and the text follows from both.

// What the code lists of one backend.
struct KnownKernel {
    std::string checkpoint;
    std::vector<std::string> isas;  // on which it is its own; one empty one: the same on all. None:
                                    // of whole steps, which run on the best that a machine has
};
struct KnownFormat {
    std::string name;
    std::vector<std::string> claims;
};
struct KnownNode {
    std::string name;
    std::vector<KnownKernel> kernels;
    std::vector<KnownFormat> formats;
};
struct KnownKernels {
    std::string backend;
    std::vector<KnownNode> nodes;
};
KnownKernels known_kernels(const CaseSession& session);

// Something that is known of many rows at once: of all whose every part is listed; an empty list
// has all.
struct Evidence {
    bool continuous = false;  // CI does it on every change; else it was measured once
    std::string by;           // what did it: "kernels-tests"
    std::string machine{}, date{}, commit{};  // where it was measured
    std::string backend{};
    std::vector<std::string> nodes{}, checkpoints{}, isas{}, formats{}, claims{};

    bool is_of(const VerifyKey& key) const;
};
// What `ridge verify` found on one machine.
struct MeasuredRun {
    std::string machine, date, commit;
    uint64_t seed = 0;
    int64_t thin = 1;
    std::vector<VerifyReport::Row> rows;
};
struct Verification {
    std::vector<Evidence> evidence;
    std::vector<MeasuredRun> runs;
};

// `what` names the text in errors.
Verification read_verification(std::string_view json, std::string_view what);
std::string verification_text(const Verification& verification);
// The new run's rows take the place of older ones of the same keys.
void merge_run(Verification& verification, MeasuredRun run);

// Markdown: for each node a table of kernel and format against claims, then what the marks mean.
std::string matrix_text(const KnownKernels& known, const Verification& verification);

// Markdown: which checkpoint's kernel runs for a format at each checkpoint, and why it is not a
// later one's.
std::string support_text(const CaseSession& session);

// The text with what lies between the lines `<!-- ridge verify: NAME -->` and
// `<!-- ridge verify: end of NAME -->` replaced. Error where they are not there, once and in this
// order.
std::string replace_section(std::string_view text, std::string_view name, std::string_view body,
                            std::string_view what);

// Every section of the text that this build knows of, made anew.
std::string with_sections(std::string_view text, const Verification& verification,
                          std::string_view what);

}  // namespace ridge
