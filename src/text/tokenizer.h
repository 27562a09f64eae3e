#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/token.h"

namespace ridge {

class ModelFile;

// A part of a text with its origin. Trusted text is a template's own: control and user-defined
// tokens written in it become those tokens. Other text came from a user: what looks like one there
// is tokenised as plain text, so nobody can write <|im_end|> or </think> into a conversation.
struct TextSpan {
    std::string_view text;
    bool trusted;
};

struct EncodeOptions {
    bool add_bos = true;         // where the model wants one; never a second one
    bool parse_special = false;  // all text is trusted
};

// Text to token ids and back, by the vocabulary of a model: byte-level BPE (GPT-2, Llama 3, Qwen,
// SmolLM) or SentencePiece BPE (Llama 2, TinyLlama). Immutable: threads may share one.
//
// Bytes that are not UTF-8 become the tokens of those bytes, and come back unchanged. Where the
// vocabulary lacks some of the bytes 0x80 to 0xFF they are replaced by U+FFFD; a valid character
// whose bytes have no tokens is left out, as the official tokenizers do, or becomes the unknown
// token of a SentencePiece model.
class Tokenizer {
  public:
    // From GGUF metadata, or from the tokenizer.json beside the safetensors. `pre_override` names
    // the pre-tokenizer (see pre_tokenizer_names()) where the file's own is absent or unknown.
    // Throws Error for what is not a vocabulary of a known kind.
    static Tokenizer open(const ModelFile& file, const std::string& pre_override = "");
    // From a tokenizer.json or a folder that holds one, and the tokenizer_config.json,
    // generation_config.json and config.json beside it where they are there.
    static Tokenizer open_json(const std::string& path, const std::string& pre_override = "");
    // From the text of a tokenizer.json alone; `name` stands for it in errors.
    static Tokenizer from_json(std::string_view json, const std::string& name,
                               const std::string& pre_override = "");

    // Plain text, as the official tokenizers read it: control tokens in it are plain text (unless
    // parse_special), user-defined ones (Qwen3's <think>) are found.
    std::vector<Token> encode(std::string_view text, const EncodeOptions& options = {}) const;
    // Spans are one text, and pre-tokens cross from one to the next; but an added token is found
    // only where neighbouring trusted spans hold all of it.
    std::vector<Token> encode(std::span<const TextSpan> spans,
                              const EncodeOptions& options = {}) const;

    // The bytes that the token adds to a text; of control tokens their name. Empty for ids past the
    // vocabulary.
    std::string_view piece(Token token) const;
    // The text of the tokens, without the space that encode() puts before it; control tokens count
    // only `with_special`. Throws Error for ids past the vocabulary.
    std::string decode(std::span<const Token> tokens, bool with_special) const;

    bool is_control(Token token) const;
    TokenType type(Token token) const;  // kUnused for ids past the vocabulary
    int n_vocab() const;
    std::optional<Token> bos() const;
    std::optional<Token> eos() const;
    bool add_bos() const;                          // whether the model wants a BOS token
    const std::vector<Token>& end_tokens() const;  // all ids that end an answer, ascending
    // The token of exactly these bytes (see piece()); a control or user-defined one first.
    std::optional<Token> find(std::string_view text) const;

    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

  private:
    struct Impl;
    explicit Tokenizer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace ridge
