#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/thread_pool.h"
#include "cmd/verify_matrix.h"

namespace ridge {
namespace {

// What may make a kernel give way: one case for each is asked, the cheapest.
using Kind = std::tuple<std::string, RowClass, int, bool>;

RowClass class_of(const Case& c) {
    return c.sequences.empty() ? c.row_class : c.sequences[0].row_class;
}

std::map<Kind, Case> kinds_of(Op op, const std::string& format) {
    std::map<Kind, Case> kinds;
    for (Case& c : all_cases()) {
        if (c.op != op || formats_of(c) != std::vector{format}) continue;
        const Kind kind{format, class_of(c), c.d_head, c.exact};
        const auto [at, is_new] = kinds.try_emplace(kind, c);
        if (!is_new && c.bytes < at->second.bytes) at->second = c;
    }
    return kinds;
}

// "gemm", or "prefill_attention; plain: d_head is not a multiple of 16".
std::string cell(const Subject& subject, Op op, const std::string& format) {
    ThreadPool pool(1);
    std::vector<std::string> parts;
    for (const auto& [kind, c] : kinds_of(op, format)) {
        const Fallback plan = CaseRun(c, 1).plan(subject.tables, pool, subject.is_packed);
        const std::string part = plan.reason.empty() ? std::string(plan.ran)
                                                     : fmt::format("{}: {}", plan.ran, plan.reason);
        if (std::find(parts.begin(), parts.end(), part) == parts.end()) {
            // What runs for most comes first.
            parts.insert(plan.reason.empty() ? parts.begin() : parts.end(), part);
        }
    }
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
    return text;
}

// One of each checkpoint.
std::vector<Subject> columns_of(const CaseSession& session, Op op) {
    std::vector<Subject> columns;
    for (Subject& subject : session.subjects(op)) {
        if (columns.empty() || columns.back().checkpoint != subject.checkpoint) {
            columns.push_back(std::move(subject));
        }
    }
    return columns;
}

std::string op_table(const CaseSession& session, Op op) {
    const std::vector<Subject> columns = columns_of(session, op);
    std::string text = fmt::format("| {} |", op_name(op)), line = "\n|---|";
    for (const Subject& subject : columns) {
        text += fmt::format(" `{}` |", subject.checkpoint);
        line += "---|";
    }
    text += line + "\n";
    // Formats whose cells are the same share a row.
    std::vector<std::pair<std::string, std::string>> rows;
    std::vector<std::string> seen;
    for (const Case& c : all_cases()) {
        if (c.op != op || formats_of(c).size() != 1) continue;
        const std::string format = formats_of(c)[0];
        if (std::find(seen.begin(), seen.end(), format) != seen.end()) continue;
        seen.push_back(format);
        std::string cells;
        for (const Subject& subject : columns) cells += " " + cell(subject, op, format) + " |";
        auto at = std::find_if(rows.begin(), rows.end(),
                               [&](const auto& row) { return row.second == cells; });
        if (at == rows.end()) {
            rows.emplace_back(format, cells);
        } else {
            at->first += ", " + format;
        }
    }
    for (const auto& [formats, cells] : rows) text += fmt::format("| {} |{}\n", formats, cells);
    return text;
}

// A node of stages or above: its bodies, the topmost first.
template <class Node>
std::string node_row(const Node& node) {
    std::string text;
    const auto entries = node.entries();
    for (size_t i = entries.size(); i-- > 0;) {
        if (!text.empty()) text += ", ";
        text += entries[i].checkpoint;
        if (entries[i].unfit != nullptr) text += " (where it supports the model and the batch)";
    }
    return fmt::format("| {} | {} |\n", node.name(), text);
}

std::string stages_table(const CaseSession& session) {
    const Tables tables = session.subjects(Op::kMatmul).back().tables;
    const Tables all = resolve_tables(session.checkpoints(), "", {.kernels = tables.kernels});
    const Stages& s = all.stages;
    return "| node | its bodies, the topmost first |\n|---|---|\n" + node_row(all.step) +
           node_row(all.layer) + node_row(s.attn_in) + node_row(s.attn) + node_row(s.attn_out) +
           node_row(s.ffn_in) + node_row(s.ffn_out) + node_row(s.head);
}

}  // namespace

std::string support_text(const CaseSession& session) {
    std::string text;
    for (int i = 0; i < kNumOps; i++) text += "\n" + op_table(session, static_cast<Op>(i));
    return text + "\n" + stages_table(session) + "\n";
}

}  // namespace ridge
