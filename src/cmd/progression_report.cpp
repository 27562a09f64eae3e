#include "cmd/progression_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/json.h"
#include "cmd/aligned_table.h"
#include "cmd/round_ratio.h"
#include "cmd/sign_test.h"
#include "cmd/step_profile.h"

namespace ridge {
namespace {

// The stages and nodes that a checkpoint has kernels of.
using Places = std::set<std::pair<std::string, std::string>>;

// A kernel of a whole stage, whose node is called as the stage is, does the work of all its nodes.
double total_ns(const StepFacts& facts, const Places& places) {
    double ns = 0;
    for (const StepFacts::Group& group : facts.groups) {
        if (places.contains({group.stage, group.stage}) ||
            places.contains({group.stage, group.node})) {
            ns += group.ns;
        }
    }
    return ns;
}

std::string rate_text(double rate) {
    return rate < 10 ? fmt::format("{:.2f}", rate) : fmt::format("{:.1f}", rate);
}

double cumulative_gain(const std::vector<ProgressionEntry>& entries, size_t i, size_t test) {
    return gain_of(entries.front().tests[test], entries[i].tests[test]).median;
}

Json facts_json(const StepFacts& facts) {
    Json json;
    json["n_dispatches"] = facts.n_dispatches;
    json["idle_share"] = facts.idle_share;
    if (facts.on_device) json["on_device"] = true;
    if (!facts.whole.empty()) json["whole"] = facts.whole;
    json["activation_bytes"] = facts.activation_bytes;
    json["stages"] = Json::array();
    for (const StepFacts::Group& group : facts.groups) {
        Json one;
        one["stage"] = group.stage;
        one["node"] = group.node;
        one["checkpoint"] = group.checkpoint;
        one["ns"] = group.ns;
        json["stages"].push_back(std::move(one));
    }
    return json;
}

}  // namespace

constexpr double kByChance = 0.05;

bool Gain::is_clear() const {
    return n_rounds >= kLeastRounds && chance_of_heads(n_rounds, n_faster) <= kByChance;
}

bool Gain::is_loss() const {
    return n_rounds >= kLeastRounds && chance_of_heads(n_rounds, n_slower) <= kByChance;
}

Gain gain_of(const ProgressionTest& before, const ProgressionTest& after) {
    const size_t n = std::min(before.samples_ts.size(), after.samples_ts.size());
    if (n == 0) return {};
    std::vector<double> ratios;
    for (size_t i = 0; i < n; i++) ratios.push_back(after.samples_ts[i] / before.samples_ts[i]);
    Gain gain;
    gain.n_rounds = static_cast<int>(n);
    for (double ratio : ratios) {
        gain.n_faster += ratio > 1 ? 1 : 0;
        gain.n_slower += ratio < 1 ? 1 : 0;
    }
    const RoundRatio ratio = ratio_of_rounds(ratios);
    gain.median = ratio.median, gain.spread = ratio.spread;
    return gain;
}

std::optional<double> operator_gain(const ProgressionTest& before, const ProgressionTest& after,
                                    const std::string& checkpoint) {
    std::vector<double> ratios;
    for (size_t i = 0; i < std::min(before.facts.size(), after.facts.size()); i++) {
        Places places;
        for (const StepFacts::Group& group : after.facts[i].groups) {
            if (group.checkpoint == checkpoint) places.emplace(group.stage, group.node);
        }
        const double now_ns = total_ns(after.facts[i], places);
        if (now_ns > 0) ratios.push_back(total_ns(before.facts[i], places) / now_ns);
    }
    if (ratios.empty()) return {};
    return median_of(std::move(ratios));
}

std::string verdict_of(const ProgressionEntry& before, const ProgressionEntry& entry) {
    if (!entry.fault.empty()) return "drop: " + entry.fault;
    bool ran = false, traced = false, enough = false;
    std::string gain, loss;  // names of tests
    for (size_t i = 0; i < entry.tests.size(); i++) {
        const auto as_operator = operator_gain(before.tests[i], entry.tests[i], entry.checkpoint);
        const Gain whole = gain_of(before.tests[i], entry.tests[i]);
        const std::vector<StepFacts>& facts = entry.tests[i].facts;
        traced = traced || !facts.empty();
        // A whole step is the model: its own kernels are not to be told apart.
        const bool is_whole = !facts.empty() && facts.front().whole == entry.checkpoint;
        enough = enough || whole.n_rounds >= kLeastRounds;
        ran = ran || as_operator.has_value() || is_whole;
        const bool faster_operator = facts.empty() || is_whole || (as_operator && *as_operator > 1);
        auto add = [&](std::string& names) {
            names += (names.empty() ? "" : ", ") + entry.tests[i].name;
        };
        if (faster_operator && whole.is_clear()) add(gain);
        if (whole.is_loss()) add(loss);
    }
    if (traced && !ran) return "drop: none of its kernels ran";
    if (!enough) return fmt::format("unknown: fewer than {} rounds", kLeastRounds);
    if (!gain.empty() && !loss.empty()) {
        return fmt::format("mixed: faster in {}, slower in {}", gain, loss);
    }
    if (!gain.empty()) return "keep";
    return loss.empty() ? "drop: no gain beyond chance" : "drop: slower in " + loss;
}

int64_t n_rounds_of(const ProgressionEntry& entry) {
    return entry.tests.empty() ? 0 : static_cast<int64_t>(entry.tests.front().samples_ts.size());
}

namespace {

bool is_complete(const std::vector<ProgressionEntry>& entries, int64_t n_rounds) {
    return std::all_of(entries.begin(), entries.end(), [&](const ProgressionEntry& entry) {
        return n_rounds_of(entry) >= n_rounds;
    });
}

std::vector<std::string> row_of(const std::vector<ProgressionEntry>& entries, size_t i, size_t t) {
    const ProgressionTest& test = entries[i].tests[t];
    std::vector<std::string> row = {entries[i].checkpoint, rate_text(median_of(test.samples_ts))};
    if (i == 0) {
        row.insert(row.end(), {"", "", ""});
    } else {
        const ProgressionTest& before = entries[i - 1].tests[t];
        const Gain gain = gain_of(before, test);
        const auto as_operator = operator_gain(before, test, entries[i].checkpoint);
        row.push_back(fmt::format("{:.2f} ± {:.2f}", gain.median, gain.spread));
        row.push_back(fmt::format("{:.2f}", cumulative_gain(entries, i, t)));
        row.push_back(as_operator ? fmt::format("{:.2f}", *as_operator) : std::string("-"));
    }
    if (test.facts.empty()) return row;
    row.push_back(std::to_string(test.facts.front().n_dispatches));
    row.push_back(
        fmt::format("{:.2f}", 1e-6 * static_cast<double>(test.facts.front().activation_bytes)));
    std::vector<double> idle;
    for (const StepFacts& facts : test.facts) idle.push_back(facts.idle_share);
    row.push_back(fmt::format("{:.0f}", 100 * median_of(std::move(idle))));
    return row;
}

}  // namespace

std::string progression_table(const std::vector<ProgressionEntry>& entries, int64_t n_rounds) {
    std::string text;
    const std::vector<ProgressionTest>& tests = entries.front().tests;
    for (size_t t = 0; t < tests.size(); t++) {
        std::vector<std::string> head = {"checkpoint", "tok/s", "gained", "so far", "its kernels"};
        if (const auto& facts = tests[t].facts; !facts.empty()) {
            const bool on_device = facts.front().on_device;
            head.insert(head.end(), {on_device ? "kernels" : "dispatches", "rows, MB",
                                     on_device ? "idle, %" : "wait, %"});
        }
        std::vector<std::vector<std::string>> rows = {head};
        for (size_t i = 0; i < entries.size() && n_rounds_of(entries[i]) > 0; i++) {
            rows.push_back(row_of(entries, i, t));
            rows.back().resize(head.size());  // one that was timed, and not traced any more
        }
        text += fmt::format("{}\n\n{}\n", tests[t].name, aligned_table(rows, 1));
    }
    std::vector<std::vector<std::string>> rows = {{"checkpoint", "kernels", "verdict"}};
    for (size_t i = 1; i < entries.size(); i++) {
        const bool correct = entries[i].fault.empty();
        rows.push_back({entries[i].checkpoint,
                        !entries[i].verified ? "not verified" : (correct ? "correct" : "wrong"),
                        verdict_of(entries[i - 1], entries[i])});
    }
    text += aligned_table(rows, 3);
    if (is_complete(entries, n_rounds)) return text;
    std::string had;
    for (const ProgressionEntry& entry : entries) {
        had +=
            fmt::format("{}{} {}", had.empty() ? "" : ", ", entry.checkpoint, n_rounds_of(entry));
    }
    return text + fmt::format("\nIncomplete: of {} rounds {}.\n", n_rounds, had);
}

nlohmann::ordered_json progression_json(const std::vector<ProgressionEntry>& entries,
                                        const nlohmann::ordered_json& about, int64_t n_rounds) {
    Json json = about;
    json["complete"] = is_complete(entries, n_rounds);
    json["checkpoints"] = Json::array();
    for (size_t i = 0; i < entries.size(); i++) {
        const ProgressionEntry& entry = entries[i];
        Json one;
        one["checkpoint"] = entry.checkpoint;
        one["n_rounds"] = n_rounds_of(entry);
        one["verified"] = entry.verified;
        one["fault"] = entry.fault;
        one["verdict"] = i == 0 ? Json() : Json(verdict_of(entries[i - 1], entry));
        one["tests"] = Json::array();
        for (size_t t = 0; t < entry.tests.size(); t++) {
            const ProgressionTest& test = entry.tests[t];
            Json of_test;
            of_test["test"] = test.name;
            of_test["median_ts"] = median_of(test.samples_ts);
            of_test["samples_ts"] = test.samples_ts;
            if (i > 0) {
                const Gain gain = gain_of(entries[i - 1].tests[t], test);
                of_test["gain"] = gain.median;
                of_test["gain_spread"] = gain.spread;
                const auto as_operator =
                    operator_gain(entries[i - 1].tests[t], test, entry.checkpoint);
                of_test["operator_gain"] = as_operator ? Json(*as_operator) : Json();
            }
            of_test["cumulative_gain"] = cumulative_gain(entries, i, t);
            of_test["steps"] = Json::array();
            for (const StepFacts& facts : test.facts) of_test["steps"].push_back(facts_json(facts));
            one["tests"].push_back(std::move(of_test));
        }
        json["checkpoints"].push_back(std::move(one));
    }
    return json;
}

}  // namespace ridge
