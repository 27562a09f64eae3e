#include "cmd/verify_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "cases/claims.h"
#include "cmd/verify_models.h"

namespace ridge {
namespace {

constexpr std::string_view kAgrees = "agrees";

std::string joined(const std::vector<std::string>& words, std::string_view between) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : std::string(between)) + word;
    return text;
}

// Marks of what is not continuously tested, numbered as they are first used.
class Notes {
  public:
    explicit Notes(const Verification& verification) : verification_(verification) {}

    // What is known of one row: "tested", "measured 2" or "review".
    std::string mark(const VerifyKey& key) {
        for (const Evidence& one : verification_.evidence) {
            if (one.continuous && one.is_of(key)) return "tested";
        }
        for (const MeasuredRun& run : verification_.runs) {
            for (const VerifyReport::Row& row : run.rows) {
                if (row.key == key && row.figures.n_failed == 0) return number(run_note(run));
            }
        }
        for (const Evidence& one : verification_.evidence) {
            if (one.is_of(key)) return number(evidence_note(one));
        }
        return "review";
    }

    // The worst of a kernel on all its instruction sets; none where nothing is known. The isa of
    // `key` is not looked at.
    std::optional<VerifyFigures> figures(const VerifyKey& key) {
        std::optional<VerifyFigures> all;
        for (const MeasuredRun& run : verification_.runs) {
            for (const VerifyReport::Row& row : run.rows) {
                VerifyKey here = row.key;
                here.isa = key.isa;
                if (!(here == key)) continue;
                if (!all) all.emplace();
                all->add(row.figures);
                number(run_note(run));  // whose figures they are is told below the tables
            }
        }
        return all;
    }

    // Instruction sets of which there are rows of this key.
    std::vector<std::string> isas(const VerifyKey& key) const {
        std::set<std::string> found;
        for (const MeasuredRun& run : verification_.runs) {
            for (const VerifyReport::Row& row : run.rows) {
                VerifyKey here = row.key;
                here.isa = key.isa;
                if (here == key) found.insert(row.key.isa);
            }
        }
        return {found.begin(), found.end()};
    }

    std::string text() const {
        std::string text;
        for (size_t i = 0; i < notes_.size(); i++)
            text += fmt::format("{}. {}\n", i + 1, notes_[i]);
        return text;
    }

  private:
    static std::string run_note(const MeasuredRun& run) {
        return fmt::format("`ridge verify`, {}, {}, at {}, seed {}{}", run.machine, run.date,
                           run.commit, run.seed,
                           run.thin == 1 ? "" : fmt::format(", every {}th case", run.thin));
    }
    static std::string evidence_note(const Evidence& one) {
        return fmt::format("{}, {}, {}, at {}", one.by, one.machine, one.date, one.commit);
    }
    std::string number(const std::string& note) {
        auto at = std::find(notes_.begin(), notes_.end(), note);
        if (at == notes_.end()) at = notes_.insert(at, note);
        return fmt::format("measured {}", at - notes_.begin() + 1);
    }

    const Verification& verification_;
    std::vector<std::string> notes_;
};

// "tested", or where instruction sets differ "tested; amx: measured 1; neon: review".
std::string cell(Notes& notes, VerifyKey key, const KnownKernel& kernel) {
    std::vector<std::string> isas = kernel.isas;
    if (isas.empty()) isas = notes.isas(key);
    if (isas.empty()) isas = {""};
    std::vector<std::pair<std::string, std::vector<std::string>>> by_mark;
    for (const std::string& isa : isas) {
        key.isa = isa;
        const std::string mark = notes.mark(key);
        auto at = std::find_if(by_mark.begin(), by_mark.end(),
                               [&](const auto& one) { return one.first == mark; });
        if (at == by_mark.end()) at = by_mark.insert(at, {mark, {}});
        at->second.push_back(isa);
    }
    std::string text;
    for (const auto& [mark, of] : by_mark) {
        if (!text.empty()) text += "; ";
        const bool is_named = &by_mark.front().first != &mark || kernel.isas.empty();
        if (is_named && !of[0].empty()) text += joined(of, ", ") + ": ";
        text += mark;
    }
    return text;
}

std::string figure(const std::optional<VerifyFigures>& figures, double VerifyFigures::*which) {
    return figures ? fmt::format("{:.1e}", (*figures).*which) : "";
}

std::string node_table(const std::string& backend, const KnownNode& node, Notes& notes) {
    std::vector<std::string> claims;  // that some format has
    for (const KnownFormat& format : node.formats) {
        for (const std::string& claim : format.claims) {
            if (std::find(claims.begin(), claims.end(), claim) == claims.end()) {
                claims.push_back(claim);
            }
        }
    }
    std::string text = fmt::format("| {} at | {} | results | worst | relative L2 | rounded |",
                                   node.name, node.name == kStepNode ? "model" : "format");
    for (const std::string& claim : claims) text += fmt::format(" {} |", claim);
    text += "\n|---|---|--:|--:|--:|--:|";
    for (size_t i = 0; i < claims.size(); i++) text += "---|";
    text += "\n";
    for (const KnownKernel& kernel : node.kernels) {
        for (const KnownFormat& format : node.formats) {
            VerifyKey key{.backend = backend,
                          .node = node.name,
                          .checkpoint = kernel.checkpoint,
                          .format = format.name,
                          .claim = std::string(kAgrees)};
            const auto figures = notes.figures(key);
            text += fmt::format("| `{}` | {} | {} | {} | {} | {} |", kernel.checkpoint, format.name,
                                figures ? std::to_string(figures->n_cases) : "",
                                figure(figures, &VerifyFigures::worst),
                                figure(figures, &VerifyFigures::relative_l2),
                                figure(figures, &VerifyFigures::from_exact));
            for (const std::string& claim : claims) {
                const bool has = std::find(format.claims.begin(), format.claims.end(), claim) !=
                                 format.claims.end();
                key.claim = claim;
                text += has ? fmt::format(" {} |", cell(notes, key, kernel)) : " |";
            }
            text += "\n";
        }
    }
    return text;
}

// Formats of a node in the order in which its cases come, with what is claimed of them.
std::vector<KnownFormat> formats_of_node(Op op, bool on_host) {
    std::vector<KnownFormat> formats;
    for (const Check& check : checks_of(op)) {
        for (const std::string& name : formats_of(check.c)) {
            auto at = std::find_if(formats.begin(), formats.end(),
                                   [&](const KnownFormat& one) { return one.name == name; });
            if (at == formats.end()) at = formats.insert(at, {name, {}});
            for (Claim claim : check.claims) {
                if (claim == Claim::kThreads && !on_host) continue;
                const std::string text(claim_name(claim));
                auto& claims = at->claims;
                if (std::find(claims.begin(), claims.end(), text) == claims.end()) {
                    claims.push_back(text);
                }
            }
        }
    }
    return formats;
}

}  // namespace

KnownKernels known_kernels(const CaseSession& session) {
    KnownKernels known{session.backend(), {}};
    const bool on_host = session.backend() == "cpu";
    for (int i = 0; i < kNumOps; i++) {
        const Op op = static_cast<Op>(i);
        KnownNode node{std::string(op_name(op)), {}, formats_of_node(op, on_host)};
        for (const Subject& subject : session.subjects(op)) {
            if (node.kernels.empty() || node.kernels.back().checkpoint != subject.checkpoint) {
                node.kernels.push_back({subject.checkpoint, {}});
            }
            node.kernels.back().isas.push_back(subject.isa);
        }
        known.nodes.push_back(std::move(node));
    }
    KnownNode step{std::string(kStepNode), {}, {}};
    for (const Checkpoint& checkpoint : session.checkpoints()) {
        step.kernels.push_back({std::string(checkpoint.name), {}});
    }
    for (const std::string& name : verify_model_names()) {
        step.formats.push_back({name, {std::string(kAgrees)}});
        if (on_host) step.formats.back().claims.emplace_back(claim_name(Claim::kThreads));
    }
    known.nodes.push_back(std::move(step));
    return known;
}

bool Evidence::is_of(const VerifyKey& key) const {
    const auto has = [](const std::vector<std::string>& list, const std::string& name) {
        return list.empty() || std::find(list.begin(), list.end(), name) != list.end();
    };
    return backend == key.backend && has(nodes, key.node) && has(checkpoints, key.checkpoint) &&
           has(isas, key.isa) && has(formats, key.format) && has(claims, key.claim);
}

void merge_run(Verification& verification, MeasuredRun run) {
    std::set<VerifyKey> taken;
    for (const VerifyReport::Row& row : run.rows) taken.insert(row.key);
    for (MeasuredRun& older : verification.runs) {
        std::erase_if(older.rows,
                      [&](const VerifyReport::Row& row) { return taken.contains(row.key); });
    }
    std::erase_if(verification.runs, [](const MeasuredRun& older) { return older.rows.empty(); });
    verification.runs.push_back(std::move(run));
}

std::string matrix_text(const KnownKernels& known, const Verification& verification) {
    Notes notes(verification);
    std::string tables, tested;
    for (const KnownNode& node : known.nodes) {
        tables += "\n" + node_table(known.backend, node, notes);
    }
    for (const Evidence& one : verification.evidence) {
        if (!one.continuous || one.backend != known.backend) continue;
        tested += fmt::format("; {}", one.by);
        std::vector<std::string> isas = one.isas;
        std::erase(isas, "");
        if (!isas.empty()) tested += " on " + joined(isas, ", ");
    }
    if (!tested.empty()) tested = "\n*tested*: continuously tested: " + tested.substr(2) + ".\n";
    const std::string measured = notes.text();
    return tables + tested + (measured.empty() ? "" : "\n*measured*: locally measured:\n\n") +
           measured + "\n";
}

std::string replace_section(std::string_view text, std::string_view name, std::string_view body,
                            std::string_view what) {
    const std::string begin = fmt::format("<!-- ridge verify: {} -->\n", name);
    const std::string end = fmt::format("<!-- ridge verify: end of {} -->\n", name);
    const size_t from = text.find(begin), to = text.find(end);
    if (from == text.npos || to == text.npos || to < from ||
        text.find(begin, from + 1) != text.npos || text.find(end, to + 1) != text.npos) {
        throw Error("{}: no section \"{}\": expected the lines {} and {}, once each",
                    printable(what), name, begin.substr(0, begin.size() - 1),
                    end.substr(0, end.size() - 1));
    }
    return fmt::format("{}{}{}", text.substr(0, from + begin.size()), body, text.substr(to));
}

std::string with_sections(std::string_view text, const Verification& verification,
                          std::string_view what) {
    std::string result(text);
    for (const auto& session : CaseSession::all_backends()) {
        const std::string backend = session->backend();
        result = replace_section(result, backend,
                                 matrix_text(known_kernels(*session), verification), what);
        result = replace_section(result, backend + " support", support_text(*session), what);
    }
    return result;
}

}  // namespace ridge
