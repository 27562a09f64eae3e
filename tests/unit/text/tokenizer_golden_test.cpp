#include <random>

#include "support/seed.h"
#include "tokenizer_files.h"

// Small vocabularies of every kind with the ids that the official libraries give for many odd
// texts; made by scripts/goldens/tokenizer_cases.py.

namespace ridge {
namespace {

std::string test_name(const testing::TestParamInfo<const char*>& info) {
    std::string name = info.param;
    for (char& c : name) c = c == '-' ? '_' : c;
    return name;
}

std::vector<std::string> texts(const char* kind) {
    return read_json_file(golden_folder() + "texts.json")[kind];
}

void expect_ids(const Tokenizer& tokenizer, const JsonMap& ids) {
    for (bool special : {false, true}) {
        const char* kind = special ? "special" : "plain";
        std::vector<std::string> inputs = texts(kind);
        ASSERT_EQ(inputs.size(), ids[kind].size());
        for (size_t i = 0; i < inputs.size(); i++) {
            EncodeOptions options{.add_bos = false, .parse_special = special};
            EXPECT_EQ(tokenizer.encode(inputs[i], options), ids[kind][i].get<Ids>())
                << testing::PrintToString(inputs[i]);
        }
    }
}

class JsonGolden : public testing::TestWithParam<const char*> {};

TEST_P(JsonGolden, gives_the_official_ids) {
    std::string folder = golden_folder() + GetParam();
    expect_ids(Tokenizer::open_json(folder), read_json_file(folder + "/ids.json"));
}

INSTANTIATE_TEST_SUITE_P(All, JsonGolden,
                         testing::Values("gpt-2", "llama-bpe", "qwen2", "smollm", "llama2-legacy",
                                         "llama2-first", "llama2-always"),
                         test_name);

// The vocabularies again, as a GGUF file has them. GPT-2's added tokens have flags, which it has
// not.
class GgufGolden : public testing::TestWithParam<const char*> {};

TEST_P(GgufGolden, gives_the_official_ids) {
    std::string folder = golden_folder() + GetParam();
    GgufTokenizer gguf = gguf_of_json(read_json_file(folder + "/tokenizer.json"), GetParam());
    JsonMap ids = read_json_file(folder + "/ids.json");
    expect_ids(gguf.open(), ids);
    gguf.pre.clear();
    expect_ids(gguf.open(GetParam()), ids);  // as --pre gives it
}

INSTANTIATE_TEST_SUITE_P(All, GgufGolden, testing::Values("llama-bpe", "qwen2", "smollm"),
                         test_name);

// Of vocabularies that have all bytes and neither compose text nor add spaces.
class Lossless : public testing::TestWithParam<const char*> {};

TEST_P(Lossless, ids_give_any_bytes_back) {
    Tokenizer tokenizer = Tokenizer::open_json(golden_folder() + GetParam());
    auto expect_back = [&](const std::string& text) {
        Ids ids = tokenizer.encode(text, {.add_bos = false});
        EXPECT_EQ(tokenizer.decode(ids, true), text);
    };
    for (const std::string& text : texts("plain")) expect_back(text);
    uint64_t seed = test_seed();
    std::mt19937_64 random(seed);
    for (int i = 0; i < 2'000; i++) {
        std::string bytes;
        for (size_t n = random() % 20; n > 0; n--) bytes += static_cast<char>(random());
        expect_back(bytes);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Lossless, testing::Values("gpt-2", "llama-bpe"), test_name);

class SentencePieceGolden : public testing::TestWithParam<const char*> {};

GgufTokenizer sentencepiece_gguf(const JsonMap& json) {
    GgufTokenizer gguf;
    gguf.model = "llama";
    gguf.pre = "default";
    gguf.tokens = json["tokens"];
    gguf.scores = json["scores"].get<std::vector<float>>();
    gguf.types = json["types"].get<std::vector<int32_t>>();
    return gguf;
}

TEST_P(SentencePieceGolden, gguf_gives_the_ids_of_sentencepiece) {
    JsonMap json = read_json_file(golden_folder() + GetParam() + ".json");
    Tokenizer tokenizer = sentencepiece_gguf(json).open();
    std::vector<std::string> inputs = texts("plain");
    ASSERT_EQ(inputs.size(), json["plain"].size());
    for (size_t i = 0; i < inputs.size(); i++) {
        EXPECT_EQ(tokenizer.encode(inputs[i], {.add_bos = false}), json["plain"][i].get<Ids>())
            << testing::PrintToString(inputs[i]);
    }
    EXPECT_EQ(tokenizer.bos(), 1);
    EXPECT_EQ(tokenizer.eos(), 2);
    EXPECT_TRUE(tokenizer.add_bos());
}

INSTANTIATE_TEST_SUITE_P(All, SentencePieceGolden,
                         testing::Values("sentencepiece", "sentencepiece-unknown"), test_name);

TEST(SentencePiece, decodes_without_the_space_that_it_adds) {
    JsonMap json = read_json_file(golden_folder() + "sentencepiece.json");
    Tokenizer tokenizer = sentencepiece_gguf(json).open();
    for (std::string text : {"hello", " hello", "  two", "\xe6\xbc\xa2\xff\x80", ""}) {
        Ids ids = tokenizer.encode(text);
        EXPECT_EQ(ids.at(0), 1);
        EXPECT_EQ(tokenizer.decode(ids, false), text);
        EXPECT_EQ(tokenizer.decode(ids, true), "<s>" + text);
    }
}

TEST(SentencePiece, starts_each_part_between_control_tokens_with_a_space) {
    JsonMap json = read_json_file(golden_folder() + "sentencepiece.json");
    Tokenizer tokenizer = sentencepiece_gguf(json).open();
    Ids word = tokenizer.encode("the", {.add_bos = false});
    Ids want = {1};
    want.insert(want.end(), word.begin(), word.end());
    want.push_back(2);
    want.insert(want.end(), word.begin(), word.end());
    EXPECT_EQ(tokenizer.encode("<s>the</s>the", {.parse_special = true}), want);
    GgufTokenizer bare = sentencepiece_gguf(json);
    bare.flags = {{"add_space_prefix", false}};
    EXPECT_EQ(bare.open().decode(bare.open().encode("the"), false), "the");
    EXPECT_NE(bare.open().encode("the", {.add_bos = false}), word);
}

TEST(SentencePiece, passes_over_a_token_without_text) {
    JsonMap json = read_json_file(golden_folder() + "sentencepiece.json");
    GgufTokenizer gguf = sentencepiece_gguf(json);
    Ids word = gguf.open().encode("the");
    gguf.tokens.push_back(""), gguf.scores.push_back(0), gguf.types.push_back(1);
    EXPECT_EQ(gguf.open().encode("the"), word);
}

TEST(SentencePiece, never_makes_a_byte_token_from_its_name) {
    JsonMap json = read_json_file(golden_folder() + "sentencepiece.json");
    Tokenizer tokenizer = sentencepiece_gguf(json).open();
    for (Token id : tokenizer.encode("<0x41>", {.parse_special = true})) {
        EXPECT_NE(tokenizer.piece(id), "A");
    }
}

}  // namespace
}  // namespace ridge
