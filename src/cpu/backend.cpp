#include "cpu/backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/memory.h"
#include "base/system.h"
#include "base/thread_pool.h"
#include "base/timer.h"
#include "cpu/ceilings.h"
#include "cpu/checkpoints.h"
#include "cpu/interleaved.h"
#include "cpu/isa.h"
#include "cpu/kernels_of_isa.h"
#include "format/packing.h"
#include "model/batch_size.h"
#include "model/step.h"

namespace ridge {
namespace {

class CpuBackend : public Backend {
  public:
    explicit CpuBackend(const CpuOptions& options)
        : isa_(choose_isa(options.isa)),
          kernels_(cpu::kernels_of_isa(isa_)),
          memory_bytes_(options.memory_bytes),
          pool_(options.threads) {}

    std::string_view name() const override { return "cpu"; }
    std::span<const Checkpoint> checkpoints() const override { return cpu_checkpoints(); }
    Caps caps() const override { return {pool_.size(), &kernels_, isa_name(isa_)}; }

    uint64_t free_memory_bytes() const override {
        return memory_bytes_ > 0 ? memory_bytes_ : available_memory_bytes();
    }
    Buffer alloc(size_t n_bytes) override { return alloc_for("a buffer", n_bytes); }
    void prepare(std::span<Tensor* const> weights, const Layout& layout, int /*layer*/,
                 const PrepareEvents& events) override {
        std::vector<Tensor*> unpacked;
        for (Tensor* weight : weights) {
            if (weight->n_dims == 1) {
                to_float(*weight, events);
            } else if (weight->layout != &layout) {
                unpacked.push_back(weight);
            }
        }
        if (!unpacked.empty()) pack(unpacked, layout, events);
    }
    int64_t least_bytes(const Tensor& weight, const Layout& layout) const override {
        if (weight.n_dims == 1) return weight.n_cols() * static_cast<int64_t>(sizeof(float));
        if (weight.layout == &layout) return 0;
        return Packing(weight, layout, &kernels_).least_bytes();
    }

    KvCache make_kv_cache(const Config& config, DType k_dtype, DType v_dtype,
                          int64_t n_slots) override {
        KvCache cache = describe_kv_cache(config, k_dtype, v_dtype, n_slots);
        cache.pages = alloc_for("the KV cache, which -c makes smaller", cache.n_bytes());
        advise_huge_pages(cache.pages.data(), cache.pages.n_bytes());
        return cache;
    }

    std::vector<Fallback> plan(const Model& model, const KvCache& kv, int n_rows,
                               int n_logit_rows) override {
        logits_ =
            alloc_for("logits", static_cast<size_t>(n_logit_rows) *
                                    static_cast<size_t>(model.config.n_vocab) * sizeof(float));
        scratch_ = {};
        std::vector<Fallback> fallbacks;
        for (RowClass row_class : {RowClass::kPrompt, RowClass::kDecode}) {
            BatchSize size(n_rows, n_logit_rows, row_class);
            run(model, kv, size.batch(), &fallbacks);
        }
        scratch_memory_ = alloc_for("a step's intermediates", scratch_.planned_bytes());
        scratch_.place(scratch_memory_);
        return fallbacks;
    }

    Ticket step(const Model& model, const KvCache& kv, const Batch& batch) override {
        result_ = run(model, kv, batch);
        return {++n_steps_};
    }

    StepResult wait(Ticket ticket) override {
        CHECK(ticket.id == n_steps_);
        return std::move(result_);
    }

    double measure_read_gbps(const Model& model) override;
    Ceilings measure_ceilings(const CeilingEvents& events) override {
        Ceilings ceilings =
            cpu::measure_ceilings(kernels_.probes, pool_, free_memory_bytes(), events);
        ceilings.isa = isa_name(isa_);
        return ceilings;
    }
    std::string_view arithmetic_of(std::string_view node, std::string_view checkpoint,
                                   const Format* format, RowClass row_class) const override {
        return cpu::arithmetic_of(kernels_, node, checkpoint, format, row_class);
    }

  private:
    // `what` is what errors call it, with what would make it smaller.
    static Buffer alloc_for(std::string_view what, size_t n_bytes) {
        if (n_bytes == 0) return {};
        void* data = reserve_memory(n_bytes);
        if (data != nullptr) return {data, n_bytes, release_memory};
        throw Error(
            "cpu: the system gives no {:.3f} GB for {}; a limit of this process (ulimit -v) may be "
            "in the way",
            1e-9 * static_cast<double>(n_bytes), what);
    }

    void to_float(Tensor& weight, const PrepareEvents& events) {
        const int64_t n_bytes = weight.n_cols() * static_cast<int64_t>(sizeof(float));
        if (events.taking) events.taking(n_bytes);
        Buffer buffer = alloc_for("a norm or a bias", static_cast<size_t>(n_bytes));
        unpack_row(weight, 0, reinterpret_cast<float*>(buffer.data()));
        const Tensor original = weight;
        weight.format = &format_of(FormatId::kF32);
        weight.planes = {Plane{buffer.data(), n_bytes}};
        weights_.push_back(std::move(buffer));
        if (events.copied) events.copied(original);
    }

    // One weight after the other, so that no more than one is there twice.
    void pack(std::span<Tensor* const> weights, const Layout& layout, const PrepareEvents& events) {
        std::vector<Tensor> originals;
        for (const Tensor* weight : weights) originals.push_back(*weight);
        Packing packing(originals, layout, &kernels_);
        pool_.parallel_for(packing.n_to_measure(), 1, [&](int64_t begin, int64_t end, int) {
            for (int64_t i = begin; i < end; i++) packing.measure(i);
        });
        packing.settle();
        if (events.taking) events.taking(packing.n_bytes());
        std::byte* data = take_packed(static_cast<size_t>(packing.n_bytes()));
        for (size_t w = 0; w < weights.size(); w++) {
            pool_.parallel_for(packing.n_parts(), 1, [&](int64_t begin, int64_t end, int) {
                for (int64_t i = begin; i < end; i++) packing.pack(i, data, w);
            });
            *weights[w] = packing.view(data, w);
            if (events.copied) events.copied(originals[w]);
        }
    }

    // Packed weights lie one behind the other, as a step reads them, in blocks that are large
    // enough for huge pages. n_bytes is a multiple of 64, as every group's is.
    std::byte* take_packed(size_t n_bytes) {
        constexpr size_t kBlockBytes = size_t{256} << 20;
        if (n_packed_left_ < n_bytes) {
            n_packed_left_ = std::max(kBlockBytes, n_bytes);
            weights_.push_back(
                alloc_for("packed weights, which --no-repack does without", n_packed_left_));
            advise_huge_pages(weights_.back().data(), n_packed_left_);
            packed_end_ = weights_.back().data();
        }
        n_packed_left_ -= n_bytes;
        packed_end_ += n_bytes;
        return packed_end_ - n_bytes;
    }

    // `planned`: a dry run, which notes its fallbacks there.
    StepResult run(const Model& model, const KvCache& kv, const Batch& batch,
                   std::vector<Fallback>* planned = nullptr) {
        const bool planning = planned != nullptr;
        StepResult result;
        auto n_logit_rows = static_cast<int64_t>(batch.logit_rows.size());
        int64_t n_vocab = model.config.n_vocab;
        result.logits = {&logits_, 0, DType::kF32, n_logit_rows, n_vocab, n_vocab};
        CHECK(static_cast<size_t>(n_logit_rows * n_vocab) * sizeof(float) <= logits_.n_bytes());
        const Tables& tables = model.tables;
        Step step{tables, tables.ops, tables.stages, model.config, model.rope_table,
                  batch,  scratch_,   pool_,         planning};
        step.fallbacks = planned;
        scratch_.begin_step();
        step.trace = planning ? nullptr : batch.trace;
        TracedStep traced(step.trace, pool_);
        tables.step(step, model.weights, kv, result.logits);
        if (planning || !batch.sample_rows.empty()) {
            result.sampled.resize(batch.sample_rows.size());
            tables.ops.sample(step, result.logits, result.sampled);
        }
        return result;
    }

    const Isa isa_;
    const cpu::Kernels kernels_;
    const uint64_t memory_bytes_;
    ThreadPool pool_;
    std::vector<Buffer> weights_;  // packed ones, and norms and biases as float32
    std::byte* packed_end_ = nullptr;
    size_t n_packed_left_ = 0;  // behind packed_end_ in the last block
    Buffer scratch_memory_, logits_;
    Scratch scratch_;
    StepResult result_;
    uint64_t n_steps_ = 0;
};

// Reads a run of bytes, by a loop for whole runs of kProbeBytes.
uint64_t read_run(uint64_t (*read)(const uint8_t* data, int64_t n_bytes), const std::byte* data,
                  int64_t n_bytes) {
    const int64_t n_whole = n_bytes / cpu::kProbeBytes * cpu::kProbeBytes;
    uint64_t seen = read(reinterpret_cast<const uint8_t*>(data), n_whole);
    for (int64_t i = n_whole; i < n_bytes; i++) seen += static_cast<uint64_t>(data[i]);
    return seen;
}

using Spans = std::vector<std::span<const std::byte>>;

// In the order of addresses, each byte once; spans that touch become one.
Spans joined(Spans spans) {
    std::sort(spans.begin(), spans.end(),
              [](const auto& a, const auto& b) { return a.data() < b.data(); });
    Spans runs;
    for (const auto& span : spans) {
        const std::byte* end = runs.empty() ? nullptr : runs.back().data() + runs.back().size();
        if (runs.empty() || span.data() > end) {
            runs.push_back(span);
        } else if (span.data() + span.size() > end) {  // a file's tensors may overlap
            runs.back() = {runs.back().data(), span.data() + span.size()};
        }
    }
    return runs;
}

// Where the weights lie that a decode step reads.
Spans runs_of_weights(const Model& model) {
    Spans runs;
    for_each_side_by_side(model.weights, model.config.tied_head, [&](auto tensors, int) {
        if (is_looked_up(model.weights, *tensors[0], model.config.tied_head)) return;
        Spans parts;
        for (const Tensor* tensor : tensors) {
            const Spans of_tensor = spans_in_memory(*tensor);
            parts.insert(parts.end(), of_tensor.begin(), of_tensor.end());
        }
        const Spans few = joined(std::move(parts));
        runs.insert(runs.end(), few.begin(), few.end());
    });
    return joined(std::move(runs));
}

// Reads all weights as they lie, in turns with lines asked for ahead and without, over and over for
// some 50 ms, and takes the best pass: what stays in a cache from one decode step to the next does
// so here. By the widest loads that the machine has, whatever a run is told to compute with.
double CpuBackend::measure_read_gbps(const Model& model) {
    constexpr size_t kPiece = size_t{256} << 10;
    static_assert(kPiece % cpu::kProbeBytes == 0);
    Spans pieces;
    size_t total = 0;
    for (const auto& run : runs_of_weights(model)) {
        total += run.size();
        for (size_t at = 0; at < run.size(); at += kPiece) {
            pieces.push_back(run.subspan(at, std::min(kPiece, run.size() - at)));
        }
    }
    const cpu::ProbeKernels probes = cpu::kernels_of_isa(choose_isa({})).probes;
    std::atomic<uint64_t> sink{0};  // keeps the reads alive
    double best = 0;
    Timer all;
    for (int pass = 0; pass < 4 || (pass < 20 && all.elapsed_ms() < 50); pass++) {
        const auto read = pass % 2 == 0 ? probes.read_ahead : probes.read;
        Timer timer;
        pool_.parallel_for(
            static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end, int) {
                uint64_t seen = 0;
                for (int64_t i = begin; i < end; i++) {
                    const auto& piece = pieces[static_cast<size_t>(i)];
                    seen += read_run(read, piece.data(), static_cast<int64_t>(piece.size()));
                }
                sink.fetch_add(seen, std::memory_order_relaxed);
            });
        best = std::max(best, static_cast<double>(total) / static_cast<double>(timer.elapsed_ns()));
    }
    return best;
}

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
    return std::make_unique<CpuBackend>(options);
}

}  // namespace ridge
