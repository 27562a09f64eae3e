#include "model/synth_plan.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/config.h"
#include "model/synth.h"
#include "model/synth_vocabulary.h"

namespace ridge {
namespace {

// The numbers of a published config.json, or of a small model of the same options.
struct SynthShape {
    std::string_view name, architecture;
    SynthVocabulary vocabulary;
    int n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff, n_vocab, n_ctx;
    float rope_theta, norm_eps;
    float rope_factor;  // of Llama 3 scaling; 0: none
    bool tied_head;
};

constexpr auto kLlama3 = SynthVocabulary::kLlama3;
constexpr auto kQwen2 = SynthVocabulary::kQwen2;
constexpr auto kQwen3 = SynthVocabulary::kQwen3;
constexpr auto kSmolLm2 = SynthVocabulary::kSmolLm2;

// clang-format off
constexpr SynthShape kShapes[] = {
    // name, architecture, vocabulary  layers d_model heads kv d_head  d_ff n_vocab   n_ctx   theta   eps factor tied
    {"llama-3.2-1b", "llama", kLlama3,     16,   2048,   32, 8,   64,  8192, 128256, 131072,  500000, 1e-5f, 32, true},
    {"llama-3.2-3b", "llama", kLlama3,     28,   3072,   24, 8,  128,  8192, 128256, 131072,  500000, 1e-5f, 32, true},
    {"llama-3.1-8b", "llama", kLlama3,     32,   4096,   32, 8,  128, 14336, 128256, 131072,  500000, 1e-5f,  8, false},
    {"qwen3-0.6b",   "qwen3", kQwen3,      28,   1024,   16, 8,  128,  3072, 151936,  40960, 1000000, 1e-6f,  0, true},
    {"qwen3-1.7b",   "qwen3", kQwen3,      28,   2048,   16, 8,  128,  6144, 151936,  40960, 1000000, 1e-6f,  0, true},
    {"qwen3-4b",     "qwen3", kQwen3,      36,   2560,   32, 8,  128,  9728, 151936,  40960, 1000000, 1e-6f,  0, true},
    {"qwen3-8b",     "qwen3", kQwen3,      36,   4096,   32, 8,  128, 12288, 151936,  40960, 1000000, 1e-6f,  0, false},
    {"smollm2-135m", "llama", kSmolLm2,    30,    576,    9, 3,   64,  1536,  49152,   8192,  100000, 1e-5f,  0, true},
    {"tiny-llama3",  "llama", kLlama3,      2,    256,    4, 2,   64,   768,   4096, 131072,  500000, 1e-5f, 32, true},
    {"tiny-qwen3",   "qwen3", kQwen3,       3,    256,    4, 2,  128,   768,   4096,  40960, 1000000, 1e-6f,  0, false},
    {"tiny-qwen2",   "qwen2", kQwen2,       4,    256,    8, 2,   32,   512,   4096,  32768, 1000000, 1e-6f,  0, true},
    {"tiny-open-llama", "llama", kSmolLm2,  2,    256,   32, 4,   24,   768,   4096,   2048,   10000, 1e-6f,  0, false},
};
// clang-format on

// Llama 3.1's rope_scaling, apart from its factor.
constexpr double kLowFreqFactor = 1, kHighFreqFactor = 4, kOriginalCtx = 8192;

// A format for all matrices, or a mixture: `more` for those that lose most by few bits.
struct FormatChoice {
    std::string_view name;
    FormatId usual, more;
    uint32_t file_type;  // general.file_type, llama.cpp's number for it
};
constexpr FormatChoice kChoices[] = {
    {"F32", FormatId::kF32, FormatId::kF32, 0},
    {"F16", FormatId::kF16, FormatId::kF16, 1},
    {"BF16", FormatId::kBF16, FormatId::kBF16, 32},
    {"Q4_0", FormatId::kQ4_0, FormatId::kQ4_0, 2},
    {"Q4_1", FormatId::kQ4_1, FormatId::kQ4_1, 3},
    {"Q5_0", FormatId::kQ5_0, FormatId::kQ5_0, 8},
    {"Q5_1", FormatId::kQ5_1, FormatId::kQ5_1, 9},
    {"Q8_0", FormatId::kQ8_0, FormatId::kQ8_0, 7},
    {"Q2_K", FormatId::kQ2_K, FormatId::kQ2_K, 10},
    {"Q3_K", FormatId::kQ3_K, FormatId::kQ3_K, 11},
    {"Q4_K", FormatId::kQ4_K, FormatId::kQ4_K, 14},
    {"Q5_K", FormatId::kQ5_K, FormatId::kQ5_K, 16},
    {"Q6_K", FormatId::kQ6_K, FormatId::kQ6_K, 18},
    {"IQ4_NL", FormatId::kIQ4_NL, FormatId::kIQ4_NL, 25},
    {"IQ4_XS", FormatId::kIQ4_XS, FormatId::kIQ4_XS, 30},
    {"Q4_K_M", FormatId::kQ4_K, FormatId::kQ6_K, 15},
    {"Q5_K_M", FormatId::kQ5_K, FormatId::kQ6_K, 17},
};

// What a row that is no multiple of 256 is stored in instead.
FormatId format_of_smaller_blocks(FormatId id) {
    switch (id) {
        case FormatId::kQ2_K:
        case FormatId::kQ3_K:
        case FormatId::kIQ4_XS:
            return FormatId::kIQ4_NL;
        case FormatId::kQ4_K:
            return FormatId::kQ5_0;
        case FormatId::kQ5_K:
            return FormatId::kQ5_1;
        case FormatId::kQ6_K:
            return FormatId::kQ8_0;
        default:
            CHECK(!"a row is a multiple of 32");
            return id;
    }
}

// The mixtures give attn_v and ffn_down more bits in the first and the last eighth of the layers,
// and in every third one between.
bool wants_more_bits(int layer, int n_layers) {
    return layer < n_layers / 8 || layer >= 7 * n_layers / 8 || (layer - n_layers / 8) % 3 == 2;
}

std::string join(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}

char upper(char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

const SynthShape& find_shape(const std::string& name) {
    for (const SynthShape& shape : kShapes) {
        if (shape.name == name) return shape;
    }
    throw Error(ErrorKind::kUsage, "synth: unknown model {}; one of {}", printable(name),
                join(synth_names()));
}

const FormatChoice& find_choice(const std::string& name) {
    std::string wanted = name;
    for (char& c : wanted) c = upper(c);
    for (const FormatChoice& choice : kChoices) {
        if (choice.name == wanted) return choice;
    }
    const Format* format = find_format(name);
    throw Error(ErrorKind::kUsage, "synth: {} format {}; one of {}",
                format == nullptr ? "unknown" : "a GGUF file cannot hold the", printable(name),
                join(synth_formats()));
}

// Adds metadata and tensors to a plan.
class Planner {
  public:
    Planner(const SynthShape& shape, const FormatChoice& choice) : shape_(shape), choice_(choice) {
        plan_.title = fmt::format("synth:{}:{}", shape.name, choice.name);
    }

    SynthPlan plan() {
        add_metadata();
        add_synth_vocabulary(shape_.vocabulary, shape_.n_vocab, plan_.writer);
        // A tied embedding is the LM head as well, and gets the head's format.
        add_matrix("token_embd.weight", shape_.n_vocab, shape_.d_model, shape_.tied_head);
        if (shape_.rope_factor > 0) add_rope_freqs();
        for (int layer = 0; layer < shape_.n_layers; layer++) add_layer(layer);
        add_vector("output_norm.weight", shape_.d_model, 1);
        if (!shape_.tied_head) add_matrix("output.weight", shape_.n_vocab, shape_.d_model, true);
        return std::move(plan_);
    }

  private:
    std::string key(std::string_view name) const {
        return fmt::format("{}.{}", shape_.architecture, name);
    }

    void add_metadata() {
        GgufWriter& w = plan_.writer;
        w.add_string("general.architecture", shape_.architecture);
        w.add_string("general.type", "model");
        w.add_string("general.name", fmt::format("{} (random weights)", shape_.name));
        auto add = [&](std::string_view name, int value) {
            w.add_u32(key(name), static_cast<uint32_t>(value));
        };
        add("block_count", shape_.n_layers);
        add("context_length", shape_.n_ctx);
        add("embedding_length", shape_.d_model);
        add("feed_forward_length", shape_.d_ff);
        add("attention.head_count", shape_.n_heads);
        add("attention.head_count_kv", shape_.n_kv_heads);
        if (shape_.architecture != "qwen2") {  // whose heads are d_model / n_heads by definition
            add("attention.key_length", shape_.d_head);
            add("attention.value_length", shape_.d_head);
        }
        if (shape_.architecture == "llama") {
            add("rope.dimension_count", shape_.d_head);
            add("vocab_size", shape_.n_vocab);
        }
        w.add_f32(key("rope.freq_base"), shape_.rope_theta);
        w.add_f32(key("attention.layer_norm_rms_epsilon"), shape_.norm_eps);
        w.add_u32("general.file_type", choice_.file_type);
        w.add_u32("general.quantization_version", 2);
    }

    void add_layer(int layer) {
        const std::string prefix = fmt::format("blk.{}.", layer);
        const int d_q = shape_.n_heads * shape_.d_head, d_kv = shape_.n_kv_heads * shape_.d_head;
        const bool more = wants_more_bits(layer, shape_.n_layers);
        add_vector(prefix + "attn_norm.weight", shape_.d_model, 1);
        add_linear(prefix + "attn_q", d_q, false);
        add_linear(prefix + "attn_k", d_kv, false);
        add_linear(prefix + "attn_v", d_kv, more);
        if (shape_.architecture == "qwen3") {
            add_vector(prefix + "attn_q_norm.weight", shape_.d_head, 1);
            add_vector(prefix + "attn_k_norm.weight", shape_.d_head, 1);
        }
        add_matrix(prefix + "attn_output.weight", shape_.d_model, d_q, false);
        add_vector(prefix + "ffn_norm.weight", shape_.d_model, 1);
        add_matrix(prefix + "ffn_gate.weight", shape_.d_ff, shape_.d_model, false);
        add_matrix(prefix + "ffn_up.weight", shape_.d_ff, shape_.d_model, false);
        add_matrix(prefix + "ffn_down.weight", shape_.d_model, shape_.d_ff, more);
    }

    // Q, K or V of a layer: from d_model, with a bias in Qwen2.
    void add_linear(const std::string& name, int d_out, bool more) {
        add_matrix(name + ".weight", d_out, shape_.d_model, more);
        if (shape_.architecture == "qwen2") add_vector(name + ".bias", d_out, 0);
    }

    // Numbers of variance 1 / d_in: an output is about as large as an input.
    void add_matrix(const std::string& name, int d_out, int d_in, bool more) {
        const Format* format = &format_of(more ? choice_.more : choice_.usual);
        while (d_in % format->block_elements != 0) {
            format = &format_of(format_of_smaller_blocks(format->id));
        }
        add({name, format, {d_out, d_in}, 0, 1 / std::sqrt(static_cast<float>(d_in)), {}});
    }

    void add_vector(const std::string& name, int n, float mean) {
        add({name, &format_of(FormatId::kF32), {n}, mean, 0.1f, {}});
    }

    void add_rope_freqs() {
        std::vector<float> factors =
            llama3_rope_factors(shape_.d_head, shape_.rope_theta, shape_.rope_factor,
                                kLowFreqFactor, kHighFreqFactor, kOriginalCtx);
        const auto n = static_cast<int64_t>(factors.size());
        add({"rope_freqs.weight", &format_of(FormatId::kF32), {n}, 0, 0, std::move(factors)});
    }

    void add(SynthTensor tensor) {
        const int index = plan_.writer.add_tensor(tensor.name, *tensor.format, tensor.shape);
        CHECK(static_cast<size_t>(index) == plan_.tensors.size());
        plan_.tensors.push_back(std::move(tensor));
    }

    const SynthShape& shape_;
    const FormatChoice& choice_;
    SynthPlan plan_;
};

}  // namespace

std::vector<std::string> synth_names() {
    std::vector<std::string> names;
    for (const SynthShape& shape : kShapes) names.emplace_back(shape.name);
    return names;
}

std::vector<std::string> synth_formats() {
    std::vector<std::string> names;
    for (const FormatChoice& choice : kChoices) names.emplace_back(choice.name);
    return names;
}

SynthPlan plan_synth(const std::string& name, const std::string& format) {
    return Planner(find_shape(name), find_choice(format)).plan();
}

}  // namespace ridge
