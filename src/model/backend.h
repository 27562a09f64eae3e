#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/tensor.h"
#include "model/batch.h"
#include "model/ceiling.h"
#include "model/kv_cache.h"
#include "model/tables.h"
#include "model/weight_placement.h"
#include "model/weights.h"

namespace ridge {

// A model as a backend holds it: weights prepared, tables resolved.
struct Model {
    Config config;
    Weights weights;
    RopeTable rope_table;
    Tables tables;
};

// Names a step that has been handed to the device.
struct Ticket {
    uint64_t id = 0;
};

struct StepResult {
    std::vector<Sampled> sampled;  // parallel to Batch::sample_rows
    Rows logits;  // [n_logit_rows, n_vocab] f32; as computed where nothing was sampled; valid until
                  // the next step
};

// What prepare() tells of. Either may be empty.
struct PrepareEvents {
    // Memory is about to be taken. An Error thrown here ends it all, with nothing taken.
    std::function<void(int64_t n_bytes)> taking;
    // The weight as it was given has been copied, and is not read again.
    std::function<void(const Tensor& original)> copied;
};

// What a report of measurements says of a device.
struct DeviceFacts {
    std::string name;                // "NVIDIA H200"; empty: the machine's processor
    std::string driver, runtime;     // versions: "580.159.04", "CUDA 13.0"
    int sm_mhz = 0, memory_mhz = 0;  // of a GPU, the highest clocks; 0: unknown
};

// Rows of a prompt's step, at most, unless a backend wants more of them or a caller says.
constexpr int kStepRows = 512;

// A device that can hold a model and run its steps.
class Backend {
  public:
    virtual ~Backend() = default;

    virtual std::string_view name() const = 0;
    virtual std::span<const Checkpoint> checkpoints() const = 0;
    virtual Caps caps() const = 0;
    // Rows of a prompt's step that the device is fast with. Memory of a step grows with them, so
    // there may be fewer where it is short (engine/prepare_weights.h), no fewer than kStepRows.
    virtual int step_rows() const { return kStepRows; }

    // What can be taken now of the device's memory, within the limit that it was opened with; 0:
    // unknown.
    virtual uint64_t free_memory_bytes() const = 0;
    // Memory of the device; Error with the bytes wanted when there is none. Zeroed, committed as it
    // is touched where the device can do so.
    virtual Buffer alloc(size_t n_bytes) = 0;
    // The weights in the device's memory and in the wanted layout: the one place where a layout
    // changes. A result may be a view of the given tensor. Vectors (norms, biases) become float32.
    // Several are such as a stage reads side by side, with as many rows each: they are packed part
    // by part in turns (format/packing.h). `layer`: whose they are, -1 of none.
    virtual void prepare(std::span<Tensor* const> weights, const Layout& layout, int layer,
                         const PrepareEvents& events) = 0;
    Tensor prepare(const Tensor& weight, const Layout& layout) {  // one alone
        Tensor prepared = weight, *weights[] = {&prepared};
        prepare(weights, layout, -1, {});
        return prepared;
    }
    // Bytes that prepare() will take for a weight at the least: it may be more where they depend on
    // what the weight holds.
    virtual int64_t least_bytes(const Tensor& weight, const Layout& layout) const = 0;
    virtual KvCache make_kv_cache(const Config& config, DType k_dtype, DType v_dtype,
                                  int64_t n_slots) = 0;

    // Whether layers can be streamed. Before the first prepare() of the model's weights, place()
    // then says which ones are.
    virtual bool can_stream() const { return false; }
    virtual void place(const WeightPlacement& placement) { CHECK(placement.streamed.empty()); }
    // Bytes of the device's memory that plan() will take, and running steps will, beside weights
    // and cache; 0: not counted. Weights need not have been prepared; `packed` is the layout that
    // those of matmuls will be in.
    virtual int64_t step_bytes(const Model& /*model*/, const Layout& /*packed*/,
                               const KvCache& /*kv*/, int /*n_rows*/, int /*n_logit_rows*/) {
        return 0;
    }

    // Plans the memory of a step for at most n_rows rows, n_logit_rows of which want logits.
    // Returns which overrides do not run on this model and cache, each once.
    virtual std::vector<Fallback> plan(const Model& model, const KvCache& kv, int n_rows,
                                       int n_logit_rows) = 0;
    // Whether a step may take its tokens from one that is still under way and draws these rows
    // (drawn_by, model/batch.h): the host then has a step's time to see what was drawn.
    virtual bool can_run_ahead(const Model& /*model*/, std::span<const SampleRow> /*rows*/) const {
        return false;
    }
    // Starts a step. `batch` and what it views are not looked at after that. Where the backend can
    // run ahead, the step before it need not have been waited for; those before that one are
    // dropped, and what they gave is lost. What it throws changes nothing of the step before.
    virtual Ticket step(const Model& model, const KvCache& kv, const Batch& batch) = 0;
    // To the end of that step, not of one that was started behind it.
    virtual StepResult wait(Ticket ticket) = 0;

    // Measured rate of reading the weights from memory, in GB/s: the wall that decode stands
    // before.
    virtual double measure_read_gbps(const Model& model) = 0;
    // Measured rate of bringing streamed layers to the device and doing nothing else, in GB/s; 0
    // where there are none.
    virtual double measure_link_gbps() { return 0; }
    // What the device itself can do, measured: rates of each level of memory and of each kind of
    // arithmetic that kernels use. Takes some seconds. Empty where the backend does not measure it.
    virtual Ceilings measure_ceilings(const CeilingEvents& /*events*/) { return {}; }
    // The ceiling of arithmetic, by its name, that the products of a node's kernel stand before.
    // `format`: of its first matrix, null where it has none; `row_class`: of its rows, in the head
    // always decode.
    virtual std::string_view arithmetic_of(std::string_view /*node*/,
                                           std::string_view /*checkpoint*/,
                                           const Format* /*format*/, RowClass /*row_class*/) const {
        return "f32";
    }

    virtual DeviceFacts facts() const { return {}; }
};

// Puts a backend of its own around a device's.
using WrapBackend = std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)>;

}  // namespace ridge
