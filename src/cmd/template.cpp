#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/printable.h"
#include "cmd/command_line.h"
#include "cmd/commands.h"
#include "cmd/input.h"
#include "cmd/model_source.h"
#include "cmd/options.h"
#include "cmd/output.h"
#include "text/chat_template.h"

namespace ridge {
namespace {

constexpr uint64_t kMaxJsonBytes = uint64_t{64} << 20;

struct TemplateOptions {
    std::string model, name, file;
    std::string messages, tools, prompt;
    std::string bos, eos;
    bool has_bos = false, has_eos = false, has_prompt = false;
    AnswerOptions answer;
    bool no_generation_prompt = false, json = false, quiet = false;
    FromVariables from_variables;
};

bool parse(const std::vector<std::string>& arguments, TemplateOptions& options) {
    CommandLine line("template", "Shows the exact prompt that a chat template makes of messages.",
                     "ridge template -m model.gguf -p \"hi\"\n"
                     "  ridge template --chat-template llama3 --bos \"<|begin_of_text|>\" "
                     "--messages chat.json");
    add_model_option(line, options.model);
    add_template_options(line, options.name, options.file);
    line.name("--messages", "FILE",
              "JSON: an array of messages, or an object with \"messages\" and perhaps \"tools\"; "
              "-: standard input",
              options.messages);
    line.text("-p,--prompt", "TEXT", "one message of the user, in place of --messages",
              options.prompt);
    line.name("--tools", "FILE", "JSON: an array of tools", options.tools);
    line.text("--bos", "TEXT", "the BOS token's text (default: the model's, or none)", options.bos);
    line.text("--eos", "TEXT", "the EOS token's text (default: the model's, or none)", options.eos);
    line.flag("--no-generation-prompt", "do not begin the answer", options.no_generation_prompt);
    line.flag("--json", "print {\"text\", \"spans\"}, and with -m \"tokens\"", options.json);
    add_chat_options(line, options.answer);
    line.at_most_one({"--messages", "--prompt"});
    line.at_most_one({"--messages", "--system-prompt"});
    add_quiet_option(line, options.quiet);
    if (!line.parse(arguments)) return false;
    options.from_variables = line.from_variables();
    options.has_bos = line.given("--bos");
    options.has_eos = line.given("--eos");
    options.has_prompt = line.given("--prompt");
    if (options.messages.empty() && !options.has_prompt) {
        throw Error(ErrorKind::kUsage, "template: no messages: give --messages FILE or -p TEXT");
    }
    if (options.model.empty() && options.name.empty() && options.file.empty()) {
        throw Error(ErrorKind::kUsage,
                    "template: no template: give -m MODEL, --chat-template NAME or "
                    "--chat-template-file FILE");
    }
    return true;
}

Json read_json(const std::string& path) {
    return parse_json(read_file(path, kMaxJsonBytes), name_of_file(path));
}

Json checked_array(Json value, const std::string& what) {
    if (!value.is_array()) throw Error("{} are {}, expected an array", what, value.type_name());
    for (const Json& element : value) {
        if (!element.is_object())
            throw Error("{} hold {}, expected objects", what, element.type_name());
    }
    return value;
}

ChatInput read_input(const TemplateOptions& options) {
    ChatInput input;
    Json tools;
    if (options.has_prompt) {
        Json messages = Json::array();
        auto add = [&](const char* role, const std::string& content) {
            Json message;
            message["role"] = role;
            message["content"] = content;
            messages.push_back(std::move(message));
        };
        if (options.answer.has_system_prompt) add("system", options.answer.system_prompt);
        add("user", options.prompt);
        input.messages = std::move(messages);
    } else {
        Json file = read_json(options.messages);
        if (file.is_object()) {
            auto messages = file.find("messages");
            if (messages == file.end())
                throw Error("{}: has no \"messages\"", name_of_file(options.messages));
            if (auto found = file.find("tools"); found != file.end()) tools = *found;
            Json inner = *messages;
            file = std::move(inner);
        }
        input.messages =
            checked_array(std::move(file), name_of_file(options.messages) + ": messages");
    }
    if (!options.tools.empty()) tools = read_json(options.tools);
    if (!tools.is_null()) {
        input.tools = checked_array(
            std::move(tools),
            name_of_file(options.tools.empty() ? options.messages : options.tools) + ": tools");
    }
    input.add_generation_prompt = !options.no_generation_prompt;
    input.enable_thinking = options.answer.thinking();
    input.date = options.answer.date;
    return input;
}

ChatTemplate read_template(const TemplateOptions& options, const ModelFile* model,
                           const Tokenizer* tokenizer) {
    auto text_of = [&](bool given, const std::string& text, std::optional<Token> token) {
        if (given || tokenizer == nullptr || !token) return text;
        return std::string(tokenizer->piece(*token));
    };
    using Id = std::optional<Token>;
    std::string bos = text_of(options.has_bos, options.bos, tokenizer ? tokenizer->bos() : Id());
    std::string eos = text_of(options.has_eos, options.eos, tokenizer ? tokenizer->eos() : Id());
    if (!options.file.empty()) return ChatTemplate::read_file(options.file, bos, eos);
    if (!options.name.empty()) return ChatTemplate::named(options.name, bos, eos);
    std::optional<std::string> source = model->chat_template();
    if (!source) {
        throw Error("{}: has no chat template; name one with --chat-template",
                    printable(options.model));
    }
    return ChatTemplate::compile(*source, printable(options.model) + ": chat template", bos, eos);
}

int show_template(const TemplateOptions& options) {
    ChatInput input = read_input(options);
    std::optional<ModelFile> model;
    std::optional<Tokenizer> tokenizer;
    if (!options.model.empty()) {
        model = open_model_header(options.model);
        if (holds_tokenizer(*model)) tokenizer = Tokenizer::open(*model);
    }
    std::vector<RenderedSpan> spans =
        read_template(options, model ? &*model : nullptr, tokenizer ? &*tokenizer : nullptr)
            .render(input);

    Output output;
    if (!options.json) {
        for (const RenderedSpan& span : spans) output.write_untrusted(span.text);
        output.flush();
        return 0;
    }
    Json json;
    std::string text;
    Json parts = Json::array();
    std::vector<TextSpan> views;
    for (const RenderedSpan& span : spans) {
        text += span.text;
        Json part;
        part["text"] = span.text;
        part["trusted"] = span.trusted;
        parts.push_back(std::move(part));
        views.push_back({span.text, span.trusted});
    }
    json["text"] = text;
    json["spans"] = std::move(parts);
    if (tokenizer) json["tokens"] = tokenizer->encode(views);
    output.write_json(json);
    output.flush();
    return 0;
}

}  // namespace

int template_command(const std::vector<std::string>& arguments) {
    TemplateOptions options;
    if (!parse(arguments, options)) return 0;
    return blame_variables(options.from_variables, [&] { return show_template(options); });
}

}  // namespace ridge
