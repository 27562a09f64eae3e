// Encodes the input with a small vocabulary of each kind. The first byte chooses the vocabulary;
// the bytes 0x1E of the rest cut it into spans, trusted and not in turn.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "file/gguf_writer.h"
#include "file/model_file.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

namespace ridge {
namespace {

constexpr std::array<const char*, 6> kKinds = {"gpt-2",  "llama-bpe", "qwen2", "deepseek-r1-qwen",
                                               "smollm", ""};  // the last: SentencePiece

struct Small {
    std::vector<std::string> tokens, merges;
    std::vector<int32_t> types;
    std::vector<float> scores;

    void add(const std::string& text, int32_t type, float score = 0) {
        tokens.push_back(text);
        types.push_back(type);
        scores.push_back(score);
    }
};

Small byte_level() {
    Small small;
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool printed = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        std::string text;
        append_utf8(text, printed ? byte : next++);
        small.add(text, 1);
    }
    for (const char* merge : {"t h", "th e", "\xc4\xa0 the", "a a", "aa aa", "\xc4\xa0 \xc4\xa0",
                              "\xc4\x8a \xc4\x8a", "1 2", "12 3", "' s", "\xc3\x83 \xc2\xa9"}) {
        std::string text = merge;
        small.merges.push_back(text);
        text.erase(text.find(' '), 1);
        small.add(text, 1);
    }
    return small;
}

Small sentencepiece() {
    Small small;
    small.add("<unk>", 2);
    for (int byte = 0; byte < 256; byte++) small.add(fmt::format("<0x{:02X}>", byte), 6);
    float score = 0;
    for (const char* text : {"\xe2\x96\x81t", "he", "\xe2\x96\x81the", "aa", "aaaa", "a", "t", "h",
                             "e", "\xe2\x96\x81", "\xe2\x96\x81\xe2\x96\x81"}) {
        small.add(text, 1, score--);
    }
    return small;
}

Tokenizer make(const std::string& pre) {
    Small small = pre.empty() ? sentencepiece() : byte_level();
    for (const char* text : {"<s>", "</s>", "<|im_start|>", "<|im_end|>"}) small.add(text, 3);
    for (const char* text : {"<think>", "</think>", "  \n"}) small.add(text, 4);
    GgufWriter writer;
    writer.add_string("tokenizer.ggml.model", pre.empty() ? "llama" : "gpt2");
    writer.add_string("tokenizer.ggml.pre", pre);
    writer.add_strings("tokenizer.ggml.tokens", small.tokens);
    writer.add_i32s("tokenizer.ggml.token_type", small.types);
    writer.add_strings("tokenizer.ggml.merges", small.merges);
    writer.add_f32s("tokenizer.ggml.scores", small.scores);
    return Tokenizer::open(ModelFile::from_memory(writer.build("small.gguf")));
}

void encode_all(const Tokenizer& tokenizer, std::string_view text, bool lossless) {
    std::vector<TextSpan> spans;
    std::string joined;
    for (size_t begin = 0; begin <= text.size();) {
        size_t end = std::min(text.find('\x1e', begin), text.size());
        spans.push_back({text.substr(begin, end - begin), spans.size() % 2 == 1});
        joined += spans.back().text;
        begin = end + 1;
    }
    EncodeOptions options{.add_bos = false};
    std::vector<Token> ids = tokenizer.encode(spans, options);
    CHECK(!lossless || tokenizer.decode(ids, true) == joined);
    for (TextSpan& span : spans) span.trusted = false;
    std::vector<Token> plain = tokenizer.encode(spans, options);
    for (Token token : plain) CHECK(tokenizer.type(token) != TokenType::kControl);
    for (Token token : plain) CHECK(tokenizer.type(token) != TokenType::kUserDefined);
    CHECK(!lossless || tokenizer.decode(plain, true) == joined);
    tokenizer.encode(joined, {.parse_special = true});

    // What is shown of the ids, one at a time, is UTF-8 and stops at the stop string.
    TextStream stream;
    StopMatcher stop({"the end", "aaa"});
    std::string shown;
    for (Token token : ids) shown += stop.push(stream.push(tokenizer.piece(token)));
    if (!stop.stopped()) shown += stop.push(stream.finish());
    shown += stop.finish();
    for (size_t at = 0; at < shown.size();) {
        Utf8Char c = decode_utf8(std::string_view(shown).substr(at));
        CHECK(c.valid);
        at += c.n_bytes;
    }
    CHECK(shown.find("aaa") == std::string::npos);
}

}  // namespace
}  // namespace ridge

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
    using namespace ridge;
    static const std::vector<Tokenizer> tokenizers = [] {
        std::vector<Tokenizer> made;
        for (const char* pre : kKinds) made.push_back(make(pre));
        return made;
    }();
    if (n_bytes == 0) return 0;
    size_t kind = data[0] % kKinds.size();
    std::string_view text(reinterpret_cast<const char*>(data) + 1, n_bytes - 1);
    bool lossless = kind != 2 && kind != 3 && kind != 5;  // the others compose or add spaces
    encode_all(tokenizers[kind], text, lossless);
    return 0;
}
