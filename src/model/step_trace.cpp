#include "model/step_trace.h"

#include <algorithm>

#include "base/check.h"
#include "base/timer.h"
#include "format/packing.h"
#include "model/step.h"

namespace ridge {

StepTrace* trace_of(const Step& step) {
    return step.trace;
}

bool StepTrace::wants(std::string_view node, std::string_view checkpoint) const {
    auto is_named = [&](std::string_view name) {
        return std::find(only.begin(), only.end(), name) != only.end();
    };
    return only.empty() || is_named(node) || is_default_body(checkpoint) ||
           std::any_of(open_.begin(), open_.end(),
                       [&](int i) { return is_named(spans_[static_cast<size_t>(i)].node); });
}

void StepTrace::begin(std::string_view node, std::string_view checkpoint, std::string_view skipped,
                      std::string_view reason, const Work& work) {
    NodeSpan span;
    span.node = node, span.checkpoint = checkpoint;
    span.skipped = skipped, span.reason = reason;
    span.work = work;
    span.layer = work.layer;
    if (!open_.empty()) {
        span.parent = open_.back();
        NodeSpan& parent = spans_[static_cast<size_t>(span.parent)];
        parent.n_children++;
        if (span.layer < 0) span.layer = parent.layer;
    }
    open_.push_back(static_cast<int>(spans_.size()));
    spans_.push_back(span);
    spans_.back().begin_ns = monotonic_ns();
}

void StepTrace::end() {
    const int64_t now_ns = monotonic_ns();
    CHECK(!open_.empty());
    NodeSpan& span = spans_[static_cast<size_t>(open_.back())];
    open_.pop_back();
    span.end_ns = now_ns;
    if (span.parent >= 0) {
        spans_[static_cast<size_t>(span.parent)].children_ns += span.elapsed_ns();
    }
    if (on_end) on_end(span);
}

int64_t StepTrace::bytes_of(const Tensor& weight) {
    const auto [entry, fresh] = bytes_of_weights_.try_emplace(weight.planes[0].data, 0);
    if (fresh) entry->second = bytes_in_memory(weight);
    return entry->second;
}

TracedStep::TracedStep(StepTrace* trace, ThreadPool& pool) : trace_(trace), pool_(pool) {
    if (trace_ == nullptr) return;
    trace_->spans_.clear();
    trace_->open_.clear();
    trace_->loops_.clear(pool.size());
    pool.record(&trace_->loops_);
    trace_->begin_ns_ = monotonic_ns();
}

TracedStep::~TracedStep() {
    if (trace_ == nullptr) return;
    trace_->end_ns_ = monotonic_ns();
    pool_.record(nullptr);
}

}  // namespace ridge
