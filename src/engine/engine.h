#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/batch.h"
#include "model/config.h"
#include "model/fallback.h"
#include "model/rows.h"
#include "model/sample_params.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace ridge {

// The public face of Ridge: open a model, keep sequences, generate text. Everything here throws
// Error.

constexpr int64_t kDefaultContext = 8192;  // at most, where -c does not say

// A device of this machine, or a kind of device of which there is none.
struct DeviceInfo {
    std::string device;         // as --device names it: "cpu", "cuda:0"
    std::string name;           // "NVIDIA H200"
    uint64_t memory_bytes = 0;  // of its own; 0: the system's
    uint64_t free_bytes = 0;    // 0: unknown
    std::string unusable;       // why Ridge cannot run on it; empty: it can
};
std::vector<DeviceInfo> find_devices();
std::vector<std::string> device_names();  // of those that can be used
std::string expected_devices();           // how an error calls what OpenOptions::device may be
// Instruction sets that the CPU's kernels are written for, as far as this machine has them, the
// best last: "scalar", "avx2", "avx512".
std::vector<std::string> cpu_isa_names();
std::string known_cpu_isas();  // all names, as "scalar, avx2"
// Names of a device's checkpoints, in their order; Error for an unknown device.
std::vector<std::string> checkpoint_names(const std::string& device);
// "f32", "f16", "bf16", "q8_0"; `flag` names the option in the error for anything else.
DType read_cache_type(std::string_view flag, std::string_view name);
// The context that -c asks for (0: the default) of a model; Error beyond what it was made for.
int64_t choose_context(int64_t n_ctx, const Config& config);

// How to open a model. Every field has a usable default but `model`.
struct OpenOptions {
    std::string model;  // a GGUF file, a folder with safetensors, or synth:NAME:FORMAT
    int64_t n_ctx = 0;  // positions of context; 0: the smaller of the model's and 8,192
    int n_threads = 0;  // 0: the physical cores that affinity and the cgroup allow
    bool pin = false;   // keep thread i on the i-th of these cores; see ThreadPool
    std::string cache_type_k = "f16", cache_type_v = "f16";  // or f32, bf16, q8_0
    std::string device =
        "auto";                 // a device's name, or the first GPU that can be used, else the CPU
    std::string cpu_isa;        // cap on the CPU's instruction set: "avx2"; empty: the best it has
    uint64_t memory_bytes = 0;  // that weights and the KV cache may take; 0: what the system has
    bool stream_weights = false;  // on a device with memory of its own: no layer stays there
    bool no_repack = false;       // weights stay where the file maps them, in place of being packed
    std::string checkpoint;       // empty: the last of the device's list
    std::string pre;              // pre-tokenizer, in place of the file's
    std::string chat_template;    // name of a built-in template, in place of the file's
    std::string chat_template_file;
    uint64_t synth_seed = 1;
    // Where choices of `ridge tune` lie, which count where they were made for this device, and by
    // this `build` of the program. Empty: none are looked for.
    std::string tuning_folder, build;
    bool no_tuning = false;  // nor is the folder looked into
};

// Called with what is being done and how far it is, 0..1.
using Progress = std::function<void(std::string_view what, double share)>;

// Layers whose weights come to the device anew in each step.
struct StreamInfo {
    int n_layers = 0;           // 0: all weights are in the device's memory
    int64_t bytes_a_step = 0;   // that come
    double resident_share = 1;  // of the weights' bytes that are in the device's memory
    std::string reason;         // why; one line
};

// Choices of `ridge tune` that the engine runs with. No result depends on them.
struct TuningInfo {
    int n_choices = 0, n_changes = 0;  // for calls of any model; those that change something
    std::string time;                  // when they were made: "2026-11-30T14:05:11Z"; or empty
    std::string ignored;               // why others, which are there, are not used; one line
};

struct ModelInfo {
    std::string path, name, architecture,
        format;  // format: the commonest of the weights', "Q4_K" or "Q4_K + Q6_K"
    uint64_t file_bytes = 0;
    int64_t n_parameters = 0;
    int64_t weight_bytes = 0;            // of all weights
    int64_t weight_bytes_per_token = 0;  // of them one decode step needs
    int64_t memory_bytes_per_token = 0;  // the same as they lie in memory: what it reads
    int64_t kv_bytes_per_position = 0;
    int64_t n_ctx = 0, n_ctx_train = 0;
    int n_threads = 0;
    int n_step_rows = 0;  // of a prompt's step, at most: memory of steps is planned for as many
    std::string device, checkpoint;
    std::string device_reason;  // what is to be told of how "auto" chose the device; or empty
    StreamInfo stream;
    int64_t device_bytes = 0;    // of its own memory, what weights, cache and steps take; 0: the
                                 // device has none
    std::string isa = "scalar";  // instruction set of the kernels that run
    TuningInfo tuning;
    std::vector<Fallback> fallbacks;         // where kernels below the checkpoint's run, and why
    std::string gpu, driver, runtime;        // "NVIDIA H200", "580.159.04", "CUDA 13.0"; or empty
    int gpu_sm_mhz = 0, gpu_memory_mhz = 0;  // its highest clocks; 0: unknown
    double load_ms = 0;
};

// Tokens whose keys and values are in the cache: a conversation, or one prompt and its answer. The
// cache holds one sequence; the tokens of another that was used before are computed again when its
// turn comes back.
class Sequence {
  public:
    Sequence(Sequence&&) = default;
    Sequence& operator=(Sequence&&) = default;

    const std::vector<Token>& tokens() const { return tokens_; }
    void clear() { tokens_.clear(); }

  private:
    friend class Engine;
    Sequence(const void* engine, uint64_t id) : engine_(engine), id_(id) {}

    std::vector<Token> tokens_;
    const void* engine_;  // the one that made it
    uint64_t id_;
};

enum class StopReason { kEndToken, kStopString, kLength, kContextFull, kCancelled };
std::string_view to_string(StopReason reason);  // "end", "stop", "length", "context", "cancelled"

struct Request {
    std::vector<Token>
        prompt;  // whole: what it shares with the sequence's tokens is not computed again
    SampleParams sampling;
    int64_t n_predict = -1;           // -1: until the model ends or the context is full
    std::vector<std::string> stops;   // generation ends before any of these
    std::vector<Token> end_tokens;    // beyond the model's own
    bool ignore_eos = false;          // end tokens are tokens like any other
    bool show_special = false;        // control tokens appear in the text
    std::function<bool()> cancelled;  // asked before each step, and each stage of its layers
    Progress prompt_progress;
};

// One drawn token, and the text that may be shown because of it: held back while a character or a
// possible stop string is incomplete, and never half a character. What was still held back when the
// answer ended comes in a last event of token -1.
struct TokenEvent {
    Token token;
    std::string_view text;
    const Sampled* sampled;  // log probabilities, where they were asked for
};

struct Generation {
    std::vector<Token> tokens;  // drawn, an end token excluded
    std::string text;
    StopReason reason = StopReason::kLength;
    std::string stop;        // the stop string, or the end token's text
    int64_t n_prompt = 0;    // tokens of the prompt
    int64_t n_computed = 0;  // of these, computed in prompt_ms
    int64_t n_reused = 0;    // of these, already in the cache
    double prompt_ms = 0, generate_ms = 0;
    int64_t n_steps = 0;  // decode steps within generate_ms: the first token is the prompt's

    bool prompt_is_whole() const { return n_computed + n_reused == n_prompt; }  // not cancelled
};

// What evaluate() gives logits of, and by which kernels.
struct EvaluateOptions {
    int64_t n_without = 0;  // tokens at the front whose logits nobody wants: they cost less
    // kDecode: a step for each token, as generate() computes the ones that it has drawn.
    RowClass row_class = RowClass::kPrompt;
    std::function<bool()> cancelled = {};  // as of a Request
};

class Engine {
  public:
    // `check` is called before the weights are touched, and may throw: config(), the tokenizer, the
    // chat template and default_sampling() are there, and of info() path, n_ctx and n_ctx_train.
    static std::unique_ptr<Engine> open(const OpenOptions& options, const Progress& progress = {},
                                        const std::function<void(const Engine&)>& check = {});
    ~Engine();

    const ModelInfo& info() const;
    const Config& config() const;
    bool has_tokenizer() const;          // a model without one takes prompts as ids
    const Tokenizer& tokenizer() const;  // Error where it has none
    // Null where neither the file nor the options have one; compiled when it is first asked for.
    const ChatTemplate* chat_template() const;
    SampleParams default_sampling() const;  // the file's own wishes over documented values

    Sequence new_sequence();

    // Computes the prompt and draws tokens until something stops it. Error: prompt longer than the
    // context.
    Generation generate(Sequence& sequence, const Request& request,
                        const std::function<void(const TokenEvent&)>& on_token = {});

    // Logits of the tokens after the first options.n_without, computed after what the sequence
    // holds: visit(position, logits [n_vocab]). False where it was cancelled before the end.
    bool evaluate(Sequence& sequence, std::span<const Token> tokens,
                  const std::function<void(int64_t, std::span<const float>)>& visit,
                  const EvaluateOptions& options = {});

    // Measured now, in some 50 ms: tokens a second at which this machine can read weights and KV at
    // this depth, and bring what is streamed.
    double bound_tok_s(int64_t n_positions);

    struct Impl;

  private:
    friend class BenchSession;  // runs steps of its own on the opened model
    Engine();
    std::unique_ptr<Impl> impl_;
};

}  // namespace ridge
