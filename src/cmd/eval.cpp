#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/system.h"
#include "base/thread_pool.h"
#include "base/timer.h"
#include "cmd/answer.h"
#include "cmd/command_line.h"
#include "cmd/commands.h"
#include "cmd/eval_logits.h"
#include "cmd/eval_stats.h"
#include "cmd/input.h"
#include "cmd/model_json.h"
#include "cmd/options.h"
#include "cmd/output.h"
#include "cmd/values.h"
#include "engine/model_source.h"

namespace ridge {
namespace {

constexpr int64_t kDefaultWindow = 512;
constexpr int64_t kChunk = 16;  // positions that are scored together

struct EvalOptions {
    OpenOptions open;
    std::string file, save, reference, reference_checkpoint;
    std::string rows = "prompt";
    int64_t max_positions = 0;  // 0: all
    bool force = false, json = false, quiet = false;
    FromVariables from_variables;

    RowClass row_class() const { return rows == "decode" ? RowClass::kDecode : RowClass::kPrompt; }
};

bool parse(const std::vector<std::string>& arguments, EvalOptions& options) {
    CommandLine line("eval",
                     "Measures how well a model predicts a text, and how far it is from a "
                     "reference run on the same text.",
                     "ridge eval -m model.gguf -f text.txt --reference-checkpoint plain");
    line.section("Text");
    line.name("-f,--file", "FILE", "the text; -: standard input", options.file);
    line.value("--max-positions", "N", "score at most N positions (default: all)",
               [&](Where where, const std::string& text) {
                   options.max_positions =
                       parse_integer(where, text, 1, std::numeric_limits<int32_t>::max());
               });
    line.value("--rows", "CLASS",
               "kernels that read the text: prompt (default), or decode, a token a step",
               [&](Where where, const std::string& text) {
                   options.rows = parse_choice(where, text, {"prompt", "decode"});
               });
    add_model_options(line, options.open, "tokens of a window; 0 (default): 512");
    line.section("Reference");
    line.name("--reference", "FILE", "compare with the logits that --save-logits wrote",
              options.reference);
    line.name("--reference-checkpoint", "NAME",
              "compare with this checkpoint of the same model and a float32 cache, run beside it",
              options.reference_checkpoint, [] { return "one of " + known_checkpoints(); });
    line.section("Output");
    line.name("--save-logits", "FILE", "write the logits of every scored position", options.save);
    line.flag("--force", "write over an existing file", options.force);
    line.flag("--json", "print one JSON object instead of the table", options.json);
    line.at_most_one({"--reference", "--reference-checkpoint"});
    line.needs("--force", "--save-logits");
    line.flag("-q,--quiet", "nothing on standard error but errors", options.quiet);
    if (!line.parse(arguments)) return false;
    options.from_variables = line.from_variables();
    need_model("eval", options.open.model);
    if (options.save == "-") {
        throw Error(ErrorKind::kUsage, "--save-logits -: expected the name of a file");
    }
    if (options.file.empty()) throw Error(ErrorKind::kUsage, "eval: no text: give -f FILE");
    if (options.open.n_ctx != 0 && options.open.n_ctx < kMinWindow) {
        throw Error(ErrorKind::kUsage, "-c {}: expected a window of at least {} tokens",
                    options.open.n_ctx, kMinWindow);
    }
    return true;
}

// A reference run beside the one that is measured: the same model on other kernels, with a cache
// that rounds nothing.
std::unique_ptr<Engine> open_reference(const EvalOptions& options,
                                       const std::function<void(const Engine&)>& check) {
    OpenOptions open = options.open;
    open.checkpoint = options.reference_checkpoint;
    open.pin = false;  // the cores are the other engine's
    open.cache_type_k = open.cache_type_v = "f32";
    try {
        return open_engine(open, options.quiet, check);
    } catch (const Error& e) {
        std::string_view message = e.what();
        constexpr std::string_view kOption = "--checkpoint";
        if (message.substr(0, kOption.size()) != kOption) throw;
        throw Error(e.kind(), "--reference-checkpoint{}", message.substr(kOption.size()));
    }
}

// That a file can be written there, and is none of those that are read.
void check_output(const EvalOptions& options) {
    std::vector<std::string> inputs{options.reference};
    if (options.file != "-") inputs.push_back(options.file);
    if (!is_synth(options.open.model)) {
        const std::string& model = options.open.model;
        if (file_kind(model) == FileKind::kDirectory) {
            for (const std::string& name : list_folder(model)) inputs.push_back(model + "/" + name);
        }
        for (const std::string& path : open_model_header(model).file_paths())
            inputs.push_back(path);
    }
    for (const std::string& input : inputs) {
        if (input.empty() || !same_file(input, options.save)) continue;
        throw Error(ErrorKind::kUsage, "--save-logits {}: would be written over {}, which is read",
                    printable(options.save), printable(input));
    }
    FileWriter(options.save, options.force);
}

// The text's tokens in windows, for this model.
EvalWindows read_windows(const EvalOptions& options, const Engine& engine,
                         const std::string& text) {
    const Tokenizer& tokenizer = engine.tokenizer();
    const int64_t n_ctx = engine.info().n_ctx;
    std::optional<Token> bos = tokenizer.add_bos() ? tokenizer.bos() : std::nullopt;
    return cut_windows(tokenizer.encode(text),
                       options.open.n_ctx > 0 ? n_ctx : std::min(n_ctx, kDefaultWindow), bos,
                       options.max_positions, name_of_file(options.file));
}

// One engine's way through the windows.
class Reader {
  public:
    Reader(Engine& engine, RowClass row_class)
        : engine_(engine), row_class_(row_class), sequence_(engine.new_sequence()) {}

    void begin_window() { sequence_.clear(); }
    // Tokens that are read and not scored.
    void skip(std::span<const Token> tokens) { evaluate(tokens, tokens.size(), {}); }
    // Logits [n_tokens, n_vocab] of tokens; valid until the next call.
    std::span<const float> read(std::span<const Token> tokens) {
        logits_.clear();
        evaluate(tokens, 0, [&](int64_t, std::span<const float> row) {
            logits_.insert(logits_.end(), row.begin(), row.end());
        });
        return logits_;
    }

  private:
    void evaluate(std::span<const Token> tokens, size_t n_without,
                  const std::function<void(int64_t, std::span<const float>)>& visit) {
        EvaluateOptions options;
        options.n_without = static_cast<int64_t>(n_without);
        options.row_class = row_class_;
        options.cancelled = interrupted;
        if (!engine_.evaluate(sequence_, tokens, visit, options)) throw Interrupted();
    }

    Engine& engine_;
    RowClass row_class_;
    Sequence sequence_;
    std::vector<float> logits_;
};

// One text, from its windows to the figures.
class Evaluation {
  public:
    Evaluation(const EvalOptions& options, Engine& engine, Engine* reference,
               const LogitsFile* reference_file, const EvalWindows& windows)
        : options_(options),
          engine_(engine),
          reference_file_(reference_file),
          windows_(windows),
          reader_(engine, options.row_class()),
          pool_(engine.info().n_threads),
          status_(!options.quiet) {
        if (reference != nullptr) reference_.emplace(*reference, RowClass::kPrompt);
        if (options.save.empty()) return;
        const ModelInfo& info = engine.info();
        save_.emplace(options.save, options.force,
                      fmt::format("{}, {}, {} {}, {} rows", info.name, info.format, info.device,
                                  info.checkpoint, options.rows),
                      engine.config().n_vocab, windows);
    }

    EvalSummary run() {
        for (int64_t i = 0; i < windows_.n_windows(); i++) score_window(i);
        if (save_) save_->commit();
        return summarise(scores_, has_reference());
    }

    bool has_reference() const { return reference_ || reference_file_ != nullptr; }

  private:
    void score_window(int64_t index) {
        const auto window = static_cast<size_t>(windows_.window);
        auto tokens = std::span(windows_.tokens).subspan(static_cast<size_t>(index) * window);
        for (Reader* reader : readers()) reader->begin_window();
        int64_t at = 0, end = windows_.first_scored();
        while (at < end) {
            show_progress(index, at);
            // Decode steps are slow enough to be shown piece by piece.
            int64_t n = options_.row_class() == RowClass::kDecode ? kChunk : end;
            n = std::min(n, end - at);
            for (Reader* reader : readers()) reader->skip(part(tokens, at, n));
            at += n;
        }
        end = std::min(windows_.window - 1, at + windows_.n_positions - n_scored());
        while (at < end) {
            show_progress(index, at);
            int64_t n = std::min(kChunk, end - at);
            score_chunk(part(tokens, at, n), part(tokens, at + 1, n));
            at += n;
        }
    }

    // Logits of tokens, each against the token that follows it.
    void score_chunk(std::span<const Token> tokens, std::span<const Token> next) {
        const auto n_vocab = static_cast<size_t>(engine_.config().n_vocab);
        const auto first = static_cast<size_t>(n_scored());
        std::span<const float> theirs;
        if (reference_) theirs = reference_->read(tokens);
        std::span<const float> mine = reader_.read(tokens);
        if (save_) save_->append(mine);
        std::vector<std::optional<PositionScore>> scores(tokens.size());
        pool_.parallel_for(
            static_cast<int64_t>(tokens.size()), 1, [&](int64_t begin, int64_t end, int) {
                for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); i++) {
                    std::span<const float> reference;
                    if (reference_) reference = theirs.subspan(i * n_vocab, n_vocab);
                    if (reference_file_ != nullptr)
                        reference = reference_file_->row(static_cast<int64_t>(first + i));
                    scores[i] =
                        score_position(mine.subspan(i * n_vocab, n_vocab), reference, next[i]);
                }
            });
        for (const std::optional<PositionScore>& score : scores) {
            if (!score) fail_at(n_scored());
            scores_.push_back(*score);
        }
    }

    [[noreturn]] void fail_at(int64_t position) const {
        const int64_t each = windows_.scored_of_window();
        throw Error("{}: no probabilities at token {} of window {}: a logit is NaN or infinite",
                    reference_file_ != nullptr
                        ? printable(options_.open.model) + " or " + printable(options_.reference)
                        : printable(options_.open.model),
                    windows_.first_scored() + position % each, position / each + 1);
    }

    void show_progress(int64_t index, int64_t at) {
        stop_if_interrupted();
        status_.show(fmt::format("evaluating window {} of {},", index + 1, windows_.n_windows()),
                     static_cast<double>(index * windows_.window + at) /
                         static_cast<double>(windows_.n_windows() * windows_.window));
    }

    std::vector<Reader*> readers() {
        return reference_ ? std::vector{&reader_, &*reference_} : std::vector{&reader_};
    }
    int64_t n_scored() const { return static_cast<int64_t>(scores_.size()); }
    static std::span<const Token> part(std::span<const Token> tokens, int64_t at, int64_t n) {
        return tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(n));
    }

    const EvalOptions& options_;
    Engine& engine_;
    const LogitsFile* reference_file_;
    const EvalWindows& windows_;
    Reader reader_;
    std::optional<Reader> reference_;
    std::optional<LogitsWriter> save_;
    ThreadPool pool_;
    StatusLine status_;
    std::vector<PositionScore> scores_;
};

// What the figures are of.
struct EvalResult {
    EvalSummary summary;
    std::string reference;  // what it was; empty: none
    double eval_ms = 0;
};

Json estimate_json(const Estimate& estimate) {
    Json json;
    json["value"] = estimate.value;
    json["standard_error"] = estimate.error;
    return json;
}

Json result_json(const EvalOptions& options, const Engine& engine, const EvalWindows& windows,
                 const EvalResult& result) {
    const EvalSummary& summary = result.summary;
    Json json;
    json["model"] = model_json(engine.info());
    json["cache_type_k"] = options.open.cache_type_k;
    json["cache_type_v"] = options.open.cache_type_v;
    json["text"] = options.file;
    json["rows"] = options.rows;
    json["window"] = windows.window;
    json["n_windows"] = windows.n_windows();
    json["n_positions"] = summary.n_positions;
    json["perplexity"] = estimate_json(summary.perplexity);
    if (!result.reference.empty()) {
        Json& reference = json["reference"];
        reference["source"] = result.reference;
        reference["perplexity"] = estimate_json(summary.reference_perplexity);
        reference["kl"] = estimate_json(summary.kl);
        reference["kl_median"] = summary.kl_median;
        reference["kl_p99"] = summary.kl_p99;
        reference["kl_max"] = summary.kl_max;
        reference["top1_agreement"] = summary.top1_agreement;
        reference["p_rms_difference"] = summary.p_rms_difference;
    }
    json["load_ms"] = engine.info().load_ms;
    json["eval_ms"] = result.eval_ms;
    json["peak_memory_bytes"] = peak_memory_bytes();
    return json;
}

std::string result_text(const EvalOptions& options, const EvalWindows& windows,
                        const EvalResult& result) {
    const EvalSummary& summary = result.summary;
    auto estimate = [](const Estimate& e) {
        return fmt::format("{:.6g} +- {:.2g}", e.value, e.error);
    };
    std::string text =
        fmt::format("text        {}: {} in {} of {}, {} rows\n", name_of_file(options.file),
                    counted(summary.n_positions, "position"),
                    counted(windows.n_windows(), "window"), windows.window, options.rows);
    text += fmt::format("perplexity  {}\n", estimate(summary.perplexity));
    if (result.reference.empty()) return text;
    text += fmt::format("reference   {}: perplexity {}\n", result.reference,
                        estimate(summary.reference_perplexity));
    text += fmt::format("KL          mean {}, median {:.4g}, 99% {:.4g}, maximum {:.4g}\n",
                        estimate(summary.kl), summary.kl_median, summary.kl_p99, summary.kl_max);
    text += fmt::format("top token   the same at {:.2f}% of the positions\n",
                        100 * summary.top1_agreement);
    text += fmt::format("next token  probability differs by {:.3f}% (root of mean square)\n",
                        100 * summary.p_rms_difference);
    return text;
}

int evaluate(const EvalOptions& options) {
    // What can be refused is refused before a large model is loaded.
    if (!options.save.empty()) check_output(options);
    const std::string text = read_text(options.file);
    std::optional<LogitsFile> file;
    if (!options.reference.empty()) file = LogitsFile::open(options.reference);
    EvalWindows windows;
    auto read = [&](const Engine& engine) {
        windows = read_windows(options, engine, text);
        if (file) file->check_holds(windows, engine.config().n_vocab);
    };
    // The reference first: where threads are pinned, those that are started later share a core.
    std::unique_ptr<Engine> reference;
    if (!options.reference_checkpoint.empty()) reference = open_reference(options, read);
    std::unique_ptr<Engine> engine = open_engine(
        options.open, options.quiet, reference ? std::function<void(const Engine&)>() : read);

    EvalResult result;
    if (file) result.reference = fmt::format("{} ({})", printable(file->path()), file->source());
    if (reference) result.reference = "checkpoint " + reference->info().checkpoint;
    Timer timer;
    Evaluation evaluation(options, *engine, reference.get(), file ? &*file : nullptr, windows);
    result.summary = evaluation.run();
    result.eval_ms = timer.elapsed_ms();

    Output output;
    if (options.json) {
        output.write_json(result_json(options, *engine, windows, result));
    } else {
        output.write(result_text(options, windows, result));
    }
    output.flush();
    return 0;
}

}  // namespace

int eval_command(const std::vector<std::string>& arguments) {
    EvalOptions options;
    if (!parse(arguments, options)) return 0;
    return blame_variables(options.from_variables, [&] { return evaluate(options); });
}

}  // namespace ridge
