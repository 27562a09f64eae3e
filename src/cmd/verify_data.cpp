#include <fmt/format.h>

#include <array>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "cmd/output.h"
#include "cmd/verify_matrix.h"

namespace ridge {
namespace {

// What the rows of one kernel and format share.
VerifyKey without_claim(VerifyKey key) {
    key.claim.clear();
    return key;
}

// A figure in two digits: runs differ in more.
double rounded(double x) {
    return std::stod(fmt::format("{:.1e}", x));
}

// [n_cases, worst, relative_l2, from_exact], or n_cases alone where all are 0.
Json figures_json(const VerifyFigures& f) {
    if (f.worst == 0 && f.relative_l2 == 0 && f.from_exact == 0) return f.n_cases;
    return Json::array(
        {f.n_cases, rounded(f.worst), rounded(f.relative_l2), rounded(f.from_exact)});
}

VerifyFigures read_figures(const Json& json) {
    VerifyFigures f;
    if (json.is_number()) {
        json.get_to(f.n_cases);
        return f;
    }
    json.at(0).get_to(f.n_cases);
    json.at(1).get_to(f.worst);
    json.at(2).get_to(f.relative_l2);
    json.at(3).get_to(f.from_exact);
    return f;
}

void read_rows(const Json& json, MeasuredRun& run) {
    for (const Json& line : json) {
        VerifyKey key;
        line.at(0).get_to(key.backend);
        line.at(1).get_to(key.node);
        line.at(2).get_to(key.checkpoint);
        line.at(3).get_to(key.isa);
        line.at(4).get_to(key.format);
        for (const auto& [claim, figures] : line.at(5).items()) {
            key.claim = claim;
            run.rows.push_back({key, read_figures(figures)});
        }
    }
}

// The lists of an Evidence by their names.
template <class Of>
auto lists_of(Of& one) {
    return std::array{std::pair("nodes", &one.nodes), std::pair("checkpoints", &one.checkpoints),
                      std::pair("isas", &one.isas), std::pair("formats", &one.formats),
                      std::pair("claims", &one.claims)};
}

Evidence read_evidence(const Json& json) {
    Evidence one;
    json.at("continuous").get_to(one.continuous);
    json.at("by").get_to(one.by);
    json.at("backend").get_to(one.backend);
    for (auto [name, text] : {std::pair("machine", &one.machine), std::pair("date", &one.date),
                              std::pair("commit", &one.commit)}) {
        if (!one.continuous) json.at(name).get_to(*text);
    }
    for (auto [name, list] : lists_of(one)) {
        if (json.contains(name)) json.at(name).get_to(*list);
    }
    return one;
}

Json evidence_json(const Evidence& one) {
    Json json{{"continuous", one.continuous}, {"by", one.by}, {"backend", one.backend}};
    if (!one.continuous) {
        json["machine"] = one.machine, json["date"] = one.date, json["commit"] = one.commit;
    }
    for (auto [name, list] : lists_of(one)) {
        if (!list->empty()) json[name] = *list;
    }
    return json;
}

// The rows of one kernel and format in a line, in the order of the first.
std::string rows_text(const MeasuredRun& run) {
    std::vector<VerifyKey> keys;
    std::map<VerifyKey, Json> claims_of;
    for (const VerifyReport::Row& row : run.rows) {
        const VerifyKey key = without_claim(row.key);
        const auto [at, is_new] = claims_of.try_emplace(key);
        if (is_new) keys.push_back(key);
        at->second[row.key.claim] = figures_json(row.figures);
    }
    std::string text;
    for (const VerifyKey& key : keys) {
        const Json line = Json::array(
            {key.backend, key.node, key.checkpoint, key.isa, key.format, claims_of.at(key)});
        text += fmt::format("{}\n   {}", text.empty() ? "" : ",", dump_json(line));
    }
    return text;
}

}  // namespace

Verification read_verification(std::string_view text, std::string_view what) {
    const Json json = parse_json(text, what);
    Verification verification;
    try {
        for (const Json& one : json.at("evidence")) {
            verification.evidence.push_back(read_evidence(one));
        }
        for (const Json& one : json.at("runs")) {
            MeasuredRun& run = verification.runs.emplace_back();
            one.at("machine").get_to(run.machine);
            one.at("date").get_to(run.date);
            one.at("commit").get_to(run.commit);
            one.at("seed").get_to(run.seed);
            one.at("thin").get_to(run.thin);
            read_rows(one.at("rows"), run);
        }
    } catch (const nlohmann::json::exception& e) {
        throw Error("{}: not what `ridge verify --write` keeps: {}", printable(what),
                    printable(e.what()));
    }
    return verification;
}

std::string verification_text(const Verification& verification) {
    std::string text = "{\n \"evidence\": [";
    bool is_first = true;
    for (const Evidence& one : verification.evidence) {
        text += fmt::format("{}\n  {}", is_first ? "" : ",", dump_json(evidence_json(one)));
        is_first = false;
    }
    text += "\n ],\n \"runs\": [";
    is_first = true;
    for (const MeasuredRun& run : verification.runs) {
        Json head{{"machine", run.machine},
                  {"date", run.date},
                  {"commit", run.commit},
                  {"seed", run.seed},
                  {"thin", run.thin}};
        std::string head_text = dump_json(head);
        head_text.pop_back();
        text +=
            fmt::format("{}\n  {},\"rows\":[{}]}}", is_first ? "" : ",", head_text, rows_text(run));
        is_first = false;
    }
    return text + "\n ]\n}\n";
}

}  // namespace ridge
