#include "cmd/step_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "cases/case.h"
#include "cmd/bench_report.h"
#include "format/tensor.h"
#include "model/tables.h"

namespace ridge {
namespace {

bool is_stage(std::string_view node) {
    const auto stages = stage_names();
    return std::find(stages.begin(), stages.end(), node) != stages.end();
}

// What is left of a call's work when that of the calls within it is counted there.
std::vector<Work> own_work(std::span<const NodeSpan> spans) {
    std::vector<Work> own;
    for (const NodeSpan& span : spans) own.push_back(span.work);
    for (const NodeSpan& span : spans) {
        // Default bodies have no work of their own: what they call is a part of whatever called
        // them.
        int at = span.parent;
        while (at >= 0 && is_default_body(spans[static_cast<size_t>(at)].checkpoint)) {
            at = spans[static_cast<size_t>(at)].parent;
        }
        if (at < 0) continue;
        Work& parent = own[static_cast<size_t>(at)];
        auto take = [](int64_t& from, int64_t n) { from = std::max<int64_t>(0, from - n); };
        take(parent.weight_bytes, span.work.weight_bytes);
        take(parent.kv_bytes, span.work.kv_bytes);
        take(parent.activation_bytes, span.work.activation_bytes);
        take(parent.flops, span.work.flops);
    }
    return own;
}

void add(Work& sum, const Work& part) {
    sum.weight_bytes += part.weight_bytes;
    sum.kv_bytes += part.kv_bytes;
    sum.activation_bytes += part.activation_bytes;
    sum.flops += part.flops;
}

}  // namespace

std::span<const std::string_view> stage_names() {
    static constexpr std::string_view kStages[] = {"attn_in", "attn",    "attn_out",
                                                   "ffn_in",  "ffn_out", "head"};
    return kStages;
}

std::vector<std::string> replayable_nodes() {
    std::vector<std::string> names = {"layer"};
    names.insert(names.end(), stage_names().begin(), stage_names().end());
    for (int i = 0; i < kNumOps; i++) names.emplace_back(op_name(static_cast<Op>(i)));
    return names;
}

void check_replay(std::span<const std::string> names, std::span<const NodeSpan> spans,
                  std::string_view step) {
    const auto was_called = [&](std::string_view name) {
        return std::any_of(spans.begin(), spans.end(),
                           [&](const NodeSpan& span) { return span.node == name; });
    };
    for (const std::string& name : names) {
        if (was_called(name)) continue;
        std::string called;
        for (const std::string& other : replayable_nodes()) {
            if (was_called(other)) called += (called.empty() ? "" : ", ") + other;
        }
        throw Error(ErrorKind::kUsage,
                    "--replay {}: no kernel of this name runs in a {}; expected one of {}, or an "
                    "earlier --checkpoint",
                    name, step, called);
    }
}

std::string launches_text(std::span<const Launch> launches) {
    std::vector<std::string> all;
    for (const Launch& launch : launches) {
        if (launch.n_threads == 0) {  // a copy
            all.emplace_back(launch.name);
            continue;
        }
        std::string blocks = std::to_string(launch.blocks[0]);
        const size_t n_dims = launch.blocks[2] > 1 ? 3 : launch.blocks[1] > 1 ? 2 : 1;
        for (size_t i = 1; i < n_dims; i++) blocks += fmt::format("*{}", launch.blocks[i]);
        std::string text = fmt::format("{} {} x {}", launch.name, blocks, launch.n_threads);
        if (launch.shared_bytes > 0) {
            text += fmt::format(", {:.3g} KiB", static_cast<double>(launch.shared_bytes) / 1024);
        }
        all.push_back(std::move(text));
    }
    std::string text;
    for (size_t i = 0; i < all.size();) {
        size_t n = 1;
        while (i + n < all.size() && all[i + n] == all[i]) n++;
        if (!text.empty()) text += "; ";
        text += (n > 1 ? fmt::format("{} of ", n) : "") + all[i];
        i += n;
    }
    return text;
}

std::string_view stage_of(std::span<const NodeSpan> spans, const NodeSpan& span) {
    const NodeSpan* at = &span;
    while (!is_stage(at->node) && at->parent >= 0) at = &spans[static_cast<size_t>(at->parent)];
    return is_stage(at->node) ? at->node : span.node;
}

std::string weights_text(const Work& work) {
    std::string text;
    for (size_t i = 0; i < work.matrices.size() && work.matrices[i] != nullptr;) {
        const Tensor& one = *work.matrices[i];
        size_t n = 1;
        while (i + n < work.matrices.size() && work.matrices[i + n] != nullptr &&
               work.matrices[i + n]->format == one.format &&
               work.matrices[i + n]->shape == one.shape) {
            n++;
        }
        if (!text.empty()) text += ", ";
        if (n > 1) text += fmt::format("{} x ", n);
        text += fmt::format("{} {}", one.format->name, shape_text(one));
        i += n;
    }
    return text;
}

std::string step_name(int64_t n_prompt, int n_parallel, int64_t n_depth) {
    if (n_prompt > 0) return fmt::format("prompt step of {} tokens", n_prompt);
    return fmt::format("decode step of {} at position {}",
                       n_parallel == 1 ? "1 sequence" : fmt::format("{} sequences", n_parallel),
                       n_depth);
}

double median_of(const std::vector<double>& samples) {
    return spread_of(samples).median;
}

double idle_share_of(const StepTrace& trace) {
    const LoopRecord& loops = trace.loops();
    CHECK(loops.n_threads() >= 1);
    struct Loop {
        int64_t begin_ns = std::numeric_limits<int64_t>::max(), end_ns = 0;
    };
    std::map<int64_t, Loop> all;
    int64_t waited_ns = 0;
    for (int thread = 0; thread < loops.n_threads(); thread++) {
        int64_t worked_ns = 0;
        for (const LoopRecord::Span& span : loops.spans(thread)) {
            worked_ns += span.end_ns - span.begin_ns;
            Loop& loop = all[span.loop];
            loop.begin_ns = std::min(loop.begin_ns, span.begin_ns);
            loop.end_ns = std::max(loop.end_ns, span.end_ns);
        }
        if (thread > 0) waited_ns += trace.elapsed_ns() - worked_ns;
    }
    // The caller's own last piece may have ended before the loop did; or it had none.
    for (const LoopRecord::Span& span : loops.spans(0)) {
        waited_ns += all[span.loop].end_ns - span.end_ns;
        all.erase(span.loop);
    }
    for (const auto& [number, loop] : all) waited_ns += loop.end_ns - loop.begin_ns;
    return static_cast<double>(waited_ns) /
           (static_cast<double>(trace.elapsed_ns()) * loops.n_threads());
}

double NodeGroup::median_ns() const {
    return median_of(samples_ns);
}

NodeGroup& StepProfile::group_of(const NodeSpan& span, std::string_view stage, const Work& own) {
    std::string weights = weights_text(span.work);
    const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const NodeGroup& group) {
        return group.stage == stage && group.node == span.node &&
               group.checkpoint == span.checkpoint && group.weights == weights &&
               group.reason == span.reason;
    });
    if (found != groups_.end()) return *found;
    NodeGroup group;
    group.stage = stage, group.node = span.node, group.checkpoint = span.checkpoint;
    group.weights = std::move(weights);
    group.skipped = span.skipped, group.reason = span.reason;
    group.work.n_rows = own.n_rows;
    for (const Tensor* matrix : own.matrices) {
        if (matrix == nullptr) break;
        group.matrices.push_back({matrix->format->name, matrix->n_rows(), matrix->n_cols()});
    }
    groups_.push_back(std::move(group));
    return groups_.back();
}

void StepProfile::add(const StepTrace& trace) {
    const std::span<const NodeSpan> spans = trace.spans();
    const std::vector<Work> own = own_work(spans);
    const size_t n_before = n_samples();
    double in_groups_ns = 0;
    CHECK(!is_timed_on_device_);
    is_on_device_ = trace.is_on_device();
    if (!spans.empty() && spans[0].reason == kTracedByCalls) whole_ = spans[0].skipped;
    for (size_t i = 0; i < spans.size(); i++) {
        const NodeSpan& span = spans[i];
        if (trace.only_calls(span)) continue;
        NodeGroup& group = group_of(span, stage_of(spans, span), own[i]);
        if (n_before == 0) {
            group.n_calls++;
            ridge::add(group.work, own[i]);
            if (is_on_device_) note_launches(trace, static_cast<int>(i), group);
        }
        group.samples_ns.resize(n_before + 1);
        group.samples_ns.back() += static_cast<double>(span.own_ns());
        in_groups_ns += static_cast<double>(span.own_ns());
    }
    for (NodeGroup& group : groups_) group.samples_ns.resize(n_before + 1);
    const auto elapsed_ns = static_cast<double>(trace.elapsed_ns());
    samples_ns_.push_back(elapsed_ns);
    between_ns_.push_back(elapsed_ns - in_groups_ns);
    if (!is_on_device_) idle_shares_.push_back(idle_share_of(trace));
    n_dispatches_ =
        is_on_device_ ? static_cast<int64_t>(trace.all_launches().size()) : trace.loops().n_loops();
}

void StepProfile::note_launches(const StepTrace& trace, int span, NodeGroup& group) {
    group.calls.push_back(span);
    for (const Launch& launch : trace.all_launches()) {
        if (launch.span != span) continue;
        group.n_launches++;
        if (group.n_calls == 1) group.launches.push_back(launch);
    }
}

void StepProfile::time_on_device(StepTrace& trace, const std::function<void()>& step,
                                 std::vector<double> run_ns) {
    constexpr int kTimes = 15;
    if (!is_on_device_) return;
    CHECK(!is_timed_on_device_ && !run_ns.empty());
    is_timed_on_device_ = true;
    one_by_one_ns_ = std::exchange(samples_ns_, std::move(run_ns));
    step();  // by which calls are counted
    const size_t n_spans = trace.spans().size();
    const auto time = [&](std::vector<bool> calls) {
        trace.graph = {kTimes, std::move(calls), {}, {}};
        step();
        return std::exchange(trace.graph, {});
    };
    GraphTiming whole = time({});
    graph_ns_ = std::move(whole.samples_ns), why_no_graph_ = whole.unfit;
    for (NodeGroup& group : groups_) {
        if (graph_ns_.empty()) break;
        std::vector<bool> calls(n_spans);
        for (int call : group.calls) calls.at(static_cast<size_t>(call)) = true;
        GraphTiming alone = time(std::move(calls));
        if (alone.samples_ns.empty()) continue;
        group.in_graph = true;
        group.one_by_one_ns = std::exchange(group.samples_ns, std::move(alone.samples_ns));
    }
    step();  // what graphs of a part have computed means nothing
    double busy_ns = 0;
    for (const NodeGroup& group : groups_) busy_ns += group.runs_kernels() ? group.median_ns() : 0;
    between_ns_ = {std::max(0.0, median_ns() - kernels_ns())};
    idle_shares_ = {std::max(0.0, median_ns() - busy_ns) / median_ns()};
}

bool NodeGroup::runs_kernels() const {
    return launches.empty() || std::any_of(launches.begin(), launches.end(),
                                           [](const Launch& l) { return l.n_threads > 0; });
}

double StepProfile::kernels_ns() const {
    double sum = 0;
    for (const NodeGroup& group : groups_) sum += group.median_ns();
    return sum;
}

double StepProfile::median_ns() const {
    return median_of(samples_ns_);
}

double StepProfile::between_ns() const {
    return median_of(between_ns_);
}

double StepProfile::idle_share() const {
    if (idle_shares_.empty()) return 0;
    return median_of(idle_shares_);
}

Work StepProfile::work() const {
    Work sum;
    for (const NodeGroup& group : groups_) ridge::add(sum, group.work);
    return sum;
}

}  // namespace ridge
