#include "cmd/options.h"

#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "cmd/build_info.h"
#include "cmd/values.h"

namespace ridge {
namespace {

constexpr const char* kModelHelp = "a GGUF file, a folder with safetensors, or synth:NAME:FORMAT";
constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

struct SamplingOption {
    const char* names;
    const char* kind;
    const char* help;
    void (*set)(SamplingOptions&, Where, const std::string&);
};

float number(Where where, const std::string& text, double min, double max) {
    return static_cast<float>(parse_number(where, text, min, max));
}

// The order of --help and of /set. Bounds beyond the sampler's own keep sums of logits finite.
constexpr SamplingOption kSampling[] = {
    {"-s,--seed", "N", "seed of the draws; -1: a new one each time, which is printed",
     [](SamplingOptions& o, Where w, const std::string& t) { o.seed = parse_seed_or_none(w, t); }},
    {"--temp", "X", "temperature; 0: always the most probable token",
     [](SamplingOptions& o, Where w, const std::string& t) {
         o.temperature = number(w, t, 0, 100);
     }},
    {"--top-k", "N", "draw among the N most probable; 0: all",
     [](SamplingOptions& o, Where w, const std::string& t) {
         o.top_k = static_cast<int>(parse_integer(w, t, 0, kMaxInt));
     }},
    {"--top-p", "X", "draw among the most probable that sum to X; 1: all",
     [](SamplingOptions& o, Where w, const std::string& t) { o.top_p = number(w, t, 0, 1); }},
    {"--min-p", "X", "draw among those of X times the highest probability; 0: all",
     [](SamplingOptions& o, Where w, const std::string& t) { o.min_p = number(w, t, 0, 1); }},
    {"--repeat-penalty", "X", "weaken tokens seen before; 1: off",
     [](SamplingOptions& o, Where w, const std::string& t) {
         o.repeat_penalty = number(w, t, 0.01, 100);
     }},
    {"--repeat-last-n", "N", "tokens that the penalties look back on; 0: off, -1: all",
     [](SamplingOptions& o, Where w, const std::string& t) {
         o.penalty_last_n = static_cast<int>(parse_integer(w, t, -1, kMaxInt));
     }},
    {"--presence-penalty", "X", "subtracted from the logit of a token seen before; 0: off",
     [](SamplingOptions& o, Where w, const std::string& t) {
         o.presence_penalty = number(w, t, -100, 100);
     }},
    {"--frequency-penalty", "X", "subtracted once for every time that it was seen; 0: off",
     [](SamplingOptions& o, Where w, const std::string& t) {
         o.frequency_penalty = number(w, t, -100, 100);
     }},
    {"--logit-bias", "ID(+/-)BIAS", "added to a logit, as in 15043+1 or 15043-inf; repeatable",
     [](SamplingOptions& o, Where w, const std::string& t) {
         for (const auto& bias : parse_logit_bias(w, t)) o.logit_bias.push_back(bias);
     }},
};

std::string listed(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}

std::string_view long_name(const SamplingOption& option) {
    std::string_view names = option.names;
    return names.substr(names.rfind("--") + 2);
}

}  // namespace

std::string known_checkpoints() {
    return listed(checkpoint_names(OpenOptions().device));
}

void add_model_option(CommandLine& line, std::string& model) {
    line.name("-m,--model", "MODEL", kModelHelp, model, [] { return std::string(kModelHelp); });
}

void need_model(std::string_view command, const std::string& model) {
    if (!model.empty()) return;
    throw Error(ErrorKind::kUsage, "{}: no model: give -m MODEL, {}", command, kModelHelp);
}

void add_model_options(CommandLine& line, OpenOptions& open, std::string_view context_help) {
    line.section("Model");
    add_model_option(line, open.model);
    line.value("-c,--ctx-size", "N", std::string(context_help),
               [&open](Where where, const std::string& text) {
                   open.n_ctx = parse_integer(where, text, 0, kMaxInt);
               });
    add_threads_option(line, open);
    add_cache_type_options(line, open);
    add_device_options(line, open);
    line.name("--checkpoint", "NAME", "stop at this entry of the device's list of kernels",
              open.checkpoint, [] { return "one of " + known_checkpoints(); });
    add_pre_option(line, open.pre);
}

void add_pre_option(CommandLine& line, std::string& pre) {
    line.name("--pre", "NAME", "pre-tokenizer, in place of the one that the file names", pre,
              [] { return std::string("the name of a pre-tokenizer"); });
}

void add_threads_option(CommandLine& line, OpenOptions& open) {
    line.value("-t,--threads", "N",
               "threads, 1 to 1024; default: the physical cores that this process may use",
               [&open](Where where, const std::string& text) {
                   open.n_threads = static_cast<int>(parse_integer(where, text, 1, 1024));
               });
}

void add_integer_option(CommandLine& line, std::string_view names, std::string help,
                        int64_t& target, int64_t min, int64_t max) {
    line.value(names, "N", std::move(help),
               [&target, min, max](Where where, const std::string& text) {
                   target = parse_integer(where, text, min, max);
               });
}

void add_integers_option(CommandLine& line, std::string_view names, std::string help,
                         std::vector<int64_t>& targets, int64_t min, int64_t max) {
    line.value(names, "LIST", std::move(help),
               [&targets, min, max](Where where, const std::string& text) {
                   targets = parse_integers(where, text, min, max);
               });
}

void add_step_options(CommandLine& line, int64_t& n_prompt, int64_t& n_depth, int64_t& n_parallel) {
    constexpr int64_t kMaxPrompt = 65536, kMaxDepth = int64_t{1} << 24, kMaxParallel = 256;
    add_integer_option(line, "-p,--n-prompt",
                       "tokens of a prompt's step, from position 0 on; 0: none (default: 512)",
                       n_prompt, 0, kMaxPrompt);
    add_integer_option(line, "-d,--n-depth",
                       "positions that the cache holds before a decode step (default: 128)",
                       n_depth, 0, kMaxDepth);
    add_integer_option(line, "-B,--n-parallel", "sequences of a decode step (default: 1)",
                       n_parallel, 1, kMaxParallel);
}

std::vector<std::string> expanded_checkpoints(const std::vector<std::string>& asked,
                                              const std::string& device) {
    const std::vector<std::string> known = checkpoint_names(device);
    std::vector<std::string> names;
    for (const std::string& name : asked) {
        if (name == "all") {
            names.insert(names.end(), known.begin(), known.end());
        } else {
            names.push_back(name.empty() ? name : parse_choice("--checkpoint", name, known));
        }
    }
    return names;
}

void add_device_options(CommandLine& line, OpenOptions& open) {
    line.flag("--pin", "keep each thread, the one that calls included, on a core of its own",
              open.pin);
    line.name("--device", "NAME",
              "device that runs the model: cpu, cuda:N, or auto, the first GPU that can be used, "
              "else the CPU (default: auto)",
              open.device, expected_devices);
    line.value("--device-memory", "GB",
               "of the device's memory, what weights and the KV cache may take at the most",
               [&open](Where where, const std::string& text) {
                   constexpr double kMaxGb = 1e6;
                   open.memory_bytes =
                       static_cast<uint64_t>(1e9 * parse_number(where, text, 0.001, kMaxGb));
               });
    line.flag("--stream-weights",
              "keep no layer's weights in the device's memory: they come from the host's before "
              "each is computed, as those do that do not fit",
              open.stream_weights);
    line.name(
        "--cpu-isa", "NAME",
        "instruction set of the CPU's kernels: scalar, avx2, avx512, amx or neon (default: the "
        "best that the machine has)",
        open.cpu_isa, [] { return "one of " + known_cpu_isas(); });
    line.flag(
        "--no-repack",
        "leave weights where the file maps them: they are packed for each step, which is slow, "
        "but nothing is copied at the start",
        open.no_repack);
    add_tuning_option(line, open);
}

void set_tuning_folder(OpenOptions& open) {
    const std::string folder = cache_folder();
    if (!folder.empty()) open.tuning_folder = folder + "/tuning";
    open.build = std::string(build_info().version);
    if (!build_info().commit.empty()) open.build += fmt::format(" {}", build_info().commit);
}

void add_tuning_option(CommandLine& line, OpenOptions& open) {
    set_tuning_folder(open);
    line.flag("--no-tuning", "run without what ridge tune has chosen for this device",
              open.no_tuning);
}

void add_cache_type_options(CommandLine& line, OpenOptions& open) {
    for (auto [names, target] : {std::pair("-ctk,--cache-type-k", &open.cache_type_k),
                                 std::pair("-ctv,--cache-type-v", &open.cache_type_v)}) {
        line.value(names, "TYPE",
                   names[3] == 'k' ? "type of the cached keys: f32, f16 (default), bf16 or q8_0"
                                   : "type of the cached values: f32, f16 (default), bf16 or q8_0",
                   [target = target](Where where, const std::string& text) {
                       *target = parse_choice(where, text, {"f32", "f16", "bf16", "q8_0"});
                   });
    }
}

bool SamplingOptions::set(std::string_view name, Where where, const std::string& text) {
    for (const SamplingOption& option : kSampling) {
        if (long_name(option) != name) continue;
        option.set(*this, where, text);
        return true;
    }
    return false;
}

void SamplingOptions::apply(SampleParams& params, int n_vocab, Where where) const {
    if (greedy) params.temperature = 0;
    if (temperature && !greedy) params.temperature = *temperature;
    if (top_k) params.top_k = *top_k;
    if (top_p) params.top_p = *top_p;
    if (min_p) params.min_p = *min_p;
    if (repeat_penalty) params.repeat_penalty = *repeat_penalty;
    if (presence_penalty) params.presence_penalty = *presence_penalty;
    if (frequency_penalty) params.frequency_penalty = *frequency_penalty;
    if (penalty_last_n) params.penalty_last_n = *penalty_last_n;
    if (seed) params.seed = *seed;
    for (const auto& [id, bias] : logit_bias) {
        if (id >= n_vocab) {
            throw Error(ErrorKind::kUsage, "{} {}: not in the vocabulary, expected an id below {}",
                        where, id, n_vocab);
        }
        params.logit_bias.emplace_back(id, bias);
    }
}

void add_sampling_options(CommandLine& line, SamplingOptions& options) {
    line.section("Sampling (defaults: the model file's, else those in docs/commands.md)");
    for (const SamplingOption& option : kSampling) {
        line.value(option.names, option.kind, option.help,
                   [&options, set = option.set](Where where, const std::string& text) {
                       set(options, where, text);
                   });
    }
    line.flag("--greedy", "the same as --temp 0", options.greedy);
    line.at_most_one({"--greedy", "--temp"});
}

std::vector<std::string> list_sampling(const SampleParams& params) {
    std::string biases;
    for (const auto& [id, bias] : params.logit_bias)
        biases += fmt::format("{}{}{:+}", biases.empty() ? "" : ",", id, bias);
    return {
        fmt::format("seed {}", params.seed),
        fmt::format("temp {}", params.temperature),
        fmt::format("top-k {}", params.top_k),
        fmt::format("top-p {}", params.top_p),
        fmt::format("min-p {}", params.min_p),
        fmt::format("repeat-penalty {}", params.repeat_penalty),
        fmt::format("repeat-last-n {}", params.penalty_last_n),
        fmt::format("presence-penalty {}", params.presence_penalty),
        fmt::format("frequency-penalty {}", params.frequency_penalty),
        "logit-bias " + (biases.empty() ? "none" : biases),
    };
}

std::optional<bool> AnswerOptions::thinking() const {
    if (think) return true;
    if (no_think) return false;
    return std::nullopt;
}

void add_stop_options(CommandLine& line, AnswerOptions& options) {
    line.section("Ending");
    line.value("-n,--n-predict", "N",
               "tokens to generate; -1 (default): until an end or a full context",
               [&options](Where where, const std::string& text) {
                   options.n_predict = parse_integer(where, text, -1, kMaxInt);
               });
    line.value("--stop", "TEXT", "end before this text; repeatable",
               [&options](Where where, const std::string& text) {
                   if (text.empty()) {
                       throw Error(ErrorKind::kUsage, "{} \"\": expected a text to stop before",
                                   where);
                   }
                   options.stops.push_back(text);
               });
    line.flag("--ignore-eos", "go on past the model's end tokens", options.ignore_eos);
}

void add_chat_options(CommandLine& line, AnswerOptions& options) {
    line.section("Conversation");
    line.value("-sys,--system-prompt", "TEXT", "system message at the head of the conversation",
               [&options](Where, const std::string& text) {
                   options.system_prompt = text;
                   options.has_system_prompt = true;
               });
    line.flag("--think,--thinking", "ask for thinking, where the template can", options.think);
    line.flag("--no-think,--no-thinking", "ask for no thinking, where the template can",
              options.no_think);
    line.value("--date", "YYYY-MM-DD", "day that templates are told; default: today",
               [&options](Where where, const std::string& text) {
                   options.date = parse_date(where, text);
               });
    line.at_most_one({"--thinking", "--no-thinking"});
}

void add_quiet_option(CommandLine& line, bool& quiet) {
    line.flag("-q,--quiet", "nothing on standard error but errors, as in any case here", quiet);
}

void add_template_options(CommandLine& line, std::string& name, std::string& file) {
    line.value(
        "--chat-template", "NAME", "a built-in template: llama3, qwen3, chatml, llama2, zephyr",
        [&name](Where where, const std::string& text) {
            name = parse_choice(where, text, {"llama3", "qwen3", "chatml", "llama2", "zephyr"});
        });
    line.name("--chat-template-file", "FILE", "a Jinja template, in place of the model's", file);
    line.at_most_one({"--chat-template", "--chat-template-file"});
}

}  // namespace ridge
