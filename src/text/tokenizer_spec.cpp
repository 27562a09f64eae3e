#include "text/tokenizer_spec.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace ridge {
namespace {

constexpr uint32_t kMaxByteLevelCode = 0x143;  // the last of 68 bytes that are written from U+0100

// byte_of[code] for the characters that stand for bytes; -1: none.
std::array<int, kMaxByteLevelCode + 1> byte_level_table() {
    std::array<int, kMaxByteLevelCode + 1> byte_of;
    byte_of.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool printed = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        byte_of[printed ? byte : next++] = static_cast<int>(byte);
    }
    return byte_of;
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// Tokens that end a turn or a text in published models, whether or not the file names them as such.
constexpr std::string_view kEndTexts[] = {"<|eot_id|>",    "<|im_end|>", "<|end_of_text|>",
                                          "<|endoftext|>", "<|eom_id|>", "</s>"};

}  // namespace

std::string byte_level_bytes(std::string_view text) {
    static const std::array<int, kMaxByteLevelCode + 1> byte_of = byte_level_table();
    std::string bytes;
    for (size_t at = 0; at < text.size();) {
        Utf8Char c = decode_utf8(text.substr(at));
        if (!c.valid || c.code > kMaxByteLevelCode || byte_of[c.code] < 0) return std::string(text);
        bytes += static_cast<char>(byte_of[c.code]);
        at += c.n_bytes;
    }
    return bytes;
}

std::string spaced_bytes(std::string_view text) {
    constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581
    std::string bytes;
    bytes.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
        size_t mark = text.find(kSpaceMark, at);
        bytes += text.substr(at, mark - at);
        if (mark == std::string_view::npos) break;
        bytes += ' ';
        at = mark + kSpaceMark.size();
    }
    return bytes;
}

std::optional<uint8_t> byte_of_byte_token(std::string_view text) {
    if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    if (high < 0 || low < 0) return std::nullopt;
    return static_cast<uint8_t>(high * 16 + low);
}

void complete_added_tokens(TokenizerSpec& spec) {
    std::vector<bool> listed(static_cast<size_t>(spec.vocabulary.size()));
    for (const AddedToken& token : spec.added) listed[static_cast<size_t>(token.id)] = true;
    for (Token id = 0; id < spec.vocabulary.size(); id++) {
        TokenType type = spec.vocabulary.type(id);
        bool added = type == TokenType::kControl || type == TokenType::kUserDefined;
        if (added && !listed[static_cast<size_t>(id)]) spec.added.push_back({.id = id});
    }
    size_t n_all_bytes = 0;
    for (const AddedToken& token : spec.added) {
        size_t n_bytes = spec.vocabulary.bytes(token.id).size();
        if (n_bytes > kMaxAddedTokenBytes) {
            throw Error(
                "{}: the control or user-defined token {} has {} bytes, expected at most {}",
                spec.file, token.id, n_bytes, kMaxAddedTokenBytes);
        }
        n_all_bytes += n_bytes;
    }
    if (n_all_bytes > kMaxAddedTokensBytes) {
        throw Error(
            "{}: the control and user-defined tokens have {} bytes together, expected at most {}",
            spec.file, n_all_bytes, kMaxAddedTokensBytes);
    }
    std::erase_if(spec.added,
                  [&](const AddedToken& token) { return spec.vocabulary.bytes(token.id).empty(); });
}

bool add_merge(TokenizerSpec& spec, std::string_view left, std::string_view right, uint32_t rank) {
    const Vocabulary& vocabulary = spec.vocabulary;
    std::string joined(left);
    joined += right;
    auto left_id = vocabulary.find_normal(left);
    auto right_id = vocabulary.find_normal(right);
    auto joined_id = vocabulary.find_normal(joined);
    if (left_id && right_id && joined_id) {
        spec.merges.add({*left_id, *right_id, *joined_id, rank});
        return true;
    }
    return vocabulary.find_any(left) && vocabulary.find_any(right) && vocabulary.find_any(joined);
}

const PreTokenizer* pre_tokenizer_of_option(const std::string& name) {
    const PreTokenizer* pre = find_pre_tokenizer(name);
    if (pre != nullptr) return pre;
    throw Error(ErrorKind::kUsage, "--pre {}: unknown pre-tokenizer, expected one of {}",
                printable(name, 80), pre_tokenizer_names());
}

void index_characters(TokenizerSpec& spec) {
    const Vocabulary& vocabulary = spec.vocabulary;
    Token next = vocabulary.size();
    auto add = [&](std::string_view text) {
        Utf8Char c = decode_utf8(text);
        if (!c.valid || spec.characters.contains(c.code)) return;
        std::optional<Token> token = vocabulary.find_normal(text.substr(0, c.n_bytes));
        spec.characters.emplace(c.code, token ? *token : next++);
    };
    for (Token id = 0; id < vocabulary.size(); id++) {
        if (vocabulary.type(id) != TokenType::kNormal) continue;
        std::string_view text = vocabulary.bytes(id);
        for (size_t at = 0; at < text.size(); at += decode_utf8(text.substr(at)).n_bytes) {
            add(text.substr(at));
        }
    }
}

void set_end_tokens(TokenizerSpec& spec, const std::vector<Token>& named) {
    spec.end_tokens = named;
    if (spec.eos) spec.end_tokens.push_back(*spec.eos);
    for (std::string_view text : kEndTexts) {
        std::optional<Token> token = spec.vocabulary.find_any(text);
        if (token && spec.vocabulary.type(*token) == TokenType::kControl) {
            spec.end_tokens.push_back(*token);
        }
    }
    std::sort(spec.end_tokens.begin(), spec.end_tokens.end());
    spec.end_tokens.erase(std::unique(spec.end_tokens.begin(), spec.end_tokens.end()),
                          spec.end_tokens.end());
}

}  // namespace ridge
