#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "cmd/command_line.h"
#include "cmd/commands.h"
#include "cmd/input.h"
#include "cmd/model_source.h"
#include "cmd/options.h"
#include "cmd/output.h"
#include "cmd/values.h"

namespace ridge {
namespace {

constexpr size_t kMaxJsonBytes = size_t{64} << 20;  // of ids in an object

struct TokenizeOptions {
    std::string model, pre, text, file = "-";
    bool has_text = false;
    bool json = false, jsonl = false, decode = false, no_bos = false, special = false;
    bool quiet = false;
    FromVariables from_variables;
};

bool parse(const std::vector<std::string>& arguments, TokenizeOptions& options) {
    CommandLine line("tokenize", "Turns text into token ids, one a line with its piece, and back.",
                     "ridge tokenize -m model.gguf -p \"Hello world\"\n"
                     "  ridge tokenize -m tokenizer.json --jsonl < strings.jsonl\n"
                     "  echo 1,2,3 | ridge tokenize -m model.gguf --decode");
    line.name("-m,--model", "MODEL", "a model, a tokenizer.json, or a folder that holds either",
              options.model, [] {
                  return std::string("a model, a tokenizer.json, or a folder that holds either");
              });
    add_pre_option(line, options.pre);
    line.text("-p,--prompt", "TEXT", "the text, or the ids for --decode", options.text);
    line.name("-f,--file", "FILE", "read it from a file, exactly (default: standard input)",
              options.file);
    line.flag("--no-bos", "no BOS token, also where the model wants one", options.no_bos);
    line.flag("--special", "control tokens count in the text, and show in what --decode prints",
              options.special);
    line.flag("--decode", "from ids to text: 1,2,3 or [1,2,3] or 1 2 3", options.decode);
    line.flag("--json", "print {\"tokens\":[...]}, or {\"text\":...} for --decode", options.json);
    line.flag("--jsonl",
              "one JSON string a line in, one JSON array of ids a line out; --decode: the reverse",
              options.jsonl);
    line.at_most_one({"--prompt", "--file"});
    line.at_most_one({"--json", "--jsonl"});
    add_quiet_option(line, options.quiet);
    if (!line.parse(arguments)) return false;
    options.from_variables = line.from_variables();
    options.has_text = line.given("--prompt");
    if (options.model.empty())
        throw Error(ErrorKind::kUsage,
                    "tokenize: no model: give -m MODEL, a tokenizer.json or a folder");
    if (!options.has_text && options.file == "-" && stdin_is_terminal()) {
        throw Error(ErrorKind::kUsage,
                    "tokenize: no text: give -p TEXT, -f FILE, or text on standard input");
    }
    return true;
}

std::vector<Token> encode(const Tokenizer& tokenizer, std::string_view text,
                          const TokenizeOptions& options) {
    return tokenizer.encode(text, EncodeOptions{!options.no_bos, options.special});
}

// Calls visit(line, number) for every line, as soon as it is there: the other end of a pipe may
// wait for an answer to each.
void for_each_line(const TokenizeOptions& options,
                   const std::function<void(const std::string&, int64_t)>& visit) {
    int64_t number = 0;
    if (options.has_text || options.file != "-") {
        std::string text = options.has_text ? options.text : read_text(options.file);
        for (size_t begin = 0; begin < text.size();) {
            size_t end = std::min(text.find('\n', begin), text.size());
            visit(text.substr(begin, end - begin), ++number);
            begin = end + 1;
        }
        return;
    }
    std::string line;
    while (read_line(line, ++number)) visit(line, number);
}

std::string name_of_source(const TokenizeOptions& options) {
    return options.has_text ? "-p" : name_of_file(options.file);
}

// One line of JSON: errors name its number in the file, not the 1 of the text that is parsed.
Json parse_line(const std::string& line, const std::string& where) {
    try {
        return parse_json(line, where, 2);
    } catch (const Error& e) {
        std::string message = e.what();
        size_t at = message.find(" at line 1, column ");
        if (at != std::string::npos) message.erase(at + 3, std::string_view(" line 1,").size());
        throw Error("{}", message);
    }
}

// Ids as parse_ids() takes them, or as --json prints them: {"tokens": [...]}.
std::vector<Token> read_ids(const std::string& where, const std::string& text) {
    size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string::npos || text[first] != '{') return parse_ids(where, text);
    if (text.size() > kMaxJsonBytes)
        throw Error("{}: is JSON of more than {} bytes", where, kMaxJsonBytes);
    Json json = parse_json(text, where, 2);
    auto found = json.find("tokens");
    if (found == json.end() || !found->is_array())
        throw Error("{}: expected ids, or an object with an array \"tokens\"", where);
    return parse_ids(where, found->dump());
}

void run_lines(const Tokenizer& tokenizer, const TokenizeOptions& options, Output& output) {
    for_each_line(options, [&](const std::string& line, int64_t number) {
        std::string where = fmt::format("{}: line {}", name_of_source(options), number);
        Json value = parse_line(line, where), result;
        if (options.decode) {
            if (!value.is_array() && !value.is_object())
                throw Error("{}: expected a JSON array of ids", where);
            result = tokenizer.decode(read_ids(where, line), options.special);
        } else {
            if (!value.is_string()) throw Error("{}: expected a JSON string", where);
            result = encode(tokenizer, value.get_ref<const std::string&>(), options);
        }
        output.write_json(result);
        output.flush();
    });
}

void run_decode(const Tokenizer& tokenizer, const TokenizeOptions& options, Output& output) {
    std::string ids = options.has_text ? options.text : read_text(options.file);
    std::string text = tokenizer.decode(read_ids(name_of_source(options), ids), options.special);
    if (options.json) {
        Json json;
        json["text"] = text;
        output.write_json(json);
        return;
    }
    output.write_untrusted(text);
    if (output.is_terminal()) output.write("\n");
}

void run_encode(const Tokenizer& tokenizer, const TokenizeOptions& options, Output& output) {
    std::vector<Token> tokens =
        encode(tokenizer, options.has_text ? options.text : read_text(options.file), options);
    if (options.json) {
        Json json;
        json["tokens"] = tokens;
        output.write_json(json);
        return;
    }
    for (Token token : tokens)
        output.write(fmt::format("{}\t{}\n", token, printable(tokenizer.piece(token), 0)));
}

int tokenize(const TokenizeOptions& options) {
    Tokenizer tokenizer = open_tokenizer(options.model, options.pre);
    Output output;
    if (options.jsonl) {
        run_lines(tokenizer, options, output);
    } else if (options.decode) {
        run_decode(tokenizer, options, output);
    } else {
        run_encode(tokenizer, options, output);
    }
    output.flush();
    return 0;
}

}  // namespace

int tokenize_command(const std::vector<std::string>& arguments) {
    TokenizeOptions options;
    if (!parse(arguments, options)) return 0;
    return blame_variables(options.from_variables, [&] { return tokenize(options); });
}

}  // namespace ridge
