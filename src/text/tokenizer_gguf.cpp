#include <cmath>

#include "base/error.h"
#include "base/printable.h"
#include "file/gguf.h"
#include "text/tokenizer_spec.h"

// The keys tokenizer.ggml.* (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer).

namespace ridge {
namespace {

constexpr size_t kMaxTokens = 1u << 24;

TokenType token_type_of(const std::string& file, size_t index, int32_t value) {
    switch (value) {
        case 1:
            return TokenType::kNormal;
        case 2:
            return TokenType::kUnknown;
        case 3:
            return TokenType::kControl;
        case 4:
            return TokenType::kUserDefined;
        case 5:
            return TokenType::kUnused;
        case 6:
            return TokenType::kByte;
        default:
            throw Error("{}: tokenizer.ggml.token_type[{}] is {}, expected 1 to 6", file, index,
                        value);
    }
}

std::vector<TokenType> read_types(const GgufMetadata& metadata, size_t n_tokens) {
    std::vector<TokenType> types(n_tokens, TokenType::kNormal);
    auto values = metadata.find_i32s("tokenizer.ggml.token_type");
    if (!values) return types;
    if (values->size() != n_tokens) {
        throw Error("{}: tokenizer.ggml.token_type has {} entries, expected {}, one a token",
                    metadata.file(), values->size(), n_tokens);
    }
    for (size_t i = 0; i < n_tokens; i++) {
        types[i] = token_type_of(metadata.file(), i, (*values)[i]);
    }
    return types;
}

void read_tokens(const GgufMetadata& metadata, TokenizerSpec& spec) {
    auto texts = metadata.find_strings("tokenizer.ggml.tokens");
    if (!texts) throw Error("{}: tokenizer.ggml.tokens is absent", spec.file);
    if (texts->empty() || texts->size() > kMaxTokens) {
        throw Error("{}: tokenizer.ggml.tokens has {} entries, expected 1 to {}", spec.file,
                    texts->size(), kMaxTokens);
    }
    std::vector<TokenType> types = read_types(metadata, texts->size());
    size_t n_bytes = 0;
    for (std::string_view text : *texts) n_bytes += text.size();
    spec.vocabulary.reserve(texts->size(), n_bytes);
    for (size_t i = 0; i < texts->size(); i++) {
        std::string_view text = (*texts)[i];
        if (types[i] == TokenType::kByte) {
            std::optional<uint8_t> byte = byte_of_byte_token(text);
            if (!byte) {
                throw Error(
                    "{}: tokenizer.ggml.tokens[{}] is \"{}\" of type 6 (byte), expected <0x00> to "
                    "<0xFF>",
                    spec.file, i, printable(text, 40));
            }
            char c = static_cast<char>(*byte);
            spec.vocabulary.add({&c, 1}, types[i]);
        } else if (spec.kind == TokenizerKind::kCharacters) {
            spec.vocabulary.add(spaced_bytes(text), types[i]);
        } else if (types[i] == TokenType::kNormal) {
            spec.vocabulary.add(byte_level_bytes(text), types[i]);
        } else {
            spec.vocabulary.add(text, types[i]);
        }
    }
    spec.vocabulary.build_index();
}

void read_merges(const GgufMetadata& metadata, TokenizerSpec& spec) {
    auto merges = metadata.find_strings("tokenizer.ggml.merges");
    if (!merges) {
        throw Error("{}: tokenizer.ggml.merges is absent, expected for tokenizer.ggml.model gpt2",
                    spec.file);
    }
    spec.merges.reserve(merges->size());
    for (size_t i = 0; i < merges->size(); i++) {
        std::string_view text = (*merges)[i];
        size_t space = text.find(' ', 1);  // the two texts have no space in them
        bool known = space != std::string_view::npos &&
                     add_merge(spec, byte_level_bytes(text.substr(0, space)),
                               byte_level_bytes(text.substr(space + 1)), static_cast<uint32_t>(i));
        if (!known) {
            throw Error(
                "{}: tokenizer.ggml.merges[{}] is \"{}\", expected two tokens of the "
                "vocabulary that make a third, with a space between",
                spec.file, i, printable(text, 80));
        }
    }
}

// Empty where the file has none.
std::vector<float> read_scores(const GgufMetadata& metadata, size_t n_tokens) {
    auto scores = metadata.find_f32s("tokenizer.ggml.scores");
    if (!scores) return {};
    if (scores->size() != n_tokens) {
        throw Error("{}: tokenizer.ggml.scores has {} entries, expected {}, one a token",
                    metadata.file(), scores->size(), n_tokens);
    }
    for (size_t i = 0; i < scores->size(); i++) {
        if (std::isnan((*scores)[i])) {
            throw Error("{}: tokenizer.ggml.scores[{}] is NaN, expected a number", metadata.file(),
                        i);
        }
    }
    return *scores;
}

std::optional<Token> read_id(const GgufMetadata& metadata, const TokenizerSpec& spec,
                             std::string_view key) {
    auto value = metadata.find_i64(key);
    if (!value) return std::nullopt;
    if (*value < 0 || *value >= spec.vocabulary.size()) {
        throw Error("{}: {} is {}, expected a token from 0 to {}", spec.file, key, *value,
                    spec.vocabulary.size() - 1);
    }
    return static_cast<Token>(*value);
}

std::optional<Token> find_control(const TokenizerSpec& spec, std::string_view text) {
    std::optional<Token> token = spec.vocabulary.find_any(text);
    if (token && spec.vocabulary.type(*token) != TokenType::kControl) token.reset();
    return token;
}

const PreTokenizer* read_pre(const GgufMetadata& metadata, const std::string& pre_override) {
    if (!pre_override.empty()) return pre_tokenizer_of_option(pre_override);
    auto name = metadata.find_string("tokenizer.ggml.pre");
    if (!name) {
        throw Error(
            "{}: tokenizer.ggml.pre is absent; say which pre-tokenizer to use with --pre "
            "NAME, one of {}",
            metadata.file(), pre_tokenizer_names());
    }
    const PreTokenizer* pre = find_pre_tokenizer(*name);
    if (pre == nullptr) {
        throw Error(
            "{}: tokenizer.ggml.pre is \"{}\", expected one of {}; --pre NAME uses one of "
            "these in its place",
            metadata.file(), printable(*name, 80), pre_tokenizer_names());
    }
    return pre;
}

void read_byte_level(const GgufMetadata& metadata, const std::string& pre_override,
                     TokenizerSpec& spec) {
    spec.pre = read_pre(metadata, pre_override);
    spec.nfc = spec.pre->nfc;
    spec.ignore_merges = spec.pre->ignore_merges;
    read_tokens(metadata, spec);
    read_scores(metadata, static_cast<size_t>(spec.vocabulary.size()));  // checked, not used
    read_merges(metadata, spec);
}

void read_sentencepiece(const GgufMetadata& metadata, const std::string& pre_override,
                        TokenizerSpec& spec) {
    if (!pre_override.empty()) {
        throw Error(ErrorKind::kUsage,
                    "--pre {}: {} has a SentencePiece vocabulary, which uses no pre-tokenizer",
                    printable(pre_override, 80), spec.file);
    }
    if (metadata.find_bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false)) {
        throw Error("{}: tokenizer.ggml.remove_extra_whitespaces is true, expected false",
                    spec.file);
    }
    read_tokens(metadata, spec);
    std::vector<float> scores = read_scores(metadata, static_cast<size_t>(spec.vocabulary.size()));
    if (scores.empty()) {
        throw Error("{}: tokenizer.ggml.scores is absent, expected for tokenizer.ggml.model llama",
                    spec.file);
    }
    index_characters(spec);
    add_score_merges(spec, scores);
    spec.byte_fallback = true;
    bool prefix = metadata.find_bool("tokenizer.ggml.add_space_prefix").value_or(true);
    spec.space_prefix = prefix ? SpacePrefix::kAlways : SpacePrefix::kNone;
    for (Token id = 0; id < spec.vocabulary.size() && !spec.unknown; id++) {
        if (spec.vocabulary.type(id) == TokenType::kUnknown) spec.unknown = id;
    }
}

}  // namespace

TokenizerSpec read_gguf_tokenizer(const GgufMetadata& metadata, const std::string& pre_override) {
    TokenizerSpec spec;
    spec.file = metadata.file();
    auto model = metadata.find_string("tokenizer.ggml.model");
    if (!model) {
        throw Error("{}: tokenizer.ggml.model is absent, expected gpt2 or llama", spec.file);
    }
    if (*model == "gpt2") {
        spec.kind = TokenizerKind::kBytes;
        read_byte_level(metadata, pre_override, spec);
    } else if (*model == "llama") {
        spec.kind = TokenizerKind::kCharacters;
        read_sentencepiece(metadata, pre_override, spec);
    } else {
        throw Error("{}: tokenizer.ggml.model is \"{}\", expected gpt2 or llama", spec.file,
                    printable(*model, 80));
    }
    complete_added_tokens(spec);

    read_id(metadata, spec, "tokenizer.ggml.padding_token_id");  // checked, not used
    if (auto unknown = read_id(metadata, spec, "tokenizer.ggml.unknown_token_id")) {
        spec.unknown = unknown;
    }
    spec.bos = read_id(metadata, spec, "tokenizer.ggml.bos_token_id");
    spec.eos = read_id(metadata, spec, "tokenizer.ggml.eos_token_id");
    if (spec.kind == TokenizerKind::kCharacters) {
        if (!spec.bos) spec.bos = find_control(spec, "<s>");
        if (!spec.eos) spec.eos = find_control(spec, "</s>");
    }
    bool implied = spec.pre == nullptr || spec.pre->add_bos;
    auto add_bos = metadata.find_bool("tokenizer.ggml.add_bos_token");
    if (add_bos.value_or(false) && !spec.bos) {
        throw Error(
            "{}: tokenizer.ggml.add_bos_token is true and tokenizer.ggml.bos_token_id is "
            "absent",
            spec.file);
    }
    spec.add_bos = add_bos.value_or(implied) && spec.bos.has_value();
    std::vector<Token> ends;
    for (std::string_view key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
        if (auto token = read_id(metadata, spec, key)) ends.push_back(*token);
    }
    set_end_tokens(spec, ends);
    return spec;
}

}  // namespace ridge
