#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cmd/command_line.h"
#include "engine/engine.h"

namespace ridge {

// Options that several commands share, so that each has one name and one meaning everywhere.

// -m and how to open it.
void add_model_options(
    CommandLine& line, OpenOptions& open,
    std::string_view context_help = "positions of context; 0 (default): the model's, at most 8192");
// "ref, plain, ...": of the default device, for errors.
std::string known_checkpoints();
// -m alone, with what is said of it: for commands that do not run the model.
void add_model_option(CommandLine& line, std::string& model);
void add_pre_option(CommandLine& line, std::string& pre);
void add_threads_option(CommandLine& line, OpenOptions& open);  // -t
// A whole number from `min` to `max`.
void add_integer_option(CommandLine& line, std::string_view names, std::string help,
                        int64_t& target, int64_t min, int64_t max);
// The same for several, with commas between.
void add_integers_option(CommandLine& line, std::string_view names, std::string help,
                         std::vector<int64_t>& targets, int64_t min, int64_t max);
// -p, -d and -B of commands that look into one step; the targets hold the defaults.
void add_step_options(CommandLine& line, int64_t& n_prompt, int64_t& n_depth, int64_t& n_parallel);
// The names with "all" in place of which each of the device's stands; an empty one, the last of
// them, stays. Error(kUsage) for one that the device does not have.
std::vector<std::string> expanded_checkpoints(const std::vector<std::string>& asked,
                                              const std::string& device);
// --device, and how it works: --pin, --device-memory, --stream-weights, --cpu-isa, --no-repack.
void add_device_options(CommandLine& line, OpenOptions& open);
// Where choices of `ridge tune` lie.
void set_tuning_folder(OpenOptions& open);
// --no-tuning, and where choices of `ridge tune` lie otherwise; one of the above.
void add_tuning_option(CommandLine& line, OpenOptions& open);
// -ctk and -ctv.
void add_cache_type_options(CommandLine& line, OpenOptions& open);
// Error(kUsage) where -m was not given.
void need_model(std::string_view command, const std::string& model);

// What was asked of the sampler. What was not asked stays as the model's file says, or else as
// SampleParams has it.
struct SamplingOptions {
    std::optional<float> temperature, top_p, min_p;
    std::optional<float> repeat_penalty, presence_penalty, frequency_penalty;
    std::optional<int> top_k, penalty_last_n;
    std::optional<uint64_t> seed;  // empty: drawn
    std::vector<std::pair<Token, float>> logit_bias;
    bool greedy = false;  // temperature 0

    // By the option's long name without dashes ("top-k"); false where there is none of this name.
    bool set(std::string_view name, Where where, const std::string& text);
    // Error(kUsage) where a biased id is not in the vocabulary; `where` is what gave it.
    void apply(SampleParams& params, int n_vocab, Where where = "--logit-bias") const;
};
void add_sampling_options(CommandLine& line, SamplingOptions& options);
// "temp 0.8", "top-k 40", ...: one line a parameter, as set() takes them; "logit-bias none" where
// there is none.
std::vector<std::string> list_sampling(const SampleParams& params);

// When an answer ends, and how a conversation is put to the model.
struct AnswerOptions {
    int64_t n_predict = -1;
    std::vector<std::string> stops;
    bool ignore_eos = false, special = false;
    std::string system_prompt;
    bool has_system_prompt = false;
    bool think = false, no_think = false;
    std::string date;  // YYYY-MM-DD; empty: today

    std::optional<bool> thinking() const;  // empty: as the template has it
};
void add_stop_options(CommandLine& line, AnswerOptions& options);
void add_chat_options(CommandLine& line, AnswerOptions& options);

// -q, for commands that say nothing beside their results and errors in any case.
void add_quiet_option(CommandLine& line, bool& quiet);

// --chat-template and --chat-template-file; each excludes the other.
void add_template_options(CommandLine& line, std::string& name, std::string& file);

}  // namespace ridge
