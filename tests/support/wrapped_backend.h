#pragma once

#include <memory>
#include <utility>

#include "model/backend.h"

namespace ridge {

// Does what another backend does: tests change what they are about.
class WrappedBackend : public Backend {
  public:
    explicit WrappedBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

    std::string_view name() const override { return inner_->name(); }
    std::span<const Checkpoint> checkpoints() const override { return inner_->checkpoints(); }
    Caps caps() const override { return inner_->caps(); }
    int step_rows() const override { return inner_->step_rows(); }
    uint64_t free_memory_bytes() const override { return inner_->free_memory_bytes(); }
    Buffer alloc(size_t n_bytes) override { return inner_->alloc(n_bytes); }
    void prepare(std::span<Tensor* const> weights, const Layout& layout, int layer,
                 const PrepareEvents& events) override {
        inner_->prepare(weights, layout, layer, events);
    }
    int64_t least_bytes(const Tensor& weight, const Layout& layout) const override {
        return inner_->least_bytes(weight, layout);
    }
    KvCache make_kv_cache(const Config& config, DType k_dtype, DType v_dtype,
                          int64_t n_slots) override {
        return inner_->make_kv_cache(config, k_dtype, v_dtype, n_slots);
    }
    bool can_stream() const override { return inner_->can_stream(); }
    void place(const WeightPlacement& placement) override { inner_->place(placement); }
    int64_t step_bytes(const Model& model, const Layout& packed, const KvCache& kv, int n_rows,
                       int n_logit_rows) override {
        return inner_->step_bytes(model, packed, kv, n_rows, n_logit_rows);
    }
    std::vector<Fallback> plan(const Model& model, const KvCache& kv, int n_rows,
                               int n_logit_rows) override {
        return inner_->plan(model, kv, n_rows, n_logit_rows);
    }
    bool can_run_ahead(const Model& model, std::span<const SampleRow> rows) const override {
        return inner_->can_run_ahead(model, rows);
    }
    Ticket step(const Model& model, const KvCache& kv, const Batch& batch) override {
        return inner_->step(model, kv, batch);
    }
    StepResult wait(Ticket ticket) override { return inner_->wait(ticket); }
    double measure_read_gbps(const Model& model) override {
        return inner_->measure_read_gbps(model);
    }
    double measure_link_gbps() override { return inner_->measure_link_gbps(); }
    DeviceFacts facts() const override { return inner_->facts(); }

  protected:
    Backend& inner() { return *inner_; }

  private:
    std::unique_ptr<Backend> inner_;
};

}  // namespace ridge
