#include "cmd/answer.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/printable.h"
#include "base/system.h"
#include "cmd/fallbacks.h"
#include "text/chat_template.h"

namespace ridge {
namespace {

constexpr size_t kLongPrompt = 256;      // tokens from which on progress is shown
constexpr size_t kUsualPieceBytes = 16;  // a text of so many bytes a position may well fit

double rate(int64_t n, double ms) {
    return ms > 0 ? static_cast<double>(n) * 1e3 / ms : 0;
}

std::string advice_on_context(const ModelInfo& info) {
    if (info.n_ctx >= info.n_ctx_train) return {};
    return fmt::format(" or a larger -c (the model was made for {})", info.n_ctx_train);
}

}  // namespace

std::unique_ptr<Engine> open_engine(const OpenOptions& options, bool quiet,
                                    const std::function<void(const Engine&)>& check) {
    catch_interrupts();
    StatusLine status(!quiet);
    std::unique_ptr<Engine> engine = Engine::open(
        options,
        [&](std::string_view what, double share) {
            stop_if_interrupted();
            status.show(what, share);
        },
        check);
    stop_if_interrupted();
    if (!quiet) {
        status.clear();
        for (const std::string& line : lines_of_device(engine->info())) say(line);
    }
    return engine;
}

std::vector<std::string> lines_of_device(const ModelInfo& info) {
    std::vector<std::string> lines;
    for (const std::string& line : {info.device_reason, info.stream.reason, info.tuning.ignored}) {
        if (!line.empty()) lines.push_back(printable(line));
    }
    return lines;
}

SampleParams sampling_of(const Engine& engine, const SamplingOptions& options) {
    SampleParams params = engine.default_sampling();
    params.seed = random_seed();
    options.apply(params, engine.config().n_vocab);
    return params;
}

std::vector<Token> chat_prompt(const Engine& engine, const Conversation& conversation,
                               const AnswerOptions& options) {
    const ChatTemplate* chat_template = engine.chat_template();
    if (chat_template == nullptr) {
        throw Error(
            "{}: has no chat template; name one with --chat-template, or continue plain "
            "text with run --raw",
            printable(engine.info().path));
    }
    ChatInput input;
    input.messages = conversation.messages();
    input.add_generation_prompt = true;
    input.enable_thinking = options.thinking();
    input.date = options.date;
    std::vector<RenderedSpan> rendered = chat_template->render(input);
    std::vector<TextSpan> spans;
    size_t n_bytes = 0;
    for (const RenderedSpan& span : rendered) {
        spans.push_back({span.text, span.trusted});
        n_bytes += span.text.size();
    }
    check_text_fits(engine, n_bytes);
    return engine.tokenizer().encode(spans);
}

void check_text_fits(const Engine& engine, size_t n_bytes) {
    const ModelInfo& info = engine.info();
    auto n_ctx = static_cast<size_t>(info.n_ctx);
    if (n_bytes <= n_ctx * kUsualPieceBytes) return;
    // The limit is not exact, so it is generous: normalisation may shorten a text.
    size_t longest = kUsualPieceBytes;
    for (Token token = 0; token < engine.tokenizer().n_vocab(); token++)
        longest = std::max(longest, engine.tokenizer().piece(token).size());
    if (n_bytes / 4 <= n_ctx * longest) return;
    throw Error(
        "the prompt is {} bytes and the context holds {} tokens; it needs a shorter prompt{}",
        n_bytes, info.n_ctx, advice_on_context(info));
}

void check_prompt_fits(const Engine& engine, size_t n_tokens) {
    const ModelInfo& info = engine.info();
    if (n_tokens <= static_cast<size_t>(info.n_ctx)) return;
    throw Error("the prompt is {} tokens and the context holds {}; it needs a shorter prompt{}",
                n_tokens, info.n_ctx, advice_on_context(info));
}

AnswerWriter::AnswerWriter(Output& output, StatusLine& status, const Engine& engine)
    : output_(output), status_(status), engine_(engine) {
    const char* no_color = std::getenv("NO_COLOR");
    styled_ = output.is_terminal() && (no_color == nullptr || no_color[0] == 0);
}

// Where finish() has not been called an error has come, maybe that of standard output itself. What
// is said of it begins a line of its own.
AnswerWriter::~AnswerWriter() {
    if (!dimmed_ && last_ == '\n') return;
    try {
        finish(output_.is_terminal());
    } catch (...) {  // there is no terminal any more
    }
}

void AnswerWriter::show(std::string_view text) {
    if (text.empty()) return;
    output_.write_untrusted(text);
    last_ = text.back();
}

void AnswerWriter::write(const TokenEvent& event) {
    status_.clear();
    std::string_view piece;
    if (styled_ && event.token >= 0) piece = engine_.tokenizer().piece(event.token);
    if (piece == "<think>") dimmed_ = true, output_.write("\x1b[2m");
    show(event.text);
    if (piece == "</think>" && dimmed_) output_.write("\x1b[0m"), dimmed_ = false;
    output_.flush();
}

void AnswerWriter::finish(bool end_line) {
    if (dimmed_) output_.write("\x1b[0m"), dimmed_ = false;
    if (end_line && last_ != '\n') output_.write("\n");
    output_.flush();
    last_ = '\n';
}

Generation answer(Engine& engine, Sequence& sequence, Request& request, StatusLine& status,
                  const std::function<void(const TokenEvent&)>& on_token) {
    request.cancelled = interrupted;
    request.prompt_progress = [&](std::string_view what, double share) {
        if (request.prompt.size() >= kLongPrompt) status.show(what, share);
    };
    Generation generation = engine.generate(sequence, request, on_token);
    status.clear();
    return generation;
}

AnswerStats measure(Engine& engine, const Generation& generation) {
    AnswerStats stats;
    // Of a prompt that was cancelled, part of the time went into a step that counts for nothing.
    if (generation.prompt_is_whole())
        stats.prompt_tok_s = rate(generation.n_computed, generation.prompt_ms);
    stats.generate_tok_s = rate(generation.n_steps, generation.generate_ms);
    if (generation.n_steps > 0) {
        // At the depth at which the cache was in the middle of the answer.
        stats.bound_tok_s = engine.bound_tok_s(generation.n_prompt + generation.n_steps / 2);
        if (stats.bound_tok_s > 0) stats.bound_share = stats.generate_tok_s / stats.bound_tok_s;
    }
    return stats;
}

std::string stats_line(const ModelInfo& info, const Generation& generation,
                       const AnswerStats& stats, const SampleParams& sampling) {
    auto rate_text = [](double tok_s) {
        return tok_s > 0 ? fmt::format(", {:.1f} tok/s", tok_s) : std::string();
    };
    std::string prompt = counted(generation.n_prompt, "token");
    if (!generation.prompt_is_whole())
        prompt = fmt::format("{} of {}", generation.n_reused + generation.n_computed, prompt);
    std::string reused = generation.n_reused > 0
                             ? fmt::format(" ({} of them kept)", generation.n_reused)
                             : std::string();
    std::string bound =
        stats.bound_tok_s > 0
            ? fmt::format(", {:.0f}% of the {:.1f} tok/s that {} allows", 100 * stats.bound_share,
                          stats.bound_tok_s, info.stream.bytes_a_step > 0 ? "the link" : "memory")
            : std::string();
    std::string stop = generation.stop.empty()
                           ? std::string()
                           : fmt::format(" \"{}\"", printable(generation.stop, 40));
    std::string fallbacks = info.fallbacks.empty()
                                ? std::string()
                                : fmt::format(" (but {})", fallbacks_text(info.fallbacks));
    return fmt::format(
        "load {:.0f} ms | prompt {}{} in {:.0f} ms{} | generated {} in {:.0f} ms{}{} | {} on {}{}, "
        "{}{} | peak memory {:.0f} MB | stop: {}{} | seed {}",
        info.load_ms, prompt, reused, generation.prompt_ms, rate_text(stats.prompt_tok_s),
        counted(static_cast<int64_t>(generation.tokens.size()), "token"), generation.generate_ms,
        rate_text(stats.generate_tok_s), bound, info.checkpoint, info.isa, fallbacks,
        counted(info.n_threads, "thread"), info.tuning.n_choices > 0 ? ", tuned" : "",
        static_cast<double>(peak_memory_bytes()) * 1e-6, to_string(generation.reason), stop,
        sampling.seed);
}

std::string context_full_line(const ModelInfo& info) {
    return fmt::format(
        "the context of {} positions is full and the answer was cut; it needs a shorter "
        "conversation{}",
        info.n_ctx, advice_on_context(info));
}

}  // namespace ridge
