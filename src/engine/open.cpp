#include <algorithm>
#include <map>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/system.h"
#include "base/timer.h"
#include "cpu/isa.h"
#include "engine/devices.h"
#include "engine/engine_impl.h"
#include "engine/model_source.h"
#include "engine/prepare_weights.h"
#include "engine/tuning_cache.h"
#include "model/cost.h"
#include "model/dtype_names.h"

namespace ridge {
namespace {

// How errors call the KV cache.
std::string cache_text(const Capacity& capacity, int64_t n_slots) {
    return capacity.n_slots == 0 ? fmt::format("the KV cache at -c {}", n_slots)
                                 : fmt::format("a KV cache of {} positions", n_slots);
}

// "; try -c N" where a context of N positions would find room beside weights and steps.
std::string advice_on_context(const Engine::Impl& impl, DType k_dtype, DType v_dtype,
                              uint64_t available) {
    Model model = impl.model;
    model.weights = read_weights(*impl.file, model.config);
    model.rope_table = make_rope_table(model.config);
    const bool repack = !impl.options.no_repack;
    const KvCache least = describe_kv_cache(model.config, k_dtype, v_dtype, 1);
    const int64_t beside =
        least_weight_bytes(*impl.backend, model, repack) +
        impl.backend->step_bytes(model, repack ? *model.tables.matmul_layout : row_major_layout(),
                                 least, kStepRows, kMaxStepLogitRows);
    const int64_t room = (static_cast<int64_t>(available) - beside) / 10 * 9;
    const int64_t n_groups = room / static_cast<int64_t>(least.n_bytes());
    if (n_groups <= 0) return "; try a smaller -c and a model of fewer bits";
    return fmt::format("; try -c {}", n_groups * kKvGroupPages * kKvPagePositions);
}

// Checked before anything large is allocated. The weights of a file stay in the page cache, which
// gives way.
void check_memory(const Engine::Impl& impl, DType k_dtype, DType v_dtype, const Capacity& capacity,
                  int64_t n_slots) {
    const uint64_t available = impl.backend->free_memory_bytes();
    const auto per_position =
        static_cast<uint64_t>(kv_bytes_per_position(impl.model.config, k_dtype, v_dtype));
    std::optional<uint64_t> needed = checked_mul(per_position, static_cast<uint64_t>(n_slots));
    if (needed && (available == 0 || *needed <= available)) return;
    throw Error("{}: {:.1f} GB needed for {}, {:.1f} GB free{}", impl.backend->name(),
                1e-9 * static_cast<double>(per_position) * static_cast<double>(n_slots),
                cache_text(capacity, n_slots), static_cast<double>(available) * 1e-9,
                capacity.n_slots == 0 ? advice_on_context(impl, k_dtype, v_dtype, available)
                                      : std::string());
}

// What is told of layers that are streamed.
StreamInfo describe_stream(const OpenOptions& options, const Backend& backend,
                           const WeightPlacement& placement, const PrepareOptions& prepare,
                           size_t kv_bytes) {
    StreamInfo info;
    info.n_layers = static_cast<int>(placement.streamed.size());
    if (info.n_layers == 0) return info;
    info.bytes_a_step = placement.bytes_a_step();
    const auto weight_bytes =
        static_cast<double>(placement.resident_bytes + placement.streamed_bytes);
    info.resident_share = static_cast<double>(placement.resident_bytes) / weight_bytes;
    const std::string why =
        options.stream_weights
            ? std::string("as asked by --stream-weights")
            : fmt::format("since weights, {} and steps take {:.2f} GB and {:.2f} GB are free",
                          prepare.cache,
                          1e-9 * (weight_bytes + static_cast<double>(kv_bytes) +
                                  static_cast<double>(prepare.step_bytes)),
                          1e-9 * static_cast<double>(prepare.memory_bytes));
    info.reason = fmt::format(
        "{}: {} streamed from the host's memory, {}; {:.0f} % of the weights stay on "
        "the device",
        backend.name(), counted(info.n_layers, "layer"), why, 100 * info.resident_share);
    return info;
}

// "Q4_K + Q6_K": formats of the matrices, by bytes.
std::string format_text(const Config& config, const Weights& weights) {
    std::map<std::string_view, int64_t> bytes;
    for_each_tensor(weights, config.tied_head, [&](const Tensor& tensor) {
        if (tensor.n_dims > 1) bytes[tensor.format->name] += tensor.n_bytes();
    });
    std::vector<std::pair<int64_t, std::string_view>> order;
    for (const auto& [name, n] : bytes) order.emplace_back(-n, name);
    std::sort(order.begin(), order.end());
    std::string text;
    for (const auto& [n, name] : order) text += (text.empty() ? "" : " + ") + std::string(name);
    return text;
}

std::optional<ChatTemplate> read_chat_template(const OpenOptions& options, const ModelFile& file,
                                               const Tokenizer& tokenizer) {
    auto text_of = [&](std::optional<Token> token) {
        return token ? std::string(tokenizer.piece(*token)) : "";
    };
    std::string bos = text_of(tokenizer.bos()), eos = text_of(tokenizer.eos());
    if (!options.chat_template_file.empty()) {
        return ChatTemplate::read_file(options.chat_template_file, bos, eos);
    }
    if (!options.chat_template.empty()) return ChatTemplate::named(options.chat_template, bos, eos);
    std::optional<std::string> source = file.chat_template();
    if (!source) return std::nullopt;
    return ChatTemplate::compile(*source, printable(options.model) + ": chat template", bos, eos);
}

void read_tokenizer(const OpenOptions& options, Engine::Impl& impl) {
    const int n_vocab = impl.model.config.n_vocab;
    if (!holds_tokenizer(*impl.file)) {
        if (!options.pre.empty()) {
            throw Error(ErrorKind::kUsage, "--pre {}: {} has no tokenizer", printable(options.pre),
                        printable(options.model));
        }
        impl.end_tokens = bare_end_tokens(*impl.file, n_vocab);
        return;
    }
    impl.tokenizer = Tokenizer::open(*impl.file, options.pre);
    impl.end_tokens = impl.tokenizer->end_tokens();
    if (impl.tokenizer->n_vocab() > n_vocab) {
        throw Error(
            "{}: the tokenizer has {} tokens, expected at most {} (the rows of the embedding)",
            printable(options.model), impl.tokenizer->n_vocab(), n_vocab);
    }
    // The file's own template is compiled when it is asked for: a model whose template is of no
    // use still continues plain text. One that the user names is wanted.
    if (!options.chat_template_file.empty() || !options.chat_template.empty()) {
        impl.chat_template = read_chat_template(options, *impl.file, *impl.tokenizer);
    }
}

// The choices of `ridge tune` for this device, where there are some.
TuningInfo use_tuning(const OpenOptions& options, Engine::Impl& impl) {
    if (options.no_tuning) return {};
    const Caps caps = impl.backend->caps();
    const LoadedTuning loaded = load_tuning(
        options.tuning_folder,
        tuning_key(impl.backend->facts().name, caps.isa, caps.n_threads, options.build));
    if (loaded.cache) {
        impl.tuning = loaded.cache->tuning();
        impl.model.tables.tuning = &impl.tuning;
    }
    return tuning_info(loaded);
}

ModelInfo describe(const OpenOptions& options, const ModelFile& file, const Model& model,
                   const KvCache& kv, const Backend& backend) {
    const Config& config = model.config;
    ModelInfo info;
    info.path = options.model, info.name = config.name, info.architecture = config.architecture;
    info.format = format_text(config, model.weights);
    info.file_bytes = file.file_bytes();
    info.n_parameters = n_parameters(config, model.weights);
    info.weight_bytes = total_weight_bytes(config, model.weights);
    info.weight_bytes_per_token = decode_weight_bytes(config, model.weights);
    info.memory_bytes_per_token = decode_memory_bytes(config, model.weights);
    info.kv_bytes_per_position = kv_bytes_per_position(config, kv.k_dtype, kv.v_dtype);
    info.n_ctx = kv.n_slots, info.n_ctx_train = config.n_ctx_train;
    info.n_threads = backend.caps().n_threads;
    // Kernels of no instruction set run where the checkpoint takes none.
    info.isa = model.tables.kernels != nullptr ? backend.caps().isa : isa_name(Isa::kScalar);
    info.device = backend.name();
    DeviceFacts facts = backend.facts();
    info.gpu = std::move(facts.name), info.driver = std::move(facts.driver);
    info.runtime = std::move(facts.runtime);
    info.gpu_sm_mhz = facts.sm_mhz, info.gpu_memory_mhz = facts.memory_mhz;
    info.checkpoint =
        options.checkpoint.empty() ? backend.checkpoints().back().name : options.checkpoint;
    return info;
}

}  // namespace

std::vector<std::string> cpu_isa_names() {
    std::vector<std::string> names;
    for (Isa isa : available_isas()) names.emplace_back(isa_name(isa));
    return names;
}

std::string known_cpu_isas() {
    return known_isas();
}

std::vector<std::string> checkpoint_names(const std::string& device) {
    OpenOptions options;
    options.device = device;
    options.n_threads = 1;
    std::vector<std::string> names;
    for (const Checkpoint& checkpoint : open_device(options).backend->checkpoints())
        names.emplace_back(checkpoint.name);
    return names;
}

Engine::Engine() : impl_(std::make_unique<Impl>()) {}
Engine::~Engine() {
    impl_->backend.reset();  // before the cache, which a step that was dropped may still use
}

DType read_cache_type(std::string_view flag, std::string_view name) {
    const auto found = std::find(kDTypeNames.begin(), kDTypeNames.end(), name);
    if (found != kDTypeNames.end()) return static_cast<DType>(found - kDTypeNames.begin());
    throw Error(ErrorKind::kUsage, "{} \"{}\": expected one of f32, f16, bf16, q8_0", flag,
                printable(name, 80));
}

int64_t choose_context(int64_t n_ctx, const Config& config) {
    if (n_ctx == 0) return std::min(config.n_ctx_train, kDefaultContext);
    if (n_ctx < 0 || n_ctx > config.n_ctx_train) {
        throw Error(ErrorKind::kUsage,
                    "-c {}: expected 1 to {}, the context that the model was made for", n_ctx,
                    config.n_ctx_train);
    }
    return n_ctx;
}

std::unique_ptr<Engine> Engine::open(const OpenOptions& options, const Progress& progress,
                                     const std::function<void(const Engine&)>& check) {
    return Impl::open(options, {}, progress, check);
}

std::unique_ptr<Engine> Engine::Impl::open(const OpenOptions& options, const Capacity& capacity,
                                           const Progress& progress,
                                           const std::function<void(const Engine&)>& check) {
    Timer timer;
    if (options.model.empty()) {
        throw Error(ErrorKind::kUsage,
                    "-m: no model given; expected a file, a folder or synth:NAME:FORMAT");
    }
    DType k_dtype = read_cache_type("-ctk", options.cache_type_k),
          v_dtype = read_cache_type("-ctv", options.cache_type_v);
    std::unique_ptr<Engine> engine(new Engine());
    Impl& impl = *engine->impl_;
    Model& model = impl.model;
    impl.options = options;
    OpenedDevice device = open_device(options);
    impl.backend = std::move(device.backend);
    if (capacity.wrap_backend) impl.backend = capacity.wrap_backend(std::move(impl.backend));
    if (options.stream_weights && !impl.backend->can_stream()) {
        throw Error(
            ErrorKind::kUsage,
            "--stream-weights: {} has no memory of its own that layers could be streamed to",
            impl.backend->name());
    }
    model.tables =
        resolve_tables(impl.backend->checkpoints(), options.checkpoint, impl.backend->caps());
    const TuningInfo tuning = use_tuning(options, impl);

    // What can be refused is refused by the header, before anything large is made.
    impl.file = std::make_unique<ModelFile>(open_model_header(options.model));
    model.config = read_config(*impl.file);
    const int64_t n_ctx =
        capacity.n_slots > 0 ? capacity.n_slots : choose_context(options.n_ctx, model.config);
    check_memory(impl, k_dtype, v_dtype, capacity, n_ctx);
    impl.default_sampling = read_default_sampling(*impl.file);
    read_tokenizer(options, impl);
    impl.info.path = options.model;
    impl.info.n_ctx = n_ctx, impl.info.n_ctx_train = model.config.n_ctx_train;
    Timer check_timer;
    if (check) check(*engine);
    const double check_ms = check_timer.elapsed_ms();
    if (is_synth(options.model)) {
        *impl.file = open_model_file(options.model, options.synth_seed, [&](double share) {
            if (progress) progress("making weights", share);
        });
    }

    model.weights = read_weights(*impl.file, model.config);
    model.rope_table = make_rope_table(model.config);
    // Before the cache is there: some devices hand out memory when it is asked for, others when it
    // is used.
    const uint64_t free_bytes = impl.backend->free_memory_bytes();
    impl.kv = impl.backend->make_kv_cache(model.config, k_dtype, v_dtype, n_ctx);
    PrepareOptions prepare{.repack = !options.no_repack,
                           .in_memory = is_synth(options.model) && impl.backend->name() == "cpu",
                           .stream = options.stream_weights,
                           .memory_bytes = free_bytes,
                           .cache = cache_text(capacity, n_ctx)};
    const auto step_bytes = [&](int n_rows) {
        return impl.backend->step_bytes(
            model, options.no_repack ? row_major_layout() : *model.tables.matmul_layout, impl.kv,
            std::max(n_rows, capacity.n_logit_rows), capacity.n_logit_rows);
    };
    int n_step_rows = capacity.n_step_rows;
    if (n_step_rows == 0) {  // a cache of fewer positions never sees so many
        const int64_t n_useful = std::max<int64_t>(n_ctx, kStepRows);
        n_step_rows = static_cast<int>(std::min<int64_t>(impl.backend->step_rows(), n_useful));
        n_step_rows =
            choose_step_rows(prepare, impl.kv, *impl.backend, model, n_step_rows, step_bytes);
    }
    prepare.step_bytes = step_bytes(n_step_rows);
    const WeightPlacement placement =
        prepare_weights(*impl.file, prepare, impl.kv, *impl.backend, model, progress);
    std::vector<Fallback> fallbacks = impl.backend->plan(
        model, impl.kv, std::max(n_step_rows, capacity.n_logit_rows), capacity.n_logit_rows);
    impl.info = describe(options, *impl.file, model, impl.kv, *impl.backend);
    impl.info.n_step_rows = n_step_rows;
    impl.info.tuning = tuning;
    if (impl.backend->can_stream()) {
        impl.info.device_bytes =
            placement.device_bytes() + prepare.step_bytes + static_cast<int64_t>(impl.kv.n_bytes());
    }
    impl.info.stream =
        describe_stream(options, *impl.backend, placement, prepare, impl.kv.n_bytes());
    impl.info.device_reason = std::move(device.reason);
    impl.info.fallbacks = std::move(fallbacks);
    impl.info.load_ms = timer.elapsed_ms() - check_ms;
    return engine;
}

const ModelInfo& Engine::info() const {
    return impl_->info;
}
const Config& Engine::config() const {
    return impl_->model.config;
}
bool Engine::has_tokenizer() const {
    return impl_->tokenizer.has_value();
}
const Tokenizer& Engine::tokenizer() const {
    if (!impl_->tokenizer) {
        throw Error("{}: has no tokenizer; its prompts are given as ids",
                    printable(impl_->info.path));
    }
    return *impl_->tokenizer;
}
const ChatTemplate* Engine::chat_template() const {
    if (!impl_->chat_template) {
        impl_->chat_template = read_chat_template(impl_->options, *impl_->file, tokenizer());
    }
    return impl_->chat_template ? &*impl_->chat_template : nullptr;
}
SampleParams Engine::default_sampling() const {
    return impl_->default_sampling;
}
Sequence Engine::new_sequence() {
    return {impl_.get(), ++impl_->n_sequences};
}

double Engine::bound_tok_s(int64_t n_positions) {
    double gbps = impl_->backend->measure_read_gbps(impl_->model);
    const ModelInfo& info = impl_->info;
    auto bytes =
        static_cast<double>(info.memory_bytes_per_token + info.kv_bytes_per_position * n_positions);
    const double of_memory = gbps * 1e9 / bytes;
    if (info.stream.bytes_a_step == 0) return of_memory;
    const double link = impl_->backend->measure_link_gbps() * 1e9;
    return std::min(of_memory, link / static_cast<double>(info.stream.bytes_a_step));
}

}  // namespace ridge
