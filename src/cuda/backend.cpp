#include "cuda/backend.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/checked_math.h"
#include "base/error.h"
#include "cuda/ceilings.h"
#include "cuda/check.h"
#include "cuda/checkpoints.h"
#include "cuda/context.h"
#include "cuda/event.h"
#include "cuda/graph.h"
#include "cuda/memory.h"
#include "cuda/mirror.h"
#include "cuda/packet.h"
#include "cuda/probe.h"
#include "cuda/ranges.h"
#include "cuda/read_wall.h"
#include "cuda/sample.h"
#include "cuda/sample_mirror.h"
#include "cuda/step_clock.h"
#include "cuda/tiles.h"
#include "cuda/upload.h"
#include "cuda/weight_stream.h"
#include "model/batch_size.h"
#include "model/step.h"

namespace ridge {
namespace {

using cuda::check;
using cuda::Destination;

class Stream {
  public:
    explicit Stream(int device) {
        check(cudaSetDevice(device), "choosing the device");
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    }
    ~Stream() { cudaStreamDestroy(stream_); }
    Stream(const Stream&) = delete;
    cudaStream_t get() const { return stream_; }

  private:
    cudaStream_t stream_ = nullptr;
};

class CudaBackend : public Backend {
  public:
    CudaBackend(CudaDevice device, const CudaOptions& options)
        : device_(std::move(device)),
          name_(fmt::format("cuda:{}", options.device)),
          memory_limit_(options.memory_bytes),
          fault_(options.fault),
          pool_(options.threads),
          stream_(options.device) {
        context_.stream = stream_.get(), context_.graphs = &graphs_, context_.packet = &packet_;
        check(cudaDeviceGetAttribute(&context_.shared_bytes_an_sm,
                                     cudaDevAttrMaxSharedMemoryPerMultiprocessor, options.device),
              "shared memory of a multiprocessor");
        check(cudaDeviceGetAttribute(&context_.shared_bytes_a_block,
                                     cudaDevAttrMaxSharedMemoryPerBlockOptin, options.device),
              "shared memory of a block");
        context_.n_sms = device_.n_sms, context_.capability = device_.capability;
        arrivals_ = alloc(cuda::kArrivals * sizeof(uint32_t));
        context_.arrivals = reinterpret_cast<uint32_t*>(arrivals_.data());
        rounded_rows_ = alloc(cuda::kRoundedBytes);
        context_.rounded_rows = reinterpret_cast<uint8_t*>(rounded_rows_.data());
    }
    ~CudaBackend() override { cudaStreamSynchronize(stream_.get()); }

    std::string_view name() const override { return name_; }
    std::span<const Checkpoint> checkpoints() const override { return cuda_checkpoints(); }
    Caps caps() const override { return {pool_.size(), &context_, "cuda"}; }
    DeviceFacts facts() const override { return cuda_facts(device_); }

    // Weights are read once for all of them; more change little.
    int step_rows() const override { return 2048; }

    uint64_t free_memory_bytes() const override {
        use("free memory");
        size_t free = 0, total = 0;
        check(cudaMemGetInfo(&free, &total), "free memory");
        return within_limit(free);
    }

    Buffer alloc(size_t n_bytes) override {
        use("memory of the device");
        if (n_bytes == 0) return {};
        const uint64_t free = free_memory_bytes();
        void* data = nullptr;
        const cudaError_t status =
            n_bytes > free ? cudaErrorMemoryAllocation : malloc(&data, n_bytes);
        if (status == cudaErrorMemoryAllocation) {
            cudaGetLastError();
            throw Error(
                "{}: no memory for {:.3f} GB, {:.3f} GB free; try a smaller -c, or a model "
                "of fewer bits",
                name_, 1e-9 * static_cast<double>(n_bytes), 1e-9 * static_cast<double>(free));
        }
        check(status, "memory of the device");
        Buffer buffer(data, n_bytes, [](void* at, size_t) { cudaFree(at); });
        used_bytes_ += n_bytes;
        check(cudaMemsetAsync(data, 0, n_bytes, stream_.get()), "memory of the device");
        return buffer;
    }

    bool can_stream() const override { return true; }
    void place(const WeightPlacement& placement) override {
        use("memory for weights");
        // Weights lie one behind the other, as a step reads them.
        weights_.push_back(alloc(static_cast<size_t>(placement.resident_bytes)));
        weights_end_ = weights_.back().data();
        n_weights_left_ = static_cast<size_t>(placement.resident_bytes);
        if (placement.streamed.empty()) return;
        std::array<Buffer, kStreamBuffers> buffers;
        for (Buffer& buffer : buffers) buffer = alloc(static_cast<size_t>(placement.buffer_bytes));
        stream_of_weights_.emplace(placement, std::move(buffers), stream_.get());
        context_.weights = &*stream_of_weights_;
    }

    void prepare(std::span<Tensor* const> weights, const Layout& layout, int layer,
                 const PrepareEvents& events) override {
        use("upload");
        if (!upload_) upload_.emplace(pool_, stream_.get());
        for (Tensor* weight : weights) {
            const auto n_bytes = static_cast<size_t>(least_bytes(*weight, layout));
            if (events.taking) events.taking(static_cast<int64_t>(n_bytes));
            const Tensor original = *weight;
            const Destination to = take_weights(layer, n_bytes);
            if (weight->n_dims == 1) {
                send_vector(*weight, to);
            } else if (!is_packed(*weight, layout)) {
                send_planes(*weight, to);
            } else {
                send_parts(*weight, layout, to);
            }
            if (events.copied) events.copied(original);
        }
        upload_->wait();
    }
    int64_t least_bytes(const Tensor& weight, const Layout& layout) const override {
        constexpr int64_t kAlign = 256;
        int64_t n = 0;
        if (weight.n_dims == 1) {
            n = weight.n_cols() * static_cast<int64_t>(sizeof(float));
        } else if (is_packed(weight, layout)) {
            n = layout.n_parts(weight) * layout.part_bytes(weight);
        } else {
            for (const Plane& plane : weight.planes) n += plane_bytes(weight, plane);
        }
        return round_up(n, kAlign);
    }

    KvCache make_kv_cache(const Config& config, DType k_dtype, DType v_dtype,
                          int64_t n_slots) override {
        KvCache cache = describe_kv_cache(config, k_dtype, v_dtype, n_slots);
        cache.pages = alloc(cache.n_bytes());
        graphs_.clear();  // another cache may have lain there
        return cache;
    }

    int64_t step_bytes(const Model& model, const Layout& packed, const KvCache& kv, int n_rows,
                       int n_logit_rows) override {
        use("planning");
        Model prepared = model;
        Weights& weights = prepared.weights;
        const bool tied = model.config.tied_head;
        for_each_tensor(weights, tied, [&](Tensor& tensor) {
            set_prepared(tensor, is_looked_up(weights, tensor, tied) ? row_major_layout() : packed,
                         tensor.planes[0].data);
        });
        if (tied) weights.head.weight = weights.embedding;
        dry_run(prepared, kv, n_rows, n_logit_rows);
        return static_cast<int64_t>(scratch_.planned_bytes()) +
               n_logit_rows * int64_t{model.config.n_vocab} * static_cast<int64_t>(sizeof(float)) +
               driver_bytes();
    }

    std::vector<Fallback> plan(const Model& model, const KvCache& kv, int n_rows,
                               int n_logit_rows) override {
        use("planning");
        check(cudaStreamSynchronize(stream_.get()), "planning");
        for (Flight& flight : flights_) flight.id = 0;
        n_drawn_ = 0;
        upload_.reset();  // weights are there: its pinned memory is not needed again
        release(logits_), release(scratch_memory_);
        logits_ = alloc(static_cast<size_t>(n_logit_rows) *
                        static_cast<size_t>(model.config.n_vocab) * sizeof(float));
        host_logits_ = cuda::pinned_buffer(logits_.n_bytes(), "pinned memory for logits");
        std::vector<Fallback> fallbacks = dry_run(model, kv, n_rows, n_logit_rows);
        scratch_memory_ = alloc(scratch_.planned_bytes());
        scratch_.place(scratch_memory_);
        return fallbacks;
    }

    // Not where layers are streamed: the link, which never rests, sets the pace of such steps, and
    // one that is dropped takes as long as any other.
    bool can_run_ahead(const Model& model, std::span<const SampleRow> rows) const override {
        return !stream_of_weights_ &&
               cuda::draws_on_device(model.tables, model.config.n_vocab, rows);
    }

    // All that a step reads of the batch goes into its packet. Two steps may be under way: they
    // take turns with pinned memory, and wait for each other on the device.
    Ticket step(const Model& model, const KvCache& kv, const Batch& batch) override {
        check_step(cudaSetDevice(device_.index));
        const uint64_t id = n_steps_ + 1;
        Flight& flight = flights_[id % flights_.size()];
        if (std::exchange(flight.id, 0) != 0) {  // it is dropped
            check_step(cudaEventSynchronize(flight.ended.get()));
        }
        if (fault_.kind == Fault::kLost && static_cast<int64_t>(n_steps_) == fault_.after) {
            cuda::lose_device(stream_.get());
        }
        const cuda::Range range("step, rows:", batch.n_rows());
        try {
            const bool draws = send(model, batch, static_cast<int>(id % flights_.size()));
            flight.result =
                batch.trace == nullptr ? run(model, kv, batch) : trace(model, kv, batch, draws);
            n_drawn_ = draws ? static_cast<int64_t>(batch.sample_rows.size()) : 0;
            check(cudaEventRecord(flight.ended.get(), stream_.get()), "step");
        } catch (...) {  // what has been started may use what the next step overwrites
            const cudaError_t status = cudaStreamSynchronize(stream_.get());
            graphs_.clear();  // what draws may have moved
            check_step(status);
            throw;
        }
        n_steps_ = flight.id = id;
        return {id};
    }

    StepResult wait(Ticket ticket) override {
        const size_t slot = ticket.id % flights_.size();
        Flight& flight = flights_[slot];
        CHECK(ticket.id != 0 && flight.id == ticket.id);
        check_step(cudaSetDevice(device_.index));
        check_step(cudaEventSynchronize(flight.ended.get()));
        flight.id = 0;
        sampling_.collect(static_cast<int>(slot));
        return std::move(flight.result);
    }

    double measure_read_gbps(const Model& model) override {
        use("reading memory");
        std::vector<std::span<const std::byte>> runs;
        for_each_tensor(model.weights, model.config.tied_head, [&](const Tensor& tensor) {
            if (&tensor == &model.weights.embedding && !model.config.tied_head) return;
            if (tensor.n_dims == 1) return;
            runs.push_back(
                {tensor.planes[0].data, static_cast<size_t>(least_bytes(tensor, *tensor.layout))});
        });
        return cuda::measure_read_gbps(joined(std::move(runs)), stream_.get());
    }
    Ceilings measure_ceilings(const CeilingEvents& events) override {
        use("measuring");
        return cuda::measure_ceilings(context_, device_.name,
                                      static_cast<int64_t>(free_memory_bytes()), events);
    }
    std::string_view arithmetic_of(std::string_view node, std::string_view checkpoint,
                                   const Format* format, RowClass) const override {
        return cuda::arithmetic_of(node, checkpoint, format);
    }
    double measure_link_gbps() override {
        use("measuring the link");
        return stream_of_weights_ ? stream_of_weights_->measure_gbps() : 0;
    }

  private:
    // The runtime's calls go to the calling thread's device.
    void use(std::string_view what) const { check(cudaSetDevice(device_.index), what); }

    // Of a call that cannot fail itself: it tells that a kernel has failed before, which lasts.
    void check_step(cudaError_t status) const {
        if (status == cudaSuccess) return;
        throw Error(ErrorKind::kLost, "{}: step: {}", name_, cuda::error_text(status));
    }

    cudaError_t malloc(void** data, size_t n_bytes) {
        if (fault_.kind == Fault::kFull && n_allocations_++ >= fault_.after) {
            return cudaErrorMemoryAllocation;
        }
        return cudaMalloc(data, n_bytes);
    }
    // Of so much free memory, what may be taken. Never 0, which would mean that it is unknown.
    uint64_t within_limit(uint64_t free) const {
        if (memory_limit_ > 0) {
            free = std::min(free, memory_limit_ - std::min(memory_limit_, used_bytes_));
        }
        return std::max<uint64_t>(free, 1);
    }
    // Of the memory that may be taken, what is left alone: for kernels' code, which is loaded when
    // they first run, small buffers, and what the driver rounds up to.
    int64_t driver_bytes() const {
        constexpr int64_t kDriverBytes = int64_t{256} << 20;
        size_t free = 0, total = 0;
        check(cudaMemGetInfo(&free, &total), "free memory");
        const auto beyond_limit =
            static_cast<int64_t>(free - std::min<uint64_t>(free, within_limit(free)));
        return std::max<int64_t>(0, kDriverBytes - beyond_limit);
    }

    // Neighbours as one run, with what little lies between them. Streamed layers share addresses.
    static std::vector<std::span<const std::byte>> joined(
        std::vector<std::span<const std::byte>> runs) {
        constexpr std::ptrdiff_t kGap = 1 << 16;
        std::sort(runs.begin(), runs.end(),
                  [](const auto& a, const auto& b) { return a.data() < b.data(); });
        std::vector<std::span<const std::byte>> whole;
        for (std::span<const std::byte> run : runs) {
            if (!whole.empty()) {
                std::span<const std::byte>& last = whole.back();
                if (run.data() - (last.data() + last.size()) < kGap) {
                    last = {last.data(),
                            std::max(last.data() + last.size(), run.data() + run.size())};
                    continue;
                }
            }
            whole.push_back(run);
        }
        return whole;
    }

    // n_bytes: as of least_bytes().
    Destination take_weights(int layer, size_t n_bytes) {
        if (stream_of_weights_ && stream_of_weights_->has(layer)) {
            return stream_of_weights_->take(layer, n_bytes);
        }
        if (n_weights_left_ < n_bytes) {  // of which place() was not told
            weights_.push_back(alloc(n_bytes));
            weights_end_ = weights_.back().data(), n_weights_left_ = n_bytes;
        }
        n_weights_left_ -= n_bytes, weights_end_ += n_bytes;
        return {weights_end_ - n_bytes};
    }
    // F32 weights stay as they are.
    static bool is_packed(const Tensor& weight, const Layout& layout) {
        return layout.rows_in_part > 0 && cuda::has_tiles(weight.format->id);
    }
    void release(Buffer& buffer) {
        used_bytes_ -= buffer.n_bytes();
        buffer = {};
    }

    static int64_t plane_bytes(const Tensor& tensor, const Plane& plane) {
        // A multiple of 16, so that every plane is aligned for wide loads.
        return plane.data == nullptr ? 0 : round_up(plane.stride_bytes * tensor.n_rows(), 16);
    }

    // What prepare() makes of a weight: its bytes lie at `data`.
    static void set_prepared(Tensor& weight, const Layout& layout, const std::byte* data) {
        if (weight.n_dims == 1) {
            weight.format = &format_of(FormatId::kF32);
            weight.planes = {Plane{data, weight.n_cols() * static_cast<int64_t>(sizeof(float))}};
        } else if (is_packed(weight, layout)) {
            weight.planes = {Plane{data, layout.part_bytes(weight)}};
            weight.layout = &layout;
        } else {
            for (Plane& plane : weight.planes) {
                if (plane.data == nullptr) continue;
                plane.data = data;
                data += plane_bytes(weight, plane);
            }
        }
    }
    void send_vector(Tensor& weight, Destination to) {
        std::vector<float> values(static_cast<size_t>(weight.n_cols()));
        unpack_row(weight, 0, values.data());
        upload_->bytes(to, reinterpret_cast<const std::byte*>(values.data()),
                       values.size() * sizeof(float));
        set_prepared(weight, *weight.layout, to.device);
    }
    void send_planes(Tensor& weight, Destination to) {
        const Tensor original = weight;
        set_prepared(weight, *weight.layout, to.device);
        for (size_t i = 0; i < weight.planes.size(); i++) {
            const Plane &from = original.planes[i], &sent = weight.planes[i];
            if (from.data == nullptr) continue;
            upload_->bytes(to + static_cast<size_t>(sent.data - to.device), from.data,
                           static_cast<size_t>(from.stride_bytes * weight.n_rows()));
        }
    }
    void send_parts(Tensor& weight, const Layout& layout, Destination to) {
        const Tensor original = weight;
        upload_->parts(to, layout.n_parts(weight), static_cast<size_t>(layout.part_bytes(weight)),
                       [&](int64_t part, std::byte* out) {
                           layout.pack_part(original, part, {}, nullptr, out);
                       });
        set_prepared(weight, layout, to.device);
    }

    // Sends what a step's kernels read of the batch. Whether the step will draw on the device.
    bool send(const Model& model, const Batch& batch, int slot) {
        const int64_t n_drawn = std::exchange(n_drawn_, 0), n_vocab = model.config.n_vocab;
        for (Token token : batch.tokens) CHECK(token < n_vocab && token >= -n_drawn);
        for (const SampleRow& row : batch.sample_rows) {
            for (Token token : row.history) CHECK(token < n_vocab && token >= -n_drawn);
        }
        packet_.clear();
        mirror_.add(batch, packet_);
        sampling_.begin_step(slot);
        const bool draws = cuda::draws_on_device(model.tables, n_vocab, batch.sample_rows);
        if (draws && sampling_.add(batch.sample_rows, n_vocab, packet_, stream_.get())) {
            graphs_.clear();
        }
        packet_.send(stream_.get(), slot, sampling_.places().tokens);
        return draws;
    }

    // Plans scratch memory, and where batches lie, without a weight or a cache being looked at.
    std::vector<Fallback> dry_run(const Model& model, const KvCache& kv, int n_rows,
                                  int n_logit_rows) {
        graphs_.clear();
        mirror_ =
            cuda::BatchMirror(std::max(n_rows, n_logit_rows), kv_pages_of(kv.n_slots) + n_rows,
                              model.rope_table, stream_.get());
        context_.mirror = mirror_.mirror();
        sampling_ = cuda::SampleMirror(n_logit_rows, stream_.get());
        context_.sampling = &sampling_;
        scratch_ = {};
        std::vector<Fallback> fallbacks;
        for (RowClass row_class : {RowClass::kPrompt, RowClass::kDecode}) {
            BatchSize size(n_rows, n_logit_rows, row_class);
            run(model, kv, size.batch(), &fallbacks);
        }
        return fallbacks;
    }

    // A step that is traced ends before this returns.
    StepResult trace(const Model& model, const KvCache& kv, const Batch& batch, bool draws) {
        struct Traced {
            cuda::Context& context;
            ~Traced() { context.trace = nullptr; }
        } traced{context_};
        context_.trace = batch.trace;
        if (batch.trace->graph.n_times > 0) return time_in_graph(model, kv, batch, draws);
        if (!clock_) clock_.emplace(stream_.get());
        clock_->begin();
        batch.trace->begin_on_device(&*clock_, pool_.size());
        StepResult result = run(model, kv, batch);
        batch.trace->end_on_device(clock_->finish());
        return result;
    }

    // Where the host draws, the step ends with its logits.
    StepResult time_in_graph(const Model& model, const KvCache& kv, const Batch& batch,
                             bool draws) {
        GraphTiming& timing = batch.trace->graph;
        StepResult result;
        result.sampled.resize(batch.sample_rows.size());
        batch.trace->begin_captured();
        if (stream_of_weights_) {
            timing.unfit = "layers are streamed";
            return result;
        }
        if (!graph_timer_) {  // whose own kernels are no part of the step
            context_.trace = nullptr;
            graph_timer_.emplace(context_);
            context_.trace = batch.trace;
        }
        const cuda::Graph graph(stream_.get(),
                                [&] { compute(model, kv, batch, draws, result, nullptr); });
        if (batch.trace->all_launches().empty()) {
            timing.unfit = "none of it runs in a graph";
        } else {
            timing.samples_ns = graph_timer_->time(graph, timing.n_times, flush_bytes());
        }
        return result;
    }
    // Weights that the second cache holds stay there in a step, too; of others it holds none when
    // their turn comes.
    int64_t flush_bytes() const {
        int64_t n_weights = 0;
        for (const Buffer& buffer : weights_) n_weights += static_cast<int64_t>(buffer.n_bytes());
        int l2_bytes = 0;
        check(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device_.index),
              "size of the second cache");
        return n_weights > l2_bytes ? round_up(int64_t{3} * l2_bytes, 16) : 0;
    }

    // `planned`: a dry run, which notes its fallbacks there.
    StepResult run(const Model& model, const KvCache& kv, const Batch& batch,
                   std::vector<Fallback>* planned = nullptr) {
        const bool planning = planned != nullptr, samples = planning || !batch.sample_rows.empty();
        StepResult result;
        if (samples) result.sampled.resize(batch.sample_rows.size());
        compute(model, kv, batch, samples, result, planned);
        if (!samples && result.logits.n_rows > 0) {
            const auto n_bytes =
                static_cast<size_t>(result.logits.n_rows * result.logits.n_cols) * sizeof(float);
            check(cudaMemcpyAsync(host_logits_.data(), logits_.data(), n_bytes,
                                  cudaMemcpyDeviceToHost, stream_.get()),
                  "reading logits");
        }
        return result;
    }

    void compute(const Model& model, const KvCache& kv, const Batch& batch, bool samples,
                 StepResult& result, std::vector<Fallback>* planned) {
        const bool planning = planned != nullptr;
        const auto n_logit_rows = static_cast<int64_t>(batch.logit_rows.size());
        const int64_t n_vocab = model.config.n_vocab;
        const Rows logits{&logits_, 0, DType::kF32, n_logit_rows, n_vocab, n_vocab};
        const auto logit_bytes = static_cast<size_t>(n_logit_rows * n_vocab) * sizeof(float);
        CHECK(planning || logit_bytes <= logits_.n_bytes());
        const Tables& tables = model.tables;
        Step step{tables, tables.ops, tables.stages, model.config, model.rope_table,
                  batch,  scratch_,   pool_,         planning};
        step.fallbacks = planned;
        step.trace = planning ? nullptr : batch.trace;
        scratch_.begin_step();
        tables.step(step, model.weights, kv, logits);
        if (samples) {
            const cuda::Range range(tables.ops.sample.name());
            tables.ops.sample(step, logits, result.sampled);
        }
        result.logits = logits;
        result.logits.buffer = &host_logits_;
    }

    // A step that has been started, and not been waited for.
    struct Flight {
        uint64_t id = 0;  // its ticket's; 0: there is none
        cuda::Event ended;
        StepResult result;
    };

    const CudaDevice device_;
    const std::string name_;
    const uint64_t memory_limit_;
    const Fault fault_;
    int64_t n_allocations_ = 0;
    uint64_t used_bytes_ = 0;
    ThreadPool pool_;
    Stream stream_;
    cuda::Context context_;
    cuda::GraphCache graphs_;
    std::optional<cuda::Upload> upload_;
    std::optional<cuda::WeightStream> stream_of_weights_;
    Buffer arrivals_, rounded_rows_;
    std::vector<Buffer> weights_;
    std::byte* weights_end_ = nullptr;
    size_t n_weights_left_ = 0;  // behind weights_end_ in the last block
    cuda::Packet packet_;
    cuda::BatchMirror mirror_;
    cuda::SampleMirror sampling_;
    int64_t n_drawn_ = 0;  // rows that the last step draws on the device
    Buffer scratch_memory_, logits_, host_logits_;
    Scratch scratch_;
    std::optional<cuda::StepClock> clock_;
    std::optional<cuda::GraphTimer> graph_timer_;
    std::array<Flight, cuda::Packet::kSlots> flights_;
    uint64_t n_steps_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
    return std::make_unique<CudaBackend>(open_cuda_device(options.device, options.fault), options);
}

}  // namespace ridge
