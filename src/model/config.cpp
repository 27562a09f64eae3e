#include "model/config.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"

namespace ridge {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 24;  // far beyond any model; products of two fit easily

// One hyper-parameter's names: GGUF's, without the architecture's prefix, and Hugging Face's.
struct Key {
    std::string_view gguf, hf;
};

// Hyper-parameters of a file of either type, with errors that use the file's own names.
class HyperParameters {
  public:
    explicit HyperParameters(const ModelFile& file)
        : file_(file), gguf_(file.type() == FileType::kGguf) {
        architecture_ = find_text(gguf_ ? "general.architecture" : "model_type").value_or("");
        for (std::string_view known : {"llama", "qwen2", "qwen3"}) {
            if (architecture_ == known) return;
        }
        throw Error("{}: {} is {}, expected one of llama, qwen2, qwen3", where(),
                    gguf_ ? "general.architecture" : "model_type",
                    architecture_.empty() ? "absent" : printable(architecture_));
    }

    bool gguf() const { return gguf_; }
    const std::string& architecture() const { return architecture_; }
    std::string where() const { return printable(file_.path()) + (gguf_ ? "" : ": config.json"); }
    std::string name(const Key& key) const {
        return gguf_ ? architecture_ + "." + std::string(key.gguf) : std::string(key.hf);
    }

    std::optional<int64_t> find_int(const Key& key) const {
        if (gguf_) return file_.metadata().find_i64(name(key));
        const Json* value = find_json(key.hf);
        if (value == nullptr) return std::nullopt;
        if (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX) {
            throw Error("{}: {} is {}, expected at most {}", where(), key.hf,
                        value->get<uint64_t>(), INT64_MAX);
        }
        if (!value->is_number_integer()) wrong_type(key.hf, *value, "an integer");
        return value->get<int64_t>();
    }

    int integer(const Key& key, int64_t low, int64_t high,
                std::optional<int64_t> otherwise = {}) const {
        std::optional<int64_t> value = find_int(key);
        if (!value) value = otherwise;
        if (!value)
            throw Error("{}: {} is absent, expected {} to {}", where(), name(key), low, high);
        if (*value < low || *value > high) {
            throw Error("{}: {} is {}, expected {} to {}", where(), name(key), *value, low, high);
        }
        return static_cast<int>(*value);
    }

    std::optional<double> find_number(const Key& key) const {
        if (gguf_) {
            std::optional<float> value = file_.metadata().find_f32(name(key));
            return value ? std::optional<double>(*value) : std::nullopt;
        }
        const Json* value = find_json(key.hf);
        if (value == nullptr) return std::nullopt;
        if (!value->is_number()) wrong_type(key.hf, *value, "a number");
        return value->get<double>();
    }

    double positive(const Key& key, std::optional<double> otherwise = {}) const {
        std::optional<double> value = find_number(key);
        if (!value) value = otherwise;
        if (!value) throw Error("{}: {} is absent, expected a number above 0", where(), name(key));
        check_positive(name(key), *value);
        return *value;
    }
    void check_positive(std::string_view key, double value) const {
        if (!(value > 0) || !std::isfinite(value)) {
            throw Error("{}: {} is {}, expected a finite number above 0", where(), key, value);
        }
    }

    // The value at a path of a config.json ("rope_scaling.factor"); null where absent or null.
    const Json* find_json(std::string_view path) const {
        const Json* at = &file_.config();
        while (!path.empty()) {
            size_t dot = std::min(path.find('.'), path.size());
            if (!at->is_object()) return nullptr;
            auto member = at->find(std::string(path.substr(0, dot)));
            if (member == at->end() || member->is_null()) return nullptr;
            at = &*member;
            path.remove_prefix(std::min(dot + 1, path.size()));
        }
        return at;
    }

    std::optional<std::string> find_text(std::string_view full_name) const {
        if (gguf_) {
            std::optional<std::string_view> value = file_.metadata().find_string(full_name);
            return value ? std::optional<std::string>(*value) : std::nullopt;
        }
        const Json* value = find_json(full_name);
        if (value == nullptr) return std::nullopt;
        if (!value->is_string()) wrong_type(full_name, *value, "a string");
        return value->get<std::string>();
    }

    bool find_flag(std::string_view hf_name) const {
        const Json* value = find_json(hf_name);
        if (value == nullptr) return false;
        if (!value->is_boolean()) wrong_type(hf_name, *value, "true or false");
        return value->get<bool>();
    }

    [[noreturn]] void wrong_type(std::string_view key, const Json& value,
                                 std::string_view expected) const {
        std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
        throw Error("{}: {} is {}, expected {}", where(), key, printable(text, 60), expected);
    }

  private:
    const ModelFile& file_;
    bool gguf_;
    std::string architecture_;
};

// The table of rope_freqs.weight, which llama.cpp's converter writes for Llama 3 scaling.
std::vector<float> read_rope_freqs(const ModelFile& file, const Tensor& tensor, int d_rope) {
    if (tensor.n_dims != 1 || tensor.n_cols() != d_rope / 2) {
        throw Error(
            "{}: tensor rope_freqs.weight is {}, expected [{}] (half of the rotated dimensions)",
            printable(file.file_of(tensor)), shape_text(tensor), d_rope / 2);
    }
    std::vector<float> factors(static_cast<size_t>(tensor.n_cols()));
    unpack_row(tensor, 0, factors.data());
    for (size_t i = 0; i < factors.size(); i++) {
        if (!(factors[i] > 0) || !std::isfinite(factors[i])) {
            throw Error(
                "{}: tensor rope_freqs.weight has {} at {}, expected finite numbers above 0",
                printable(file.file_of(tensor)), factors[i], i);
        }
    }
    return factors;
}

// The factor of linear scaling. As llama.cpp has it: a file that gives one needs no type beside it,
// older files call it rope.scale_linear, and 0 is as good as none.
float read_gguf_linear_factor(const HyperParameters& parameters) {
    const Key type_key{"rope.scaling.type", ""};
    std::string type = parameters.find_text(parameters.name(type_key)).value_or("linear");
    if (type == "none") return 1;
    if (type != "linear") {
        throw Error("{}: {} is {}, expected none or linear", parameters.where(),
                    parameters.name(type_key), printable(type));
    }
    for (const Key& key : {Key{"rope.scaling.factor", ""}, Key{"rope.scale_linear", ""}}) {
        std::optional<double> factor = parameters.find_number(key);
        if (factor && *factor != 0) return static_cast<float>(parameters.positive(key));
    }
    return 1;
}

std::vector<float> read_gguf_rope_factors(const ModelFile& file, const HyperParameters& parameters,
                                          int d_rope) {
    const float linear = read_gguf_linear_factor(parameters);
    std::vector<float> factors;
    if (const Tensor* tensor = file.find("rope_freqs.weight"))
        factors = read_rope_freqs(file, *tensor, d_rope);
    if (linear == 1) return factors;
    factors.resize(static_cast<size_t>(d_rope / 2), 1);
    for (float& factor : factors) factor *= linear;
    return factors;
}

// rope_scaling of a config.json, or rope_parameters, as later versions of transformers write it.
std::vector<float> read_hf_rope_factors(const HyperParameters& parameters, std::string_view object,
                                        int d_rope, double theta) {
    std::string base(object);
    const Json* scaling = parameters.find_json(object);
    if (scaling != nullptr && !scaling->is_object())
        parameters.wrong_type(object, *scaling, "an object");
    std::optional<std::string> type = parameters.find_text(base + ".rope_type");
    if (!type) type = parameters.find_text(base + ".type");
    if (!type || *type == "default") return {};
    auto number = [&](std::string_view field) {
        return parameters.positive({"", base + "." + std::string(field)});
    };
    if (*type == "linear") {
        return std::vector<float>(static_cast<size_t>(d_rope / 2),
                                  static_cast<float>(number("factor")));
    }
    if (*type != "llama3") {
        throw Error("{}: {} has the type {}, expected default, linear or llama3",
                    parameters.where(), object, printable(*type));
    }
    double low = number("low_freq_factor"), high = number("high_freq_factor");
    if (!(high > low)) {
        throw Error("{}: {}.high_freq_factor is {}, expected more than low_freq_factor ({})",
                    parameters.where(), object, high, low);
    }
    return llama3_rope_factors(d_rope, theta, number("factor"), low, high,
                               number("original_max_position_embeddings"));
}

void read_rope(const ModelFile& file, const HyperParameters& p, Config& config) {
    std::string_view hf_object = "rope_scaling";
    std::string_view theta_key = "rope_theta";
    if (!p.gguf() && p.find_json("rope_parameters") != nullptr) {
        hf_object = "rope_parameters";
        if (p.find_json("rope_parameters.rope_theta") != nullptr)
            theta_key = "rope_parameters.rope_theta";
    }
    config.rope_theta = p.positive({"rope.freq_base", theta_key}, 10000.0);
    Key rotated{"rope.dimension_count", "partial_rotary_factor"};
    if (p.gguf()) {
        config.d_rope = p.integer(rotated, 2, config.d_head, config.d_head);
    } else {
        double share = p.positive(rotated, 1.0);
        if (share > 1)
            throw Error("{}: {} is {}, expected at most 1", p.where(), rotated.hf, share);
        config.d_rope = static_cast<int>(config.d_head * share);
    }
    if (config.d_rope < 2 || config.d_rope % 2 != 0) {
        throw Error("{}: {} gives {} rotated dimensions, expected an even number from 2 to {}",
                    p.where(), p.name(rotated), config.d_rope, config.d_head);
    }
    config.rope_style = p.gguf() && config.architecture == "llama" ? RopeStyle::kInterleaved
                                                                   : RopeStyle::kHalfSplit;
    config.rope_factors =
        p.gguf() ? read_gguf_rope_factors(file, p, config.d_rope)
                 : read_hf_rope_factors(p, hf_object, config.d_rope, config.rope_theta);
}

// Options that change the arithmetic and that Ridge does not have: another model's mark, or a file
// that would give wrong text without a word.
void refuse_unknown_gguf_options(const ModelFile& file, const HyperParameters& p) {
    std::string type = p.find_text("general.type").value_or("model");
    if (type != "model") {
        throw Error("{}: general.type is {}, expected model", p.where(), printable(type));
    }
    for (const char* name : {"expert_count", "attention.sliding_window"}) {
        int64_t n = p.find_int({name, ""}).value_or(0);
        if (n == 0) continue;
        throw Error("{}: {} is {}: {} not supported", p.where(), p.name({name, ""}), n,
                    std::string_view(name) == "expert_count" ? "mixtures of experts are"
                                                             : "sliding-window attention is");
    }
    struct Neutral {
        const char* name;
        double value;  // at which the option does nothing
    };
    for (const Neutral& neutral :
         {Neutral{"attention.scale", 0}, Neutral{"attention.clamp_kqv", 0},
          Neutral{"logit_scale", 1}, Neutral{"residual_scale", 1}, Neutral{"embedding_scale", 1},
          Neutral{"attn_logit_softcapping", 0}, Neutral{"final_logit_softcapping", 0}}) {
        double value = p.find_number({neutral.name, ""}).value_or(neutral.value);
        if (value == neutral.value || value == 0) continue;  // 0 is how files say none
        throw Error("{}: {} is {}, which is not supported", p.where(), p.name({neutral.name, ""}),
                    value);
    }
    std::string causal = p.name({"attention.causal", ""});
    if (!file.metadata().find_bool(causal).value_or(true)) {
        throw Error("{}: {} is false, expected true", p.where(), causal);
    }
}

void refuse_unknown_options(const ModelFile& file, const HyperParameters& p) {
    if (p.gguf()) return refuse_unknown_gguf_options(file, p);
    if (p.find_flag("use_sliding_window")) {
        throw Error("{}: use_sliding_window is true: sliding-window attention is not supported",
                    p.where());
    }
    std::string activation = p.find_text("hidden_act").value_or("silu");
    if (activation != "silu") {
        throw Error("{}: hidden_act is {}, expected silu", p.where(), printable(activation));
    }
}

void read_vocabulary_size(const ModelFile& file, const HyperParameters& p, Config& config) {
    const Tensor* embedding = file.find("token_embd.weight");
    if (embedding == nullptr) {
        throw Error("{}: tensor {} is missing", printable(file.path()),
                    p.gguf() ? "token_embd.weight" : "model.embed_tokens.weight");
    }
    int64_t n_rows = embedding->n_rows();
    if (embedding->n_dims != 2 || n_rows < 1 || n_rows > kMaxDim) {
        throw Error("{}: tensor {} is {}, expected [n_vocab, {}]",
                    printable(file.file_of(*embedding)), printable(embedding->name),
                    shape_text(*embedding), config.d_model);
    }
    config.n_vocab = static_cast<int>(n_rows);
    auto must_agree = [&](std::string_view what, uint64_t n) {
        if (n == static_cast<uint64_t>(n_rows)) return;
        throw Error("{}: {} is {}, expected {} (the rows of {})", p.where(), what, n, n_rows,
                    printable(embedding->name));
    };
    Key key{"vocab_size", "vocab_size"};
    if (std::optional<int64_t> n = p.find_int(key))
        must_agree(p.name(key), static_cast<uint64_t>(*n));
    if (!p.gguf()) return;
    if (const GgufEntry* tokens = file.metadata().find("tokenizer.ggml.tokens")) {
        must_agree("the number of tokenizer.ggml.tokens", tokens->n_elements);
    }
}

}  // namespace

Config read_config(const ModelFile& file) {
    HyperParameters p(file);
    refuse_unknown_options(file, p);
    Config config;
    config.architecture = p.architecture();
    config.name = p.find_text(p.gguf() ? "general.name" : "_name_or_path").value_or("");
    config.n_layers = p.integer({"block_count", "num_hidden_layers"}, 1, 1024);
    config.d_model = p.integer({"embedding_length", "hidden_size"}, 1, kMaxDim);
    config.n_heads = p.integer({"attention.head_count", "num_attention_heads"}, 1, 65536);

    Key kv_heads{"attention.head_count_kv", "num_key_value_heads"};
    config.n_kv_heads = p.integer(kv_heads, 1, config.n_heads, config.n_heads);
    if (config.n_heads % config.n_kv_heads != 0) {
        throw Error("{}: {} is {}, expected a divisor of {} ({})", p.where(), p.name(kv_heads),
                    config.n_kv_heads, p.name({"attention.head_count", "num_attention_heads"}),
                    config.n_heads);
    }
    Key d_head{"attention.key_length", "head_dim"};
    config.d_head = p.integer(d_head, 2, 1024, config.d_model / config.n_heads);
    if (config.d_head % 2 != 0) {
        throw Error("{}: {} is {}, expected an even number", p.where(), p.name(d_head),
                    config.d_head);
    }
    if (p.gguf())
        p.integer({"attention.value_length", ""}, config.d_head, config.d_head, config.d_head);

    config.d_ff = p.integer({"feed_forward_length", "intermediate_size"}, 1, kMaxDim);
    config.n_ctx_train = p.integer({"context_length", "max_position_embeddings"}, 1,
                                   std::numeric_limits<int32_t>::max());
    config.norm_eps =
        static_cast<float>(p.positive({"attention.layer_norm_rms_epsilon", "rms_norm_eps"}));
    p.check_positive(p.name({"attention.layer_norm_rms_epsilon", "rms_norm_eps"}), config.norm_eps);
    config.qk_norm = config.architecture == "qwen3";
    read_rope(file, p, config);
    read_vocabulary_size(file, p, config);
    bool has_head = file.find("output.weight") != nullptr;
    config.tied_head = !has_head || (!p.gguf() && p.find_flag("tie_word_embeddings"));
    if (!p.gguf() && !has_head && p.find_json("tie_word_embeddings") != nullptr &&
        !p.find_flag("tie_word_embeddings")) {
        throw Error("{}: tensor lm_head.weight is missing, and tie_word_embeddings is false",
                    p.where());
    }
    return config;
}

std::vector<float> llama3_rope_factors(int d_rope, double theta, double factor,
                                       double low_freq_factor, double high_freq_factor,
                                       double original_n_ctx) {
    std::vector<float> factors;
    for (int i = 0; i < d_rope / 2; i++) {
        double wavelength = 2 * std::numbers::pi * std::pow(theta, 2.0 * i / d_rope);
        double turns =
            original_n_ctx / wavelength;  // within the context that the model was first trained on
        if (turns > high_freq_factor) {
            factors.push_back(1);
        } else if (turns < low_freq_factor) {
            factors.push_back(static_cast<float>(factor));
        } else {
            double smooth = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
            factors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
        }
    }
    return factors;
}

}  // namespace ridge
