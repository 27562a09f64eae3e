#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "model/backend.h"
#include "model/tuning.h"

namespace ridge {

constexpr int64_t kFirstStepRows = 32;  // of the first step of a prompt, and at least
constexpr double kStepMs = 500;         // a prompt step aims at
constexpr int kMaxStepLogitRows = 16;   // rows of a prompt step that may want logits

// What an engine is opened for, beside its options.
struct Capacity {
    // Of the KV cache, however long a context the model was made for; 0: the context's.
    int64_t n_slots = 0;
    int n_step_rows = 0;  // of a prompt's step; 0: as many as the backend is fast with
    int n_logit_rows = kMaxStepLogitRows;  // of a step
    WrapBackend wrap_backend{};            // for tests
};

struct Engine::Impl {
    std::unique_ptr<ModelFile> file;
    std::optional<Tokenizer> tokenizer;
    std::optional<ChatTemplate> chat_template;  // once it has been asked for
    OpenOptions options;
    std::vector<Token> end_tokens;
    SampleParams default_sampling;
    std::unique_ptr<Backend> backend;
    Tuning tuning;  // the model's tables point to it
    Model model;
    KvCache kv;
    ModelInfo info;

    uint64_t n_sequences = 0;  // made so far
    uint64_t cached = 0;       // id of the sequence that the cache holds

    static std::unique_ptr<Engine> open(const OpenOptions& options, const Capacity& capacity,
                                        const Progress& progress,
                                        const std::function<void(const Engine&)>& check);

    // Empties the sequence where the cache holds another one by now.
    void claim_cache(Sequence& sequence);

    // A step of the backend, and what it gives; errors name the model.
    Ticket start(const Batch& batch) const;
    StepResult wait(Ticket ticket) const;
    void check_tokens(std::span<const Token> tokens) const;
    void check_sampling(const SampleParams& sampling) const;
};

// The file's own wishes (general.sampling.* of GGUF, generation_config.json) over the documented
// values.
SampleParams read_default_sampling(const ModelFile& file);

}  // namespace ridge
