#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cmd/conversation.h"
#include "cmd/options.h"
#include "cmd/output.h"
#include "engine/engine.h"

namespace ridge {

// What run and chat do alike: open a model, put a conversation to it, show the answer.

// Opens the model with its progress on standard error; `check` is that of Engine::open().
// Interrupted where a signal asked to end meanwhile.
std::unique_ptr<Engine> open_engine(const OpenOptions& options, bool quiet,
                                    const std::function<void(const Engine&)>& check = {});
// What is to be told of the device that "auto" chose, and of layers that are streamed: a line each.
std::vector<std::string> lines_of_device(const ModelInfo& info);

// The file's sampling with what was asked over it; a seed is drawn where none was asked.
SampleParams sampling_of(const Engine& engine, const SamplingOptions& options);

// The conversation by the model's chat template, as tokens. Error where there is no template.
std::vector<Token> chat_prompt(const Engine& engine, const Conversation& conversation,
                               const AnswerOptions& options);

// Error, before time goes into tokens, where a text of so many bytes is longer than any that fits
// into the context.
void check_text_fits(const Engine& engine, size_t n_bytes);
// Error, in one line with the numbers and what helps, where the prompt is longer than the context.
void check_prompt_fits(const Engine& engine, size_t n_tokens);

// Writes an answer to standard output as it comes. On a terminal, thinking is dimmed; what comes
// after the writer never is, and where an error ended the answer it begins a line.
class AnswerWriter {
  public:
    AnswerWriter(Output& output, StatusLine& status, const Engine& engine);
    ~AnswerWriter();
    AnswerWriter(const AnswerWriter&) = delete;
    AnswerWriter& operator=(const AnswerWriter&) = delete;

    void write(const TokenEvent& event);
    void finish(bool end_line);  // with `end_line` the answer ends in a newline, added if need be

  private:
    void show(std::string_view text);

    Output& output_;
    StatusLine& status_;
    const Engine& engine_;
    bool styled_, dimmed_ = false;
    char last_ = '\n';
};

// Draws an answer to request.prompt; Ctrl-C ends it. The prompt's progress is shown if it is long.
Generation answer(Engine& engine, Sequence& sequence, Request& request, StatusLine& status,
                  const std::function<void(const TokenEvent&)>& on_token);

// Rates and shares of one answer. A rate is 0 where there is none: of a prompt that was cancelled,
// and of an answer without a decode step, which has at most the token that the prompt's own gave.
struct AnswerStats {
    double prompt_tok_s = 0, generate_tok_s = 0;
    double bound_tok_s = 0, bound_share = 0;  // 0 where nothing was generated
};
AnswerStats measure(Engine& engine, const Generation& generation);

// The one line at the end of an answer.
std::string stats_line(const ModelInfo& info, const Generation& generation,
                       const AnswerStats& stats, const SampleParams& sampling);

// What to say, and do, where the context ended the answer.
std::string context_full_line(const ModelInfo& info);

}  // namespace ridge
