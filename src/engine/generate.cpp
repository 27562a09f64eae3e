#include <algorithm>
#include <exception>
#include <limits>

#include "base/error.h"
#include "base/printable.h"
#include "base/timer.h"
#include "engine/sequence_steps.h"
#include "text/text_stream.h"

namespace ridge {
namespace {

// The text of an answer as it grows: characters are made whole, stop strings held back and found.
class AnswerText {
  public:
    AnswerText(const Tokenizer* tokenizer, const Request& request)
        : tokenizer_(tokenizer), show_special_(request.show_special), stops_(request.stops) {}

    // What may be shown because of one more token.
    std::string push(Token token) {
        if (tokenizer_ == nullptr || token >= tokenizer_->n_vocab()) return {};
        if (!show_special_ && tokenizer_->is_control(token)) return {};
        return keep(stops_.push(stream_.push(tokenizer_->piece(token))));
    }
    // What is left when nothing more comes.
    std::string finish() {
        std::string text = stops_.stopped() ? std::string() : stops_.push(stream_.finish());
        return keep(text + (stops_.stopped() ? std::string() : stops_.finish()));
    }
    bool stopped() const { return stops_.stopped(); }
    std::string stop() const { return stops_.stop(); }
    const std::string& all() const { return all_; }

  private:
    std::string keep(std::string text) {
        all_ += text;
        return text;
    }

    const Tokenizer* tokenizer_;
    bool show_special_;
    TextStream stream_;
    StopMatcher stops_;
    std::string all_;
};

// Rows of the steps of a prompt, which are to take about half a second each, so that a request to
// stop is heard on a slow machine too; where a prompt is cut changes no result.
class StepSize {
  public:
    explicit StepSize(int n_most) : n_most_(n_most), n_rows_(std::min(kFirstStepRows, n_most_)) {}

    int64_t rows_of(int64_t n_left) const { return std::min(n_rows_, n_left); }
    void took(int64_t n, double ms) {
        if (n < n_rows_) return;
        double growth = kStepMs / std::max(ms, 1.0);
        n_rows_ = std::clamp<int64_t>(static_cast<int64_t>(static_cast<double>(n) * growth),
                                      std::min(kFirstStepRows, n_most_), n_most_);
    }

  private:
    int64_t n_most_, n_rows_;
};

// Thrown from within a step that was cancelled.
struct StepCancelled {};

// What ends a step: Batch::before_stage.
std::function<void()> stop_if(const std::function<bool()>& cancelled) {
    return [&cancelled] {
        if (cancelled && cancelled()) throw StepCancelled();
    };
}

bool contains(const std::vector<Token>& tokens, Token token) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

int64_t common_prefix(const std::vector<Token>& a, const std::vector<Token>& b) {
    return std::mismatch(a.begin(), a.begin() + static_cast<int64_t>(std::min(a.size(), b.size())),
                         b.begin())
               .first -
           a.begin();
}

}  // namespace

std::string_view to_string(StopReason reason) {
    switch (reason) {
        case StopReason::kEndToken:
            return "end";
        case StopReason::kStopString:
            return "stop";
        case StopReason::kLength:
            return "length";
        case StopReason::kContextFull:
            return "context";
        case StopReason::kCancelled:
            return "cancelled";
    }
    return "";
}

Ticket Engine::Impl::start(const Batch& batch) const {
    try {
        return backend->step(model, kv, batch);
    } catch (const Error& e) {
        throw Error(e.kind(), "{}: {}", printable(options.model), e.what());
    }
}

StepResult Engine::Impl::wait(Ticket ticket) const {
    try {
        return backend->wait(ticket);
    } catch (const Error& e) {
        throw Error(e.kind(), "{}: {}", printable(options.model), e.what());
    }
}

void Engine::Impl::check_tokens(std::span<const Token> tokens) const {
    for (Token token : tokens) {
        if (token >= 0 && token < model.config.n_vocab) continue;
        throw Error(ErrorKind::kUsage, "token {} is not in the vocabulary, expected 0 to {}", token,
                    model.config.n_vocab - 1);
    }
}

void Engine::Impl::check_sampling(const SampleParams& sampling) const {
    for (const auto& [token, bias] : sampling.logit_bias) {
        check_tokens({&token, 1});
        if (bias < std::numeric_limits<float>::infinity()) continue;  // not NaN, not infinite
        throw Error(ErrorKind::kUsage,
                    "the logit bias of token {} is {}, expected a number below infinity", token,
                    bias);
    }
}

void Engine::Impl::claim_cache(Sequence& sequence) {
    CHECK(sequence.engine_ == this);
    if (cached != sequence.id_) sequence.tokens_.clear();
    cached = sequence.id_;
}

namespace {

// One answer: the prompt's steps, then a step a token until something ends it. Where the backend
// can run ahead, each of these is started before the token that it takes is known here: the device
// goes from step to step, while what was drawn is looked at, made text and shown. What ends the
// answer then drops a step; where it ends is the same.
class Answer {
  public:
    using OnToken = std::function<void(const TokenEvent&)>;

    Answer(const Request& request, const Tokenizer* tokenizer, const std::vector<Token>& end_tokens,
           const OnToken& on_token, SequenceSteps& steps)
        : request_(request),
          tokenizer_(tokenizer),
          end_tokens_(end_tokens),
          on_token_(on_token),
          steps_(steps),
          runs_ahead_(steps.can_run_ahead(request.sampling)),
          text_(tokenizer, request) {}

    Generation run(int64_t n_reused, int64_t n_ctx, int n_step_rows) {
        result_.n_prompt = static_cast<int64_t>(request_.prompt.size());
        result_.n_reused = n_reused;
        Timer timer;
        bool complete = compute_prompt(n_step_rows);
        result_.prompt_ms = timer.elapsed_ms();
        if (!complete) return std::move(result_);
        timer.restart();
        draw_tokens(n_ctx);
        result_.generate_ms = timer.elapsed_ms();
        std::string rest = text_.finish();
        if (on_token_ && !rest.empty()) on_token_({-1, rest, nullptr});
        result_.text = text_.all();
        return std::move(result_);
    }

  private:
    // False where it was cancelled.
    bool compute_prompt(int n_step_rows) {
        StepSize step_size(n_step_rows);
        for (int64_t at = result_.n_reused; at < result_.n_prompt;) {
            int64_t n = step_size.rows_of(result_.n_prompt - at);
            auto tokens =
                std::span(request_.prompt).subspan(static_cast<size_t>(at), static_cast<size_t>(n));
            at += n;
            Timer timer;
            start(tokens, RowClass::kPrompt, at == result_.n_prompt && request_.n_predict != 0);
            if (was_cancelled()) return false;
            step_ = steps_.wait();
            result_.n_computed += n;
            step_size.took(n, timer.elapsed_ms());
            if (request_.prompt_progress) {
                double share = static_cast<double>(at) / static_cast<double>(result_.n_prompt);
                request_.prompt_progress("reading the prompt", share);
            }
        }
        return true;
    }

    // The first step waits for the prompt's token, which is not to be late for a step's start.
    void draw_tokens(int64_t n_ctx) {
        if (request_.n_predict == 0) return end(StopReason::kLength);
        bool is_started = false;  // the step that computes the token drawn last
        for (int64_t n_cached = result_.n_prompt;; n_cached++) {
            if (!take(step_.sampled[0])) return;
            const auto n_drawn = static_cast<int64_t>(result_.tokens.size());
            if (n_drawn == request_.n_predict) return end(StopReason::kLength);
            if (n_cached == n_ctx) return end(StopReason::kContextFull);
            if (!is_started) start({&result_.tokens.back(), 1}, RowClass::kDecode, true);
            if (was_cancelled()) return;
            // What this step draws may be known to be the last.
            is_started = runs_ahead_ && n_drawn + 1 != request_.n_predict && n_cached + 1 < n_ctx;
            const Token to_be_drawn = drawn_by(0);
            if (is_started) start({&to_be_drawn, 1}, RowClass::kDecode, true);
            step_ = steps_.wait();
            result_.n_steps++;
        }
    }

    // False where the answer ends with it.
    bool take(const Sampled& drawn) {
        if (ends_answer(drawn.token)) {
            end(StopReason::kEndToken,
                tokenizer_ == nullptr ? "" : std::string(tokenizer_->piece(drawn.token)));
            return false;
        }
        result_.tokens.push_back(drawn.token);
        std::string shown = text_.push(drawn.token);
        if (on_token_) on_token_({drawn.token, shown, &drawn});
        if (text_.stopped()) end(StopReason::kStopString, text_.stop());
        return !text_.stopped();
    }

    bool ends_answer(Token token) const {
        if (request_.ignore_eos) return false;
        return contains(end_tokens_, token) || contains(request_.end_tokens, token);
    }

    void end(StopReason reason, std::string stop = {}) {
        result_.reason = reason;
        result_.stop = std::move(stop);
    }

    // What goes wrong is told by was_cancelled(), when the token has been seen that a step under
    // way draws.
    void start(std::span<const Token> tokens, RowClass row_class, bool draws) {
        try {
            steps_.start(tokens, row_class, draws ? 1 : 0, draws ? &request_.sampling : nullptr);
        } catch (...) {
            failure_ = std::current_exception();
        }
    }
    // Whether the step that was started last was, before it or within it; throws what else it did.
    bool was_cancelled() {
        if (!failure_) return false;
        try {
            std::rethrow_exception(failure_);
        } catch (const StepCancelled&) {
            end(StopReason::kCancelled);
            return true;
        }
    }

    const Request& request_;
    const Tokenizer* tokenizer_;
    const std::vector<Token>& end_tokens_;
    const OnToken& on_token_;
    SequenceSteps& steps_;
    const bool runs_ahead_;
    AnswerText text_;
    std::exception_ptr failure_;
    StepResult step_;
    Generation result_;
};

}  // namespace

Generation Engine::generate(Sequence& sequence, const Request& request,
                            const std::function<void(const TokenEvent&)>& on_token) {
    Impl& impl = *impl_;
    const int64_t n_ctx = impl.kv.n_slots, n_prompt = static_cast<int64_t>(request.prompt.size());
    if (n_prompt == 0) throw Error(ErrorKind::kUsage, "the prompt is empty");
    if (n_prompt > n_ctx) {
        throw Error(
            "the prompt is {} tokens, the context holds {}; shorten it, or give a larger -c (the "
            "model's is {})",
            n_prompt, n_ctx, impl.model.config.n_ctx_train);
    }
    impl.check_tokens(request.prompt);
    impl.check_sampling(request.sampling);
    impl.claim_cache(sequence);
    std::vector<Token>& tokens = sequence.tokens_;
    // The last token of the prompt is always computed: its logits are wanted.
    const std::function<void()> before_stage = stop_if(request.cancelled);
    int64_t n_reused = std::min(common_prefix(tokens, request.prompt), n_prompt - 1);
    tokens.resize(static_cast<size_t>(n_reused));
    SequenceSteps steps(impl, tokens, before_stage);
    Answer answer(request, impl.tokenizer ? &*impl.tokenizer : nullptr, impl.end_tokens, on_token,
                  steps);
    return answer.run(n_reused, n_ctx, impl.info.n_step_rows);
}

bool Engine::evaluate(Sequence& sequence, std::span<const Token> tokens,
                      const std::function<void(int64_t, std::span<const float>)>& visit,
                      const EvaluateOptions& options) {
    Impl& impl = *impl_;
    impl.check_tokens(tokens);
    impl.claim_cache(sequence);
    int64_t n_total = static_cast<int64_t>(sequence.tokens_.size() + tokens.size());
    if (n_total > impl.kv.n_slots) {
        throw Error("{} tokens, the context holds {}", n_total, impl.kv.n_slots);
    }
    StepSize step_size(impl.info.n_step_rows);
    const std::function<void()> before_stage = stop_if(options.cancelled);
    const auto n_tokens = static_cast<int64_t>(tokens.size());
    SequenceSteps steps(impl, sequence.tokens_, before_stage);
    try {
        for (int64_t at = 0; at < n_tokens;) {
            bool wanted = at >= options.n_without;
            int64_t n = 1;
            if (options.row_class == RowClass::kPrompt) {
                n = wanted ? std::min<int64_t>(n_tokens - at, kMaxStepLogitRows)
                           : step_size.rows_of(std::min(n_tokens, options.n_without) - at);
            }
            auto first = static_cast<int64_t>(sequence.tokens_.size());
            Timer timer;
            steps.start(tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(n)),
                        options.row_class, wanted ? static_cast<int>(n) : 0, nullptr);
            const StepResult step = steps.wait();
            if (!wanted) step_size.took(n, timer.elapsed_ms());
            for (int64_t row = 0; wanted && row < n; row++) {
                visit(first + row,
                      {step.logits.row<float>(row), static_cast<size_t>(step.logits.n_cols)});
            }
            at += n;
        }
    } catch (const StepCancelled&) {
        return false;
    }
    return true;
}

}  // namespace ridge
