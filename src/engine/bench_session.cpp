#include "engine/bench_session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/split_mix.h"
#include "engine/engine_impl.h"

namespace ridge {

BenchSession::BenchSession(std::unique_ptr<Engine> engine, std::vector<int64_t> n_positions,
                           std::function<void(double)> on_stage)
    : engine_(std::move(engine)),
      n_positions_(std::move(n_positions)),
      n_filled_(n_positions_.size()),
      on_stage_(std::move(on_stage)) {
    greedy_.temperature = 0;
}

BenchSession::~BenchSession() = default;

std::unique_ptr<BenchSession> BenchSession::open(const OpenOptions& options,
                                                 std::vector<int64_t> n_positions, int n_step_rows,
                                                 const Progress& progress,
                                                 std::function<void(double)> on_stage,
                                                 const WrapBackend& wrap_backend) {
    CHECK(!n_positions.empty() && n_step_rows >= 0);
    std::vector<int64_t> base_slots;
    Capacity capacity;
    for (int64_t n : n_positions) {
        base_slots.push_back(capacity.n_slots);
        // A sequence begins on a page of its own.
        capacity.n_slots += kv_pages_of(n) * kKvPagePositions;
    }
    capacity.n_logit_rows = static_cast<int>(n_positions.size());
    capacity.n_step_rows = n_step_rows;
    capacity.wrap_backend = wrap_backend;
    std::unique_ptr<BenchSession> session(
        new BenchSession(Engine::Impl::open(options, capacity, progress, {}),
                         std::move(n_positions), std::move(on_stage)));
    session->base_slots_ = std::move(base_slots);
    session->engine_->impl_->info.n_ctx = session->n_positions_.front();
    return session;
}

const ModelInfo& BenchSession::info() const {
    return engine_->info();
}

void BenchSession::set_tuning(const Tuning* tuning) {
    engine_->impl_->model.tables.tuning = tuning;
}

const Model& BenchSession::model() const {
    return engine_->impl_->model;
}

Token BenchSession::token_at(int sequence, int64_t position) const {
    uint64_t n = (static_cast<uint64_t>(sequence) << 32) + static_cast<uint64_t>(position) + 1;
    auto n_vocab = static_cast<uint64_t>(engine_->config().n_vocab);
    return n_vocab < 2 ? 0 : static_cast<Token>(1 + split_mix(n * kSplitMixStep) % (n_vocab - 1));
}

Ticket BenchSession::start(const BatchRows& rows, double from, double to) {
    constexpr int kStages = 5;  // of a layer
    const double each = (to - from) / (kStages * engine_->config().n_layers + 1);
    int n_calls = 0;
    const std::function<void()> before_stage = [&] { on_stage_(from + each * n_calls++); };
    if (on_stage_) before_stage();
    Batch batch = rows.batch(on_stage_ ? &before_stage : nullptr);
    batch.trace = trace_;
    return engine_->impl_->start(batch);
}

std::vector<Sampled> BenchSession::wait(Ticket ticket) {
    return std::move(engine_->impl_->wait(ticket).sampled);
}

Token BenchSession::prompt_steps(int sequence, int64_t begin, int64_t end, bool draw,
                                 const std::function<void(int64_t)>& done) {
    auto s = static_cast<size_t>(sequence);
    CHECK(begin <= n_filled_[s] && end <= n_positions_[s]);
    Token drawn = -1;
    auto share = [&](int64_t at) {
        return static_cast<double>(at - begin) / static_cast<double>(end - begin);
    };
    for (int64_t at = begin; at < end;) {
        auto n = static_cast<int32_t>(std::min<int64_t>(info().n_step_rows, end - at));
        BatchRows rows;
        for (int64_t position = at; position < at + n; position++) {
            rows.tokens.push_back(token_at(sequence, position));
            rows.positions.push_back(static_cast<int32_t>(position));
            rows.slots.push_back(base_slots_[s] + position);
        }
        rows.spans.push_back({0, n, RowClass::kPrompt, KvView{nullptr, base_slots_[s]}});
        at += n;
        if (draw && at == end) {
            rows.logit_rows.push_back(n - 1);
            rows.sample_rows.push_back({&greedy_, {&rows.tokens.back(), 1}, end});
        }
        std::vector<Sampled> sampled = wait(start(rows, share(at - n), share(at)));
        if (!sampled.empty()) drawn = sampled.front().token;
        n_filled_[s] = std::max(n_filled_[s], at);
        if (done) done(at);
    }
    return drawn;
}

void BenchSession::fill(int n_sequences, int64_t depth, const Progress& progress) {
    CHECK(n_sequences <= static_cast<int>(n_positions_.size()));
    for (int s = 0; s < n_sequences; s++) {
        prompt_steps(
            s, std::min(n_filled_[static_cast<size_t>(s)], depth), depth, false, [&](int64_t at) {
                double share =
                    (s + static_cast<double>(at) / static_cast<double>(depth)) / n_sequences;
                if (progress) progress("filling the cache", share);
            });
    }
}

Token BenchSession::prompt(int64_t depth, int64_t n_tokens) {
    return prompt_steps(0, depth, depth + n_tokens, true, {});
}

std::vector<Token> BenchSession::decode(int n_sequences, int64_t depth, int64_t n_steps) {
    BatchRows rows;
    for (int s = 0; s < n_sequences; s++) {
        auto i = static_cast<size_t>(s);
        CHECK(depth <= n_filled_[i] && depth + n_steps <= n_positions_[i]);
        rows.tokens.push_back(token_at(s, depth));
        rows.positions.push_back(static_cast<int32_t>(depth));
        rows.slots.push_back(base_slots_[i] + depth);
        rows.spans.push_back({s, 1, RowClass::kDecode, KvView{nullptr, base_slots_[i]}});
        rows.logit_rows.push_back(s);
        n_filled_[i] = depth;  // what follows are drawn tokens
    }
    for (int s = 0; s < n_sequences; s++)
        rows.sample_rows.push_back(
            {&greedy_, {&rows.tokens[static_cast<size_t>(s)], 1}, depth + 1});
    const Engine::Impl& impl = *engine_->impl_;
    const bool ahead = impl.backend->can_run_ahead(impl.model, rows.sample_rows);
    std::vector<Sampled> drawn;
    std::optional<Ticket> before;
    for (int64_t step = 0; step < n_steps; step++) {
        const double each = 1.0 / static_cast<double>(n_steps);
        const Ticket ticket =
            start(rows, each * static_cast<double>(step), each * static_cast<double>(step + 1));
        if (!ahead) {
            drawn = wait(ticket);
        } else {
            if (before) wait(*before);
            before = ticket;
        }
        for (size_t i = 0; i < rows.tokens.size(); i++) {
            rows.tokens[i] = ahead ? drawn_by(static_cast<int32_t>(i)) : drawn[i].token;
            rows.positions[i]++;
            rows.slots[i]++;
            rows.sample_rows[i].position++;
        }
    }
    if (before) drawn = wait(*before);
    std::vector<Token> tokens = rows.tokens;
    for (size_t i = 0; i < drawn.size(); i++) tokens[i] = drawn[i].token;
    return tokens;
}

double BenchSession::measure_link_gbps() {
    return engine_->impl_->backend->measure_link_gbps();
}

Ceilings BenchSession::measure_ceilings(const CeilingEvents& events) {
    return engine_->impl_->backend->measure_ceilings(events);
}

std::string_view BenchSession::arithmetic_of(std::string_view node, std::string_view checkpoint,
                                             const Format* format, RowClass row_class) const {
    return engine_->impl_->backend->arithmetic_of(node, checkpoint, format, row_class);
}

double BenchSession::measure_read_gbps() {
    return engine_->impl_->backend->measure_read_gbps(engine_->impl_->model);
}

}  // namespace ridge
