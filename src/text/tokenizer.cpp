#include "text/tokenizer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/files.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "file/folder_jsons.h"
#include "file/model_file.h"
#include "text/normalize.h"
#include "text/tokenizer_configs.h"
#include "text/tokenizer_spec.h"

namespace ridge {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 29;  // keeps offsets of symbols within 31 bits
constexpr uint64_t kMaxTokenizerJsonBytes = uint64_t{1} << 29;

// Which added tokens a part of a text may hold.
enum class Found : uint8_t { kNone, kUserDefined, kAll };

struct Run {
    size_t end;  // it begins where the one before it ends
    Found found;
};

std::string replace_invalid_utf8(std::string_view text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        Utf8Char c = decode_utf8(text.substr(at));
        append_utf8(out, c.code);
        at += c.n_bytes;
    }
    return out;
}

std::optional<Json> read_config(const std::string& path) {
    if (file_kind(path) == FileKind::kMissing) return std::nullopt;
    return read_json_object(path);
}

}  // namespace

struct Tokenizer::Impl {
    explicit Impl(TokenizerSpec spec_in);

    std::vector<Token> encode(std::string_view text, std::span<const Run> runs,
                              const EncodeOptions& options) const;

    TokenizerSpec spec;
    AddedTokenMatcher added;
    std::array<Token, 256> byte_tokens;  // -1: the vocabulary has none
    bool lacks_high_bytes = false;       // some of 0x80 to 0xFF have no token
};

namespace {

// Encodes one text; holds the memory that its parts share.
class Encoder {
  public:
    Encoder(const TokenizerSpec& spec, const std::array<Token, 256>& byte_tokens,
            bool lacks_high_bytes)
        : spec_(spec),
          byte_tokens_(byte_tokens),
          lacks_high_bytes_(lacks_high_bytes),
          merger_(spec.merges) {}

    // A stretch of text without added tokens.
    void encode(std::string_view text, bool at_start, std::vector<Token>& out) {
        if (text.empty()) return;
        std::string changed;
        if (spec_.nfc && !is_surely_nfc(text)) {
            changed = nfc(text);
            text = changed;
        }
        if (spec_.kind == TokenizerKind::kCharacters) {
            encode_characters(with_prefix(text, at_start), out);
            return;
        }
        if (lacks_high_bytes_) {
            changed = replace_invalid_utf8(text);
            text = changed;
        }
        PreTokenScanner scanner(*spec_.pre, text);
        for (std::string_view pre_token; scanner.next(pre_token);) encode_bytes(pre_token, out);
    }

  private:
    void encode_bytes(std::string_view pre_token, std::vector<Token>& out) {
        if (spec_.ignore_merges || pre_token.size() == 1) {
            if (auto token = spec_.vocabulary.find_normal(pre_token)) {
                out.push_back(*token);
                return;
            }
        }
        symbols_.clear();
        for (size_t i = 0; i < pre_token.size(); i++) {
            Token token = byte_tokens_[static_cast<uint8_t>(pre_token[i])];
            if (token >= 0) symbols_.push_back({token, static_cast<uint32_t>(i)});
        }
        merger_.merge(symbols_);
        for (const Symbol& symbol : symbols_) out.push_back(symbol.id);
    }

    std::string with_prefix(std::string_view text, bool at_start) const {
        std::string spaced = spaced_bytes(text);
        bool here = spec_.space_prefix == SpacePrefix::kText
                        ? at_start
                        : spec_.space_prefix != SpacePrefix::kNone;
        if (here && (spec_.space_prefix == SpacePrefix::kAlways || spaced[0] != ' ')) {
            spaced.insert(spaced.begin(), ' ');
        }
        return spaced;
    }

    void encode_characters(const std::string& text, std::vector<Token>& out) {
        symbols_.clear();
        for (size_t at = 0; at < text.size();) {
            Utf8Char c = decode_utf8(std::string_view(text).substr(at));
            auto found = c.valid ? spec_.characters.find(c.code) : spec_.characters.end();
            Token id = found == spec_.characters.end() ? -1 : found->second;
            symbols_.push_back({id, static_cast<uint32_t>(at)});
            at += c.n_bytes;
        }
        merger_.merge(symbols_);
        bool after_unknown = false;
        for (size_t i = 0; i < symbols_.size(); i++) {
            if (spec_.vocabulary.contains(symbols_[i].id)) {
                out.push_back(symbols_[i].id);
                after_unknown = false;
                continue;
            }
            size_t end = i + 1 < symbols_.size() ? symbols_[i + 1].begin : text.size();
            std::string_view bytes =
                std::string_view(text).substr(symbols_[i].begin, end - symbols_[i].begin);
            if (append_byte_tokens(bytes, out)) {
                after_unknown = false;
            } else if (spec_.unknown && !(after_unknown && spec_.fuse_unknown)) {
                out.push_back(*spec_.unknown);
                after_unknown = true;
            }
        }
    }

    bool append_byte_tokens(std::string_view bytes, std::vector<Token>& out) const {
        if (!spec_.byte_fallback) return false;
        for (char c : bytes) {
            if (byte_tokens_[static_cast<uint8_t>(c)] < 0) return false;
        }
        for (char c : bytes) out.push_back(byte_tokens_[static_cast<uint8_t>(c)]);
        return true;
    }

    const TokenizerSpec& spec_;
    const std::array<Token, 256>& byte_tokens_;
    bool lacks_high_bytes_;
    Merger merger_;
    std::vector<Symbol> symbols_;
};

AddedTokenMatcher matcher_of(const TokenizerSpec& spec) {
    std::vector<AddedTokenMatcher::Entry> entries;
    for (const AddedToken& token : spec.added) {
        entries.push_back({spec.vocabulary.bytes(token.id), token});
    }
    return AddedTokenMatcher(entries);
}

}  // namespace

Tokenizer::Impl::Impl(TokenizerSpec spec_in) : spec(std::move(spec_in)), added(matcher_of(spec)) {
    byte_tokens.fill(-1);
    TokenType wanted = spec.kind == TokenizerKind::kBytes ? TokenType::kNormal : TokenType::kByte;
    for (Token id = spec.vocabulary.size(); id-- > 0;) {
        std::string_view bytes = spec.vocabulary.bytes(id);
        if (bytes.size() == 1 && spec.vocabulary.type(id) == wanted) {
            byte_tokens[static_cast<uint8_t>(bytes[0])] = id;
        }
    }
    lacks_high_bytes = spec.kind == TokenizerKind::kBytes &&
                       std::any_of(byte_tokens.begin() + 0x80, byte_tokens.end(),
                                   [](Token token) { return token < 0; });
}

std::vector<Token> Tokenizer::Impl::encode(std::string_view text, std::span<const Run> runs,
                                           const EncodeOptions& options) const {
    if (text.size() > kMaxTextBytes) {
        throw Error("a text of {} bytes cannot be tokenised, expected at most {}", text.size(),
                    kMaxTextBytes);
    }
    std::vector<Token> out;
    Encoder encoder(spec, byte_tokens, lacks_high_bytes);
    size_t plain = 0;  // start of the text since the last added token
    size_t run_begin = 0;
    for (const Run& run : runs) {
        size_t at = std::max(run_begin, plain);
        run_begin = run.end;
        if (run.found == Found::kNone) continue;
        if (at >= run.end) continue;
        AddedTokenMatcher::Search search = added.search(text, at, run.end);
        while (auto match = search.next()) {
            bool control = spec.vocabulary.type(match->id) == TokenType::kControl;
            if (control && run.found != Found::kAll) continue;
            encoder.encode(text.substr(plain, match->begin - plain), plain == 0, out);
            out.push_back(match->id);
            plain = match->end;
        }
    }
    encoder.encode(text.substr(plain), plain == 0, out);
    if (options.add_bos && spec.add_bos && (out.empty() || out[0] != *spec.bos)) {
        out.insert(out.begin(), *spec.bos);
    }
    return out;
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::open(const ModelFile& file, const std::string& pre_override) {
    if (file.type() == FileType::kGguf) {
        return Tokenizer(
            std::make_unique<Impl>(read_gguf_tokenizer(file.metadata(), pre_override)));
    }
    std::optional<std::string> path = file.tokenizer_json_path();
    if (!path) throw Error("{}: has no tokenizer.json", printable(file.path(), 0));
    TokenizerConfigs configs{file.tokenizer_config(), file.generation_config(), &file.config()};
    return Tokenizer(std::make_unique<Impl>(read_json_tokenizer(
        read_file(*path, kMaxTokenizerJsonBytes), *path, configs, pre_override)));
}

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& name,
                               const std::string& pre_override) {
    return Tokenizer(std::make_unique<Impl>(read_json_tokenizer(json, name, {}, pre_override)));
}

Tokenizer Tokenizer::open_json(const std::string& path, const std::string& pre_override) {
    bool is_folder = file_kind(path) == FileKind::kDirectory;
    std::string folder = is_folder ? path + "/" : path.substr(0, path.find_last_of('/') + 1);
    std::string json_path = is_folder ? folder + "tokenizer.json" : path;
    std::optional<Json> tokenizer_config = read_config(folder + "tokenizer_config.json");
    std::optional<Json> generation_config = read_config(folder + "generation_config.json");
    std::optional<Json> config = read_config(folder + "config.json");
    auto pointer = [](const std::optional<Json>& json) { return json ? &*json : nullptr; };
    TokenizerConfigs configs{pointer(tokenizer_config), pointer(generation_config),
                             pointer(config)};
    return Tokenizer(std::make_unique<Impl>(read_json_tokenizer(
        read_file(json_path, kMaxTokenizerJsonBytes), json_path, configs, pre_override)));
}

std::vector<Token> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
    Run run{text.size(), options.parse_special ? Found::kAll : Found::kUserDefined};
    return impl_->encode(text, {&run, 1}, options);
}

std::vector<Token> Tokenizer::encode(std::span<const TextSpan> spans,
                                     const EncodeOptions& options) const {
    std::string text;
    std::vector<Run> runs;
    for (const TextSpan& span : spans) {
        text += span.text;
        Found found = span.trusted || options.parse_special ? Found::kAll : Found::kNone;
        if (!runs.empty() && runs.back().found == found) {
            runs.back().end = text.size();
        } else {
            runs.push_back({text.size(), found});
        }
    }
    return impl_->encode(text, runs, options);
}

std::string_view Tokenizer::piece(Token token) const {
    const Vocabulary& vocabulary = impl_->spec.vocabulary;
    return vocabulary.contains(token) ? vocabulary.bytes(token) : std::string_view();
}

std::string Tokenizer::decode(std::span<const Token> tokens, bool with_special) const {
    std::string text;
    bool strip = impl_->spec.space_prefix != SpacePrefix::kNone;
    for (Token token : tokens) {
        if (!impl_->spec.vocabulary.contains(token)) {
            throw Error("{}: token {} is not in the vocabulary, expected 0 to {}", impl_->spec.file,
                        token, n_vocab() - 1);
        }
        std::string_view bytes = piece(token);
        if (is_control(token)) {
            if (with_special) text += bytes;
            continue;
        }
        if (strip && !bytes.empty() && bytes[0] == ' ') bytes.remove_prefix(1);
        strip = false;
        text += bytes;
    }
    return text;
}

bool Tokenizer::is_control(Token token) const {
    TokenType kind = type(token);
    return kind == TokenType::kControl || kind == TokenType::kUnknown;
}

TokenType Tokenizer::type(Token token) const {
    const Vocabulary& vocabulary = impl_->spec.vocabulary;
    return vocabulary.contains(token) ? vocabulary.type(token) : TokenType::kUnused;
}

int Tokenizer::n_vocab() const {
    return impl_->spec.vocabulary.size();
}

std::optional<Token> Tokenizer::bos() const {
    return impl_->spec.bos;
}

std::optional<Token> Tokenizer::eos() const {
    return impl_->spec.eos;
}

bool Tokenizer::add_bos() const {
    return impl_->spec.add_bos;
}

const std::vector<Token>& Tokenizer::end_tokens() const {
    return impl_->spec.end_tokens;
}

std::optional<Token> Tokenizer::find(std::string_view text) const {
    return impl_->spec.vocabulary.find_any(text);
}

}  // namespace ridge
