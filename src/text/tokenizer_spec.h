#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pre_tokenizer.h"
#include "text/token.h"
#include "text/vocabulary.h"

namespace ridge {

class GgufMetadata;

// Everything a tokenizer is, whichever file it came from. The readers check it; the Tokenizer uses
// it.

enum class TokenizerKind : uint8_t {
    kBytes,       // symbols start as bytes, within pre-tokens (GPT-2, Llama 3, Qwen)
    kCharacters,  // symbols start as characters, across spaces (SentencePiece: Llama 2, TinyLlama)
};

// kCharacters: where a space is put before the text, so that its first word is written like others.
enum class SpacePrefix : uint8_t {
    kNone,
    kText,          // at the start of the text alone, if it does not begin with a space
    kUnlessSpaced,  // there and after each added token, if no space is there
    kAlways,        // there and after each added token
};

struct TokenizerSpec {
    std::string file;  // for messages
    TokenizerKind kind = TokenizerKind::kBytes;
    Vocabulary vocabulary;
    MergeTable merges;
    std::vector<AddedToken> added;  // control and user-defined tokens

    const PreTokenizer* pre = nullptr;  // kBytes
    bool nfc = false;
    bool ignore_merges = false;

    SpacePrefix space_prefix = SpacePrefix::kNone;   // kCharacters
    std::unordered_map<uint32_t, Token> characters;  // kCharacters: ids of single characters; those
                                                     // past the vocabulary only take part in merges
    bool byte_fallback = false;
    bool fuse_unknown = true;  // neighbouring unknown characters are one unknown token

    std::optional<Token> bos, eos, unknown;
    bool add_bos = false;
    std::vector<Token> end_tokens;
};

// kBytes: what a token's text as files write it stands for. Files write each byte as a printable
// character (bytes 33 to 126, 161 to 172 and 174 to 255 as themselves, the others from U+0100 on:
// Radford et al. 2019, encoder.py of GPT-2). Text with any other character stands for itself.
std::string byte_level_bytes(std::string_view text);
// kCharacters: the same, where U+2581 stands for a space.
std::string spaced_bytes(std::string_view text);
// The byte of "<0x0A>"; empty for anything else.
std::optional<uint8_t> byte_of_byte_token(std::string_view text);

// Adds the control and user-defined tokens of the vocabulary that `spec.added` lacks to it, and
// checks all of them.
void complete_added_tokens(TokenizerSpec& spec);
// Adds the merge of two tokens' bytes. False: these or the joined bytes are no token. Merges that
// plain text cannot reach are left out: an added token is found before anything merges.
bool add_merge(TokenizerSpec& spec, std::string_view left, std::string_view right, uint32_t rank);
// The pre-tokenizer that --pre names; Error for unknown ones.
const PreTokenizer* pre_tokenizer_of_option(const std::string& name);
// kCharacters: gives every character that occurs in a token an id.
void index_characters(TokenizerSpec& spec);
// end_tokens: `named`, and control tokens that are known to end a turn or a text. Each once.
void set_end_tokens(TokenizerSpec& spec, const std::vector<Token>& named);

// tokenizer.ggml.* of a GGUF file. `pre_override`, unless empty, is used in place of
// tokenizer.ggml.pre.
TokenizerSpec read_gguf_tokenizer(const GgufMetadata& metadata, const std::string& pre_override);

// A tokenizer.json's text, with what the JSON files beside it say of BOS and the end of an answer.
// `file` names it in errors. `pre_override`, unless empty, is used in place of its pre_tokenizer's
// rule.
struct TokenizerConfigs;
TokenizerSpec read_json_tokenizer(std::string_view json, const std::string& file,
                                  const TokenizerConfigs& configs, const std::string& pre_override);

// Merges of a SentencePiece BPE model, which has scores instead of a list: any two symbols whose
// joined text is a token may merge, those of the highest score first (Kudo and Richardson 2018).
void add_score_merges(TokenizerSpec& spec, const std::vector<float>& scores);

}  // namespace ridge
