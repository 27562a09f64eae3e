#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/system.h"
#include "cmd/answer.h"
#include "cmd/chat.h"
#include "cmd/commands.h"
#include "cmd/input.h"
#include "cmd/logits_hash.h"
#include "cmd/model_json.h"
#include "cmd/values.h"

namespace ridge {
namespace {

struct RunOptions {
    ChatSettings settings;
    std::string prompt, file;
    std::vector<Token> ids;
    bool raw = false, json = false, logits_hash = false;
    int n_logprobs = -1;
    // How the prompt is given.
    bool has_prompt = false, has_file = false, has_ids = false;
};

bool parse(const std::vector<std::string>& arguments, RunOptions& options) {
    CommandLine line("run", "Answers one prompt, or with --raw continues a text.",
                     "ridge run -m model.gguf -p \"Why do rivers bend?\" --temp 0.7 -n 200");
    ChatSettings& settings = options.settings;
    line.section("Prompt (without one, standard input is read; on a terminal run becomes chat)");
    line.text("-p,--prompt", "TEXT", "the prompt", options.prompt);
    line.name("-f,--file", "FILE", "read the prompt from a file; -: standard input", options.file);
    line.value("--ids", "IDS", "the prompt as token ids, as in 1,2,3",
               [&](Where where, const std::string& text) { options.ids = parse_ids(where, text); });
    line.flag("--raw", "continue the text as it is: no chat template", options.raw);
    add_model_options(line, settings.open);
    add_chat_options(line, settings.answer);
    add_template_options(line, settings.open.chat_template, settings.open.chat_template_file);
    add_sampling_options(line, settings.sampling);
    add_stop_options(line, settings.answer);
    line.section("Output");
    line.flag("--json", "print one JSON object instead of the text", options.json);
    line.value("--logprobs", "N",
               "with --json: log probabilities, also of the N most probable tokens",
               [&](Where where, const std::string& text) {
                   options.n_logprobs = static_cast<int>(parse_integer(where, text, 0, 1000));
               });
    line.flag("--special", "control tokens count in a --raw prompt and show in the answer",
              settings.answer.special);
    line.flag("--logits-hash", "print a hash of the logits of the prompt's last position",
              options.logits_hash);
    line.flag("-q,--quiet", "nothing on standard error but errors", settings.quiet);
    line.at_most_one({"--prompt", "--file", "--ids"});
    line.at_most_one({"--raw", "--system-prompt"});
    line.at_most_one({"--ids", "--system-prompt"});
    line.at_most_one({"--raw", "--thinking"});
    line.at_most_one({"--raw", "--no-thinking"});
    line.needs("--logprobs", "--json");
    if (!line.parse(arguments)) return false;
    settings.from_variables = line.from_variables();

    options.has_prompt = line.given("--prompt");
    options.has_file = line.given("--file");
    options.has_ids = line.given("--ids");
    need_model("run", settings.open.model);
    return true;
}

// The prompt's text; empty optional where there is none and nobody to ask.
std::optional<std::string> read_prompt(const RunOptions& options) {
    if (options.has_prompt) return options.prompt;
    if (!options.has_file && stdin_is_terminal()) return std::nullopt;
    std::string path = options.has_file ? options.file : "-";
    std::string text = without_last_newline(read_text(path));
    if (!options.raw) check_utf8(text, name_of_file(path));  // templates take nothing else
    return text;
}

std::vector<Token> prompt_tokens(const Engine& engine, const RunOptions& options,
                                 const std::string& text) {
    if (options.has_ids) return options.ids;
    if (!options.raw) {
        if (text.empty()) throw Error(ErrorKind::kUsage, "run: the prompt is empty");
        Conversation conversation;
        const AnswerOptions& answer = options.settings.answer;
        if (answer.has_system_prompt) conversation.set_system(answer.system_prompt);
        conversation.add("user", text);
        return chat_prompt(engine, conversation, answer);
    }
    check_text_fits(engine, text.size());
    EncodeOptions encode;
    encode.parse_special = options.settings.answer.special;
    std::vector<Token> tokens = engine.tokenizer().encode(text, encode);
    // A text that begins from nothing begins with BOS, also in models that need none before text.
    if (tokens.empty() && engine.tokenizer().bos()) tokens.push_back(*engine.tokenizer().bos());
    if (tokens.empty()) {
        throw Error(ErrorKind::kUsage,
                    "run: the prompt is empty and the model has no BOS token to begin with");
    }
    return tokens;
}

Json logprobs_json(const Engine& engine, const std::vector<Sampled>& drawn) {
    auto one = [&](Token token, float logprob) {
        Json json;
        json["id"] = token;
        if (engine.has_tokenizer()) json["piece"] = std::string(engine.tokenizer().piece(token));
        json["logprob"] = logprob;
        return json;
    };
    Json list = Json::array();
    for (const Sampled& sampled : drawn) {
        Json json = one(sampled.token, sampled.logprob);
        json["top"] = Json::array();
        for (const TokenLogprob& top : sampled.top)
            json["top"].push_back(one(top.token, top.logprob));
        list.push_back(std::move(json));
    }
    return list;
}

Json timings_json(const ModelInfo& info, const Generation& generation, const AnswerStats& stats) {
    Json json;
    json["load_ms"] = info.load_ms;
    json["prompt_tokens"] = generation.n_prompt;
    json["prompt_computed"] = generation.n_computed;
    json["prompt_ms"] = generation.prompt_ms;
    json["prompt_tok_s"] = stats.prompt_tok_s;
    json["generated_tokens"] = generation.tokens.size();
    json["generate_ms"] = generation.generate_ms;
    json["generate_tok_s"] = stats.generate_tok_s;
    json["bound_tok_s"] = stats.bound_tok_s;
    json["bound_share"] = stats.bound_share;
    json["peak_memory_bytes"] = peak_memory_bytes();
    return json;
}

// What is asked of the model.
struct Question {
    std::vector<Token> prompt;
    SampleParams sampling;
};

// Before time goes into the weights: everything that can be wrong with it.
Question question_of(const RunOptions& options, const Engine& engine, const std::string& text) {
    const std::string model = printable(options.settings.open.model);
    if (!engine.has_tokenizer() && !(options.has_ids && options.json)) {
        throw Error("{}: has no tokenizer to make text with; --ids with --json works without one",
                    model);
    }
    if (!engine.has_tokenizer() && !options.settings.answer.stops.empty()) {
        throw Error(ErrorKind::kUsage, "--stop \"{}\": {} has no tokenizer to make text with",
                    printable(options.settings.answer.stops.front(), 80), model);
    }
    Question question;
    question.sampling = sampling_of(engine, options.settings.sampling);
    question.sampling.n_logprobs = options.n_logprobs;
    question.prompt = prompt_tokens(engine, options, text);
    const int n_vocab = engine.config().n_vocab;
    for (Token id : options.ids) {
        if (id < n_vocab) continue;
        throw Error(ErrorKind::kUsage, "--ids {}: not in the vocabulary, expected an id below {}",
                    id, n_vocab);
    }
    check_prompt_fits(engine, question.prompt.size());
    return question;
}

// One prompt, from its tokens to the last line.
class Run {
  public:
    Run(const RunOptions& options, Engine& engine)
        : options_(options), engine_(engine), status_(!options.settings.quiet) {}

    int go(const Question& question) {
        const AnswerOptions& answer_options = options_.settings.answer;
        sampling_ = question.sampling;
        Request request;
        request.prompt = question.prompt;
        request.sampling = sampling_;
        request.n_predict = answer_options.n_predict;
        request.stops = answer_options.stops;
        request.ignore_eos = answer_options.ignore_eos;
        request.show_special = answer_options.special;

        Sequence sequence = engine_.new_sequence();
        if (options_.logits_hash) hash_logits(sequence, request.prompt);
        AnswerWriter writer(output_, status_, engine_);
        generation_ = answer(engine_, sequence, request, status_, [&](const TokenEvent& event) {
            if (event.sampled != nullptr && options_.n_logprobs >= 0)
                drawn_.push_back(*event.sampled);
            if (!options_.json) writer.write(event);
        });
        if (options_.json) {
            output_.write_json(result(request.prompt));
            output_.flush();
        } else {
            writer.finish(output_.is_terminal());
        }
        report();
        return generation_.reason == StopReason::kCancelled ? interrupt_status() : 0;
    }

  private:
    void hash_logits(Sequence& sequence, const std::vector<Token>& prompt) {
        EvaluateOptions last;
        last.n_without = static_cast<int64_t>(prompt.size()) - 1;
        last.cancelled = interrupted;
        engine_.evaluate(
            sequence, prompt,
            [&](int64_t, std::span<const float> logits) { hash_ = logits_hash(logits); }, last);
    }

    Json result(const std::vector<Token>& prompt) {
        Json json;
        json["prompt"] = prompt;
        json["tokens"] = generation_.tokens;
        if (!options_.has_ids) {
            json["text"] = generation_.text;
            json["reason"] = std::string(to_string(generation_.reason));
            json["stop"] = generation_.stop;
            json["seed"] = sampling_.seed;
            json["model"] = model_json(engine_.info());
            json["timings"] = timings_json(engine_.info(), generation_, stats());
        }
        if (options_.n_logprobs >= 0) json["logprobs"] = logprobs_json(engine_, drawn_);
        if (options_.logits_hash) json["logits_hash"] = hash_;
        return json;
    }

    // Measured once: it takes a moment.
    const AnswerStats& stats() {
        if (!stats_) stats_ = measure(engine_, generation_);
        return *stats_;
    }

    void report() {
        if (generation_.reason == StopReason::kContextFull) say(context_full_line(engine_.info()));
        if (options_.settings.quiet) return;
        if (options_.logits_hash && !options_.json) write_error("logits " + hash_ + "\n");
        write_error(stats_line(engine_.info(), generation_, stats(), sampling_) + "\n");
    }

    const RunOptions& options_;
    Engine& engine_;
    Output output_;
    StatusLine status_;
    SampleParams sampling_;
    Generation generation_;
    std::vector<Sampled> drawn_;
    std::string hash_;
    std::optional<AnswerStats> stats_;
};

int run_prompt(const RunOptions& options) {
    std::string text;
    if (!options.has_ids) {
        std::optional<std::string> given = read_prompt(options);
        if (!given) {
            bool plain = !options.raw && !options.json && !options.logits_hash;
            if (plain && stderr_is_terminal()) return hold_conversation(options.settings);
            throw Error(ErrorKind::kUsage,
                        "run: no prompt: give -p TEXT, -f FILE, or text on standard input");
        }
        text = *given;
        // Said before a large model is loaded.
        if (text.empty() && !options.raw)
            throw Error(ErrorKind::kUsage, "run: the prompt is empty");
    } else if (options.ids.empty()) {
        throw Error(ErrorKind::kUsage, "run: the prompt is empty: --ids names no token");
    }
    Question question;
    std::unique_ptr<Engine> engine =
        open_engine(options.settings.open, options.settings.quiet,
                    [&](const Engine& opening) { question = question_of(options, opening, text); });
    return Run(options, *engine).go(question);
}

}  // namespace

int run_command(const std::vector<std::string>& arguments) {
    RunOptions options;
    if (!parse(arguments, options)) return 0;
    return blame_variables(options.settings.from_variables, [&] { return run_prompt(options); });
}

}  // namespace ridge
