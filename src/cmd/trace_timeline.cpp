#include "cmd/trace_timeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "cmd/output.h"
#include "cmd/step_profile.h"
#include "model/tables.h"

namespace ridge {
namespace {

constexpr int kProcess = 1, kNodeTrack = 1, kFirstThreadTrack = 2;
constexpr int kDeviceTrack = 1000;  // behind those of any number of threads

double microseconds(int64_t ns) {
    return static_cast<double>(ns) * 1e-3;
}

Json metadata(std::string_view name, int track, std::string value) {
    Json event;
    event["name"] = std::string(name);
    event["ph"] = "M";
    event["pid"] = kProcess;
    event["tid"] = track;
    event["args"]["name"] = std::move(value);
    return event;
}

Json node_arguments(const NodeSpan& span) {
    Json json;
    json["checkpoint"] = std::string(span.checkpoint);
    if (span.layer >= 0) json["layer"] = span.layer;
    if (std::string weights = weights_text(span.work); !weights.empty()) {
        json["weights"] = std::move(weights);
    }
    if (is_default_body(span.checkpoint)) return json;
    json["rows"] = span.work.n_rows;
    json["bytes"] = span.work.bytes();
    json["flops"] = span.work.flops;
    if (span.elapsed_ns() > 0) {
        json["GB/s"] =
            static_cast<double>(span.work.bytes()) / static_cast<double>(span.elapsed_ns());
    }
    if (!span.reason.empty()) {
        json["skipped"] = std::string(span.skipped);
        json["reason"] = std::string(span.reason);
    }
    return json;
}

// The innermost call under way at that time; null: none. Calls are in the order of their beginning.
const NodeSpan* call_at(std::span<const NodeSpan> spans, int64_t at_ns) {
    const auto after =
        std::upper_bound(spans.begin(), spans.end(), at_ns,
                         [](int64_t ns, const NodeSpan& span) { return ns < span.begin_ns; });
    for (auto it = after; it != spans.begin();) {
        --it;
        if (at_ns < it->end_ns) return &*it;
    }
    return nullptr;
}

}  // namespace

Timeline::Timeline(std::string process_name) : process_name_(std::move(process_name)) {}

Timeline::~Timeline() = default;

void Timeline::name_tracks(int n_threads, bool on_device) {
    if (events_.empty()) {
        events_.push_back(metadata("process_name", kNodeTrack, process_name_));
        events_.push_back(metadata("thread_name", kNodeTrack, "nodes"));
        if (on_device) events_.push_back(metadata("thread_name", kDeviceTrack, "kernels"));
    }
    for (; n_named_ < n_threads; n_named_++) {
        events_.push_back(
            metadata("thread_name", kFirstThreadTrack + n_named_,
                     n_named_ == 0 ? "thread 0, the caller" : fmt::format("thread {}", n_named_)));
    }
}

void Timeline::add_event(std::string_view name, std::string_view category, int track,
                         int64_t begin_ns, int64_t end_ns, nlohmann::ordered_json arguments) {
    Json event;
    event["name"] = std::string(name);
    event["cat"] = std::string(category);
    event["ph"] = "X";
    event["ts"] = microseconds(begin_ns - zero_ns_);
    event["dur"] = microseconds(end_ns - begin_ns);
    event["pid"] = kProcess;
    event["tid"] = track;
    event["args"] = std::move(arguments);
    events_.push_back(std::move(event));
}

void Timeline::add(std::string_view step_name, const StepTrace& trace) {
    const LoopRecord& loops = trace.loops();
    const bool on_device = trace.is_on_device();
    if (zero_ns_ < 0) zero_ns_ = trace.begin_ns();
    name_tracks(on_device ? 0 : loops.n_threads(), on_device);
    Json totals;
    if (on_device) {
        totals["dispatches"] = trace.all_launches().size();
    } else {
        totals["dispatches"] = loops.n_loops();
        totals["idle share"] = idle_share_of(trace);
    }
    add_event(step_name, "step", kNodeTrack, trace.begin_ns(),
              trace.begin_ns() + trace.elapsed_ns(), std::move(totals));
    for (const NodeSpan& span : trace.spans()) {
        add_event(span.node, "node", kNodeTrack, span.begin_ns, span.end_ns, node_arguments(span));
    }
    if (on_device) return add_launches(trace);
    for (int thread = 0; thread < loops.n_threads(); thread++) {
        for (const LoopRecord::Span& span : loops.spans(thread)) {
            const NodeSpan* node = call_at(trace.spans(), span.begin_ns);
            Json arguments;
            arguments["loop"] = span.loop;
            if (node != nullptr) {
                arguments["checkpoint"] = std::string(node->checkpoint);
                if (node->layer >= 0) arguments["layer"] = node->layer;
            }
            add_event(node != nullptr ? node->node : "loop", "loop", kFirstThreadTrack + thread,
                      span.begin_ns, span.end_ns, std::move(arguments));
        }
    }
}

// The marks around a call tell when its kernels ran, together.
void Timeline::add_launches(const StepTrace& trace) {
    const std::span<const Launch> launches = trace.all_launches();
    const std::span<const NodeSpan> spans = trace.spans();
    for (size_t i = 0; i < spans.size(); i++) {
        const NodeSpan& span = spans[i];
        if (span.n_launches == 0 || span.n_children > 0) continue;
        std::vector<Launch> own;
        for (const Launch& launch : launches) {
            if (launch.span == static_cast<int>(i)) own.push_back(launch);
        }
        std::string name(own.front().name);
        if (own.size() > 1) name += fmt::format(" and {} more", own.size() - 1);
        Json arguments = node_arguments(span);
        arguments["launches"] = launches_text(own);
        add_event(name, "kernel", kDeviceTrack, span.begin_ns, span.end_ns, std::move(arguments));
    }
}

std::string Timeline::text() const {
    std::string text = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
    for (size_t i = 0; i < events_.size(); i++) {
        text += dump_json(events_[i]) + (i + 1 < events_.size() ? ",\n" : "\n");
    }
    return text + "]}\n";
}

}  // namespace ridge
