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

bool StepTrace::is_named(std::string_view node) const {
    return only.empty() || std::find(only.begin(), only.end(), node) != only.end();
}

bool StepTrace::is_within_named() const {
    return only.empty() || std::any_of(open_.begin(), open_.end(), [&](int i) {
               return is_named(spans_[static_cast<size_t>(i)].node);
           });
}

bool StepTrace::wants(std::string_view node, std::string_view checkpoint) {
    const bool is_wanted =
        is_named(node) || is_within_named() || is_default_body(checkpoint) ||
        std::find(callers_.begin(), callers_.end(), Entry{node, checkpoint}) != callers_.end();
    const size_t next = spans_.size();
    if (!is_wanted || !is_capturing_ || is_captured(next)) return is_wanted;
    // Calls keep their places: one that makes others is made in any case, and starts nothing.
    if (next >= is_leaf_.size() || !is_leaf_[next]) return true;
    spans_.emplace_back();
    return false;
}

void StepTrace::begin(std::string_view node, std::string_view checkpoint, std::string_view skipped,
                      std::string_view reason, const Work& work) {
    NodeSpan span;
    span.node = node, span.checkpoint = checkpoint;
    span.skipped = skipped, span.reason = reason;
    span.work = work;
    span.layer = work.layer;
    span.leads = !is_named(node) && !is_within_named();
    if (!open_.empty()) {
        span.parent = open_.back();
        NodeSpan& parent = spans_[static_cast<size_t>(span.parent)];
        parent.n_children++;
        if (span.layer < 0) span.layer = parent.layer;
    }
    open_.push_back(static_cast<int>(spans_.size()));
    spans_.push_back(span);
    if (clock_ != nullptr) {
        marks_.emplace_back();
        if (!is_default_body(checkpoint) && !span.leads) marks_.back().begin = mark_now(false);
    }
    spans_.back().begin_ns = monotonic_ns();
}

void StepTrace::end() {
    const int64_t now_ns = monotonic_ns();
    CHECK(!open_.empty());
    const auto at = static_cast<size_t>(open_.back());
    NodeSpan& span = spans_[at];
    if (clock_ != nullptr && marks_[at].begin >= 0) {
        marks_[at].end = mark_now(span.n_children == 0);
    }
    open_.pop_back();
    span.end_ns = now_ns;
    if (span.parent >= 0) {
        spans_[static_cast<size_t>(span.parent)].children_ns += span.elapsed_ns();
    }
    if (on_end) on_end(span);
}

// One mark does for the end of a call and the beginning of the next.
int StepTrace::mark_now(bool anew) {
    if (anew || last_mark_ < 0) last_mark_ = clock_->mark();
    return last_mark_;
}

bool StepTrace::launches(std::string_view name, std::array<uint32_t, 3> blocks, uint32_t n_threads,
                         int64_t shared_bytes) {
    const int span = open_.empty() ? -1 : open_.back();
    if (!is_within_named()) return false;
    if (is_capturing_ && span >= 0 && !is_captured(static_cast<size_t>(span))) return false;
    last_mark_ = -1;
    launches_.push_back({span, name, blocks, n_threads, shared_bytes});
    if (span >= 0) spans_[static_cast<size_t>(span)].n_launches++;
    return true;
}

bool StepTrace::is_captured(size_t span) const {
    return graph.calls.empty() || (span < graph.calls.size() && graph.calls[span]);
}

bool StepTrace::only_calls(const NodeSpan& span) const {
    if (is_default_body(span.checkpoint) || span.leads) return true;
    return is_on_device() && span.n_children > 0 && span.n_launches == 0;
}

Rows StepTrace::on_host(const Rows& rows, HostCopy& room) const {
    if (clock_ == nullptr || rows.buffer == nullptr || rows.n_rows == 0) return rows;
    CHECK(rows.dtype == DType::kF32);
    room.values.resize(static_cast<size_t>(rows.n_rows * rows.n_cols));
    clock_->read(rows, room.values.data());
    room.view =
        Buffer(room.values.data(), room.values.size() * sizeof(float), [](void*, size_t) {});
    return {&room.view, 0, DType::kF32, rows.n_rows, rows.n_cols, rows.n_cols};
}

void StepTrace::clear() {
    spans_.clear(), open_.clear(), launches_.clear(), marks_.clear();
    clock_ = nullptr;
    last_mark_ = -1;
    is_capturing_ = false;
}

void StepTrace::note_callers() {
    if (!only.empty()) return;
    callers_.clear();
    for (const NodeSpan& span : spans_) {
        const Entry entry{span.node, span.checkpoint};
        if (span.n_children == 0 || is_default_body(span.checkpoint)) continue;
        if (std::find(callers_.begin(), callers_.end(), entry) == callers_.end()) {
            callers_.push_back(entry);
        }
    }
}

void StepTrace::begin_on_device(DeviceClock* clock, int n_threads) {
    clear();
    loops_.clear(n_threads);
    clock_ = clock;
    last_mark_ = 0;
    begin_ns_ = monotonic_ns();
}

void StepTrace::end_on_device(std::span<const int64_t> ns) {
    CHECK(clock_ != nullptr && open_.empty() && !ns.empty());
    set_times(ns);
    end_ns_ = begin_ns_ + ns.back();
    is_leaf_.clear();
    for (const NodeSpan& span : spans_) is_leaf_.push_back(span.n_children == 0);
    note_callers();
}

void StepTrace::begin_captured() {
    clear();
    graph.samples_ns.clear();
    graph.unfit = {};
    is_capturing_ = true;
}

// Calls lie behind those that made them: from the last on, each is known before its caller.
void StepTrace::set_times(std::span<const int64_t> ns) {
    const auto time_of = [&](int mark) { return begin_ns_ + ns[static_cast<size_t>(mark)]; };
    for (size_t i = 0; i < spans_.size(); i++) {
        NodeSpan& span = spans_[i];
        span.children_ns = 0;
        span.begin_ns = INT64_MAX, span.end_ns = begin_ns_;
        if (marks_[i].begin < 0) continue;
        span.begin_ns = time_of(marks_[i].begin), span.end_ns = time_of(marks_[i].end);
    }
    for (size_t i = spans_.size(); i-- > 0;) {
        NodeSpan& span = spans_[i];
        if (span.begin_ns == INT64_MAX) span.begin_ns = span.end_ns;  // a body that made no call
        if (span.parent < 0 || (marks_[i].begin < 0 && span.n_children == 0)) continue;
        const auto at = static_cast<size_t>(span.parent);
        spans_[at].children_ns += span.elapsed_ns();
        if (marks_[at].begin >= 0) continue;
        spans_[at].begin_ns = std::min(spans_[at].begin_ns, span.begin_ns);
        spans_[at].end_ns = std::max(spans_[at].end_ns, span.end_ns);
    }
}

int64_t StepTrace::bytes_of(const Tensor& weight) {
    const auto [entry, fresh] = bytes_of_weights_.try_emplace(weight.planes[0].data, 0);
    if (fresh) entry->second = bytes_in_memory(weight);
    return entry->second;
}

TracedStep::TracedStep(StepTrace* trace, ThreadPool& pool) : trace_(trace), pool_(pool) {
    if (trace_ == nullptr) return;
    trace_->clear();
    trace_->loops_.clear(pool.size());
    pool.record(&trace_->loops_);
    trace_->begin_ns_ = monotonic_ns();
}

TracedStep::~TracedStep() {
    if (trace_ == nullptr) return;
    trace_->end_ns_ = monotonic_ns();
    trace_->note_callers();
    pool_.record(nullptr);
}

}  // namespace ridge
