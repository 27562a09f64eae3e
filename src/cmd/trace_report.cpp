#include "cmd/trace_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/json.h"
#include "cmd/aligned_table.h"
#include "cmd/build_info.h"
#include "cmd/machine_json.h"
#include "cmd/model_json.h"
#include "cmd/step_json.h"

namespace ridge {
namespace {

double gbps_of(const Work& work, double ns) {
    return ns > 0 ? static_cast<double>(work.bytes()) / ns : 0;
}

double gflops_of(const Work& work, double ns) {
    return ns > 0 ? static_cast<double>(work.flops) / ns : 0;
}

std::string time_text(double ns) {
    if (ns >= 1e6) return fmt::format("{:.3f} ms", ns * 1e-6);
    return fmt::format("{:.1f} us", ns * 1e-3);
}

std::string kernel_text(const NodeGroup& group) {
    return fmt::format("{} by {}", group.node, group.checkpoint);
}

std::vector<std::string> row_of(const NodeGroup& group, double step_ns, double read_gbps) {
    const double ns = group.median_ns();
    const double wall_ns = static_cast<double>(group.work.bytes()) / read_gbps;
    return {group.stage,
            kernel_text(group),
            group.weights,
            std::to_string(group.n_calls),
            fmt::format("{:.1f}", ns * 1e-3),
            fmt::format("{:.1f}", 100 * ns / step_ns),
            fmt::format("{:.3f}", 1e-6 * static_cast<double>(group.work.bytes())),
            fmt::format("{:.2f}", gbps_of(group.work, ns)),
            fmt::format("{:.0f}", ns > 0 ? 100 * wall_ns / ns : 0),
            fmt::format("{:.2f}", gflops_of(group.work, ns))};
}

const std::vector<std::string> kColumns = {
    "stage", "kernel", "weights", "calls", "us", "% of step", "MB", "GB/s", "% of wall", "GFLOP/s",
};

// On a device the same, its launches, and the time that marks around a call tell.
std::vector<std::string> device_columns() {
    std::vector<std::string> columns = kColumns;
    columns.insert(columns.begin() + 3, "a call's launches: blocks x threads");
    columns.insert(columns.begin() + 6, "one by one");
    return columns;
}

// Within a step that is launched call by call.
double one_by_one_ns(const NodeGroup& group) {
    return median_of(group.in_graph ? group.one_by_one_ns : group.samples_ns);
}

std::vector<std::string> device_row_of(const NodeGroup& group, double step_ns, double read_gbps) {
    std::vector<std::string> row = row_of(group, step_ns, read_gbps);
    row.insert(row.begin() + 3, launches_text(group.launches));
    row.insert(row.begin() + 6, fmt::format("{:.1f}", one_by_one_ns(group) * 1e-3));
    if (!group.in_graph) row[5] = "(" + row[5] + ")";
    return row;
}

// The head, and a row for each group.
std::vector<std::vector<std::string>> rows_of(const StepProfile& profile, double step_ns,
                                              double read_gbps) {
    const bool on_device = profile.is_on_device();
    std::vector<std::vector<std::string>> rows = {on_device ? device_columns() : kColumns};
    for (const NodeGroup& group : profile.groups()) {
        rows.push_back((on_device ? device_row_of : row_of)(group, step_ns, read_gbps));
    }
    return rows;
}

std::string what_times_are(const StepProfile& profile) {
    if (!profile.why_no_graph().empty()) {
        return fmt::format(
            "us: between marks before and after each call, in a step that is launched call by call "
            "(no graph: {})\n",
            profile.why_no_graph());
    }
    return "us: a row's kernels alone, captured as a graph and replayed, weights from memory "
           "unless all of them fit into the second cache; in brackets, and one by one: between "
           "marks before and after each call, which keep kernels from overlapping\n";
}

std::string device_lines(const StepProfile& profile) {
    std::string text = what_times_are(profile);
    const double kernels_ns = profile.kernels_ns(), run_ns = profile.median_ns();
    text += fmt::format("{} kernels a step, {} when the rows' times are added",
                        profile.n_dispatches(), time_text(kernels_ns));
    if (!profile.graph_ns().empty()) {
        text += fmt::format("; the step in one graph takes {}",
                            time_text(median_of(profile.graph_ns())));
    }
    text += fmt::format(", launched one by one {}, as it runs {}\n",
                        time_text(median_of(profile.one_by_one_ns())), time_text(run_ns));
    if (!profile.whole().empty()) {
        text +=
            fmt::format("as it runs: by {}, where it can; {}\n", profile.whole(), kTracedByCalls);
    }
    if (kernels_ns > run_ns) {
        return text +
               "kernels overlap with their neighbours as it runs (programmatic dependent launch), "
               "which rows alone do not tell\n";
    }
    return text + fmt::format("idle: {:.1f} % of the step as it runs is in no kernel\n",
                              100 * profile.idle_share());
}

// Other programs that take a CPU hold up another node in each step: the median of a node leaves out
// what the median of steps holds.
std::string disturbance_line(double in_rows_ns, double step_ns) {
    constexpr double kUndisturbed = 0.95;
    if (in_rows_ns >= kUndisturbed * step_ns) return {};
    return fmt::format(
        "disturbed: the rows' medians together are {:.0f} % of the step's; the rest is of no "
        "node, as where other programs run\n",
        100 * in_rows_ns / step_ns);
}

std::string fallback_lines(const StepProfile& profile) {
    std::string text;
    for (const NodeGroup& group : profile.groups()) {
        if (group.reason.empty()) continue;
        std::string line = fmt::format("not by {}: {} {}: {}\n", group.skipped, group.stage,
                                       kernel_text(group), group.reason);
        if (text.find(line) == std::string::npos) text += line;
    }
    return text;
}

double ns_of_group(const StepProfile& profile, std::string_view name) {
    double ns = 0;
    for (const NodeGroup& group : profile.groups()) {
        if (group.stage == name) ns += group.median_ns();
    }
    return ns;
}

int64_t bytes_of_group(const StepProfile& profile, std::string_view name) {
    int64_t n = 0;
    for (const NodeGroup& group : profile.groups()) {
        if (group.stage == name) n += group.work.bytes();
    }
    return n;
}

Json launches_json(std::span<const Launch> launches) {
    Json list = Json::array();
    for (const Launch& launch : launches) {
        Json one;
        one["name"] = std::string(launch.name);
        one["blocks"] = launch.blocks;
        one["n_threads"] = launch.n_threads;
        one["shared_bytes"] = launch.shared_bytes;
        list.push_back(std::move(one));
    }
    return list;
}

Json group_json(const NodeGroup& group) {
    Json json;
    json["stage"] = group.stage;
    json["node"] = group.node;
    json["checkpoint"] = group.checkpoint;
    if (!group.reason.empty()) {
        json["skipped"] = group.skipped;
        json["reason"] = group.reason;
    }
    json["weights"] = matrices_json(group.matrices);
    json["n_calls"] = group.n_calls;
    if (!group.calls.empty()) {
        json["n_launches"] = group.n_launches;
        json["launches"] = launches_json(group.launches);
        json["in_graph"] = group.in_graph;
        if (group.in_graph) json["one_by_one_ns"] = group.one_by_one_ns;
    }
    json["bytes"] = bytes_json(group.work);
    json["flops"] = group.work.flops;
    const double ns = group.median_ns();
    json["median_ns"] = ns;
    json["gbps"] = gbps_of(group.work, ns);
    json["gflops"] = gflops_of(group.work, ns);
    json["samples_ns"] = group.samples_ns;
    return json;
}

Json profile_json(const StepProfile& profile) {
    Json json;
    json["median_ns"] = profile.median_ns();
    json["samples_ns"] = profile.samples_ns();
    json["between_ns"] = profile.between_ns();
    json["on_device"] = profile.is_on_device();
    json["n_dispatches"] = profile.n_dispatches();
    json["idle_share"] = profile.idle_share();
    if (profile.is_on_device()) {
        json["whole"] = profile.whole();
        json["kernels_ns"] = profile.kernels_ns();
        json["graph_ns"] = profile.graph_ns();
        if (!profile.why_no_graph().empty()) json["why_no_graph"] = profile.why_no_graph();
        json["one_by_one_ns"] = profile.one_by_one_ns();
    }
    json["bytes"] = bytes_json(profile.work());
    json["flops"] = profile.work().flops;
    json["nodes"] = Json::array();
    for (const NodeGroup& group : profile.groups()) json["nodes"].push_back(group_json(group));
    return json;
}

}  // namespace

std::string TracedStepKind::name() const {
    return step_name(n_prompt, n_parallel, n_depth);
}

std::string step_table(const TracedStepKind& step, double read_gbps) {
    const StepProfile& profile = step.profile;
    const bool on_device = profile.is_on_device();
    const double step_ns = profile.median_ns();
    const double in_rows_ns = profile.between_ns() + profile.kernels_ns();
    std::vector<std::vector<std::string>> rows = rows_of(profile, step_ns, read_gbps);
    auto& between = rows.emplace_back(rows[0].size());
    between[0] = "between";
    between[on_device ? 5 : 4] = fmt::format("{:.1f}", profile.between_ns() * 1e-3);
    between[on_device ? 7 : 5] = fmt::format("{:.1f}", 100 * profile.between_ns() / step_ns);
    const Work work = profile.work();
    const double least_ns = static_cast<double>(work.bytes()) / read_gbps;
    std::string text =
        fmt::format("{}: {}, {:.1f} tok/s{} (median of {})\n\n", step.name(), time_text(step_ns),
                    1e9 * static_cast<double>(step.n_tokens()) / step_ns,
                    on_device ? " as it runs" : "", profile.n_samples());
    text += aligned_table(rows, on_device ? 4 : 3) + "\n";
    if (on_device) {
        text += device_lines(profile);
    } else {
        text += fmt::format("{} dispatches; threads wait {:.1f} % of the time; ",
                            profile.n_dispatches(), 100 * profile.idle_share());
    }
    text += fmt::format("weights {:.3f} MB, KV {:.3f} MB, rows between kernels {:.3f} MB\n",
                        1e-6 * static_cast<double>(work.weight_bytes),
                        1e-6 * static_cast<double>(work.kv_bytes),
                        1e-6 * static_cast<double>(work.activation_bytes));
    text += fmt::format("the wall: all bytes at {:.2f} GB/s take {}, {:.0f} % of the step\n",
                        read_gbps, time_text(least_ns), 100 * least_ns / step_ns);
    if (!on_device) text += disturbance_line(in_rows_ns, step_ns);
    return text + fallback_lines(profile);
}

std::string replay_table(const TracedStepKind& step, double read_gbps) {
    const bool on_device = step.alone.is_on_device();
    const std::vector<double>& graph_ns = step.alone.graph_ns();
    const double whole_ns = graph_ns.empty() ? step.alone.median_ns() : median_of(graph_ns);
    const double alone_ns = graph_ns.empty() ? step.alone.kernels_ns() : whole_ns;
    double within_ns = 0;
    for (const NodeGroup& group : step.alone.groups()) {
        for (const NodeGroup& same : step.profile.groups()) {
            const bool is_same = same.stage == group.stage && same.node == group.node &&
                                 same.weights == group.weights;
            if (is_same) within_ns += one_by_one_ns(same);
        }
    }
    const char* within =
        on_device ? "within the step launched one by one" : "within the whole step";
    return fmt::format("alone{}, in a {}: {}; {} they take {} (median of {})\n\n",
                       graph_ns.empty() ? "" : " in one graph", step.name(), time_text(alone_ns),
                       within, time_text(within_ns),
                       graph_ns.empty() ? step.alone.n_samples() : graph_ns.size()) +
           aligned_table(rows_of(step.alone, whole_ns, read_gbps), on_device ? 4 : 3);
}

Attribution attribution_of(std::span<const TracedCheckpoint> checkpoints, size_t step) {
    Attribution result;
    result.groups.emplace_back("embed_rows");
    for (std::string_view stage : stage_names()) result.groups.emplace_back(stage);
    result.groups.emplace_back("sample");
    // An entry of a whole layer that has kernels of its own.
    const bool has_layers =
        std::any_of(checkpoints.begin(), checkpoints.end(), [&](const TracedCheckpoint& one) {
            return ns_of_group(one.steps[step].profile, "layer") > 0;
        });
    if (has_layers) result.groups.emplace_back("layer");
    for (const TracedCheckpoint& one : checkpoints) {
        const StepProfile& profile = one.steps[step].profile;
        std::vector<double>& column = result.ns.emplace_back();
        for (const std::string& name : result.groups) column.push_back(ns_of_group(profile, name));
        column.push_back(profile.between_ns());
    }
    result.groups.emplace_back("between");
    const TracedCheckpoint& last = checkpoints.back();
    for (size_t i = 0; i < result.groups.size(); i++) {
        const auto bytes =
            static_cast<double>(bytes_of_group(last.steps[step].profile, result.groups[i]));
        result.least_ns.push_back(bytes / last.read_gbps);
        const double gap_ns = result.ns.back()[i] - result.least_ns[i];
        if (gap_ns <= result.next_gap_ns) continue;
        result.next_gap = result.groups[i], result.next_gap_ns = gap_ns;
    }
    return result;
}

std::string attribution_table(std::span<const TracedCheckpoint> checkpoints, size_t step) {
    const Attribution a = attribution_of(checkpoints, step);
    std::vector<std::vector<std::string>> rows(1, {"us"});
    for (const TracedCheckpoint& one : checkpoints) rows[0].push_back(one.model.checkpoint);
    rows[0].push_back("bytes at the wall");
    for (size_t i = 0; i < a.groups.size(); i++) {
        auto& row = rows.emplace_back(1, a.groups[i]);
        for (const auto& column : a.ns) row.push_back(fmt::format("{:.1f}", column[i] * 1e-3));
        row.push_back(fmt::format("{:.1f}", a.least_ns[i] * 1e-3));
    }
    const bool on_device = checkpoints.back().steps[step].profile.is_on_device();
    std::vector<std::string> total = {"step"}, dispatches = {"dispatches"},
                             idle = {on_device ? "idle, %" : "threads wait, %"},
                             activations = {"rows between kernels, MB"};
    for (const TracedCheckpoint& one : checkpoints) {
        const StepProfile& profile = one.steps[step].profile;
        total.push_back(fmt::format("{:.1f}", profile.median_ns() * 1e-3));
        dispatches.push_back(std::to_string(profile.n_dispatches()));
        idle.push_back(fmt::format("{:.1f}", 100 * profile.idle_share()));
        activations.push_back(
            fmt::format("{:.3f}", 1e-6 * static_cast<double>(profile.activation_bytes())));
    }
    total.push_back(
        fmt::format("{:.1f}", 1e-3 * std::accumulate(a.least_ns.begin(), a.least_ns.end(), 0.0)));
    for (auto* row : {&dispatches, &idle, &activations}) row->emplace_back();
    rows.insert(rows.end(), {total, dispatches, idle, activations});
    const TracedCheckpoint& last = checkpoints.back();
    std::string text =
        fmt::format("{}, by checkpoints\n\n", last.steps[step].name()) + aligned_table(rows, 1);
    if (a.next_gap.empty() || last.steps[step].n_prompt > 0) return text;
    return text + fmt::format("\nthe next gap: {}, {} above what its bytes take\n", a.next_gap,
                              time_text(a.next_gap_ns));
}

nlohmann::ordered_json trace_json(std::span<const TracedCheckpoint> checkpoints) {
    Json json;
    json["build_commit"] = std::string(build_info().commit);
    json["build_version"] = std::string(build_info().version);
    json["machine"] = machine_json(checkpoints.front().model);
    json["checkpoints"] = Json::array();
    for (const TracedCheckpoint& one : checkpoints) {
        Json of_checkpoint;
        of_checkpoint["model"] = model_json(one.model);
        of_checkpoint["read_wall_gbps"] = one.read_gbps;
        of_checkpoint["steps"] = Json::array();
        for (const TracedStepKind& step : one.steps) {
            Json of_step;
            of_step["n_prompt"] = step.n_prompt;
            of_step["n_parallel"] = step.n_parallel;
            of_step["n_depth"] = step.n_depth;
            of_step["tok_s"] =
                1e9 * static_cast<double>(step.n_tokens()) / step.profile.median_ns();
            of_step["step"] = profile_json(step.profile);
            if (step.alone.n_samples() > 0) of_step["alone"] = profile_json(step.alone);
            of_checkpoint["steps"].push_back(std::move(of_step));
        }
        json["checkpoints"].push_back(std::move(of_checkpoint));
    }
    return json;
}

}  // namespace ridge
