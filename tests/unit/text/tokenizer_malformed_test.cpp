#include <functional>
#include <limits>

#include "support/temporary_folder.h"
#include "tokenizer_files.h"

namespace ridge {
namespace {

// A small valid vocabulary with one fault, and what the error must say beside the file's name.
struct GgufFault {
    std::string name;
    std::function<void(GgufTokenizer&)> edit;
    std::vector<std::string> says;
};

void PrintTo(const GgufFault& fault, std::ostream* out) {
    *out << fault.name;
}

void make_sentencepiece(GgufTokenizer& gguf) {
    gguf = {};
    gguf.model = "llama";
    gguf.tokens = {"<unk>", "<s>", "</s>", "<0x41>", "a", "b", "ab"};
    gguf.types = {2, 3, 3, 6, 1, 1, 1};
    gguf.scores = {0, 0, 0, 0, -1, -2, -3};
}

// As every fault of a SentencePiece vocabulary begins.
std::function<void(GgufTokenizer&)> sentencepiece(std::function<void(GgufTokenizer&)> edit) {
    return [edit](GgufTokenizer& gguf) {
        make_sentencepiece(gguf);
        edit(gguf);
    };
}

std::vector<GgufFault> gguf_faults() {
    using G = GgufTokenizer;
    return {
        {"model_absent", [](G& g) { g.model.clear(); }, {"tokenizer.ggml.model", "absent", "gpt2"}},
        {"model_unknown",
         [](G& g) { g.model = "bert\x1b[2J"; },
         {"tokenizer.ggml.model", "bert\\x1b", "gpt2 or llama"}},
        {"pre_absent",
         [](G& g) { g.pre.clear(); },
         {"tokenizer.ggml.pre", "absent", "--pre", "qwen2"}},
        {"pre_unknown",
         [](G& g) { g.pre = "whatever"; },
         {"tokenizer.ggml.pre", "\"whatever\"", "--pre", "llama-bpe", "smollm"}},
        {"no_tokens",
         [](G& g) { g.tokens.clear(), g.types.clear(); },
         {"tokenizer.ggml.tokens", "0 entries"}},
        {"types_short",
         [](G& g) { g.types.pop_back(); },
         {"tokenizer.ggml.token_type", "903 entries", "904"}},
        {"types_long",
         [](G& g) { g.types.push_back(1); },
         {"tokenizer.ggml.token_type", "905", "904"}},
        {"type_7", [](G& g) { g.types[5] = 7; }, {"token_type[5] is 7", "1 to 6"}},
        {"type_0", [](G& g) { g.types[5] = 0; }, {"token_type[5] is 0", "1 to 6"}},
        {"type_negative", [](G& g) { g.types[5] = -1; }, {"token_type[5] is -1", "1 to 6"}},
        {"bos_past_the_vocabulary",
         [](G& g) {
             g.ids = {{"bos_token_id", 904}};
         },
         {"tokenizer.ggml.bos_token_id is 904", "0 to 903"}},
        {"eos_past_the_vocabulary",
         [](G& g) {
             g.ids = {{"eos_token_id", UINT32_MAX}};
         },
         {"tokenizer.ggml.eos_token_id is 4294967295", "0 to 903"}},
        {"eot_past_the_vocabulary",
         [](G& g) {
             g.ids = {{"eot_token_id", 1'000'000}};
         },
         {"tokenizer.ggml.eot_token_id is 1000000", "0 to 903"}},
        {"bos_wanted_and_absent",
         [](G& g) {
             g.flags = {{"add_bos_token", true}};
         },
         {"add_bos_token", "bos_token_id"}},
        {"padding_past_the_vocabulary",
         [](G& g) {
             g.ids = {{"padding_token_id", 904}};
         },
         {"tokenizer.ggml.padding_token_id is 904", "0 to 903"}},
        {"scores_of_another_length",
         [](G& g) { g.scores.assign(903, 0.0f); },
         {"tokenizer.ggml.scores", "903 entries", "904"}},
        {"no_merges", [](G& g) { g.merges.clear(); }, {"tokenizer.ggml.merges", "absent"}},
        {"merge_of_an_unknown_token",
         [](G& g) { g.merges[3] = "qqq zzz"; },
         {"tokenizer.ggml.merges[3]", "\"qqq zzz\"", "two tokens"}},
        {"merge_that_makes_no_token",
         [](G& g) { g.merges[3] = "@ ~"; },
         {"tokenizer.ggml.merges[3]", "\"@ ~\"", "two tokens"}},
        {"merge_without_a_space", [](G& g) { g.merges[3] = "the"; }, {"merges[3]", "\"the\""}},
        {"merge_empty", [](G& g) { g.merges[0] = ""; }, {"merges[0]", "\"\""}},
        {"byte_token_negative",
         [](G& g) { g.tokens[9] = "<0x-1>", g.types[9] = 6; },
         {"tokens[9]", "<0x-1>", "<0x00> to <0xFF>"}},
        {"control_token_too_long",
         [](G& g) { g.tokens[903] = std::string(513, 'x'); },
         {"903", "513 bytes", "512"}},
        {"control_tokens_too_long_together",
         [](G& g) {
             g.tokens.resize(904 + 131'072, std::string(512, 'x'));
             g.types.resize(g.tokens.size(), 3);
         },
         {"control", "bytes together", "67108864"}},
        {"scores_absent",
         sentencepiece([](G& g) { g.scores.clear(); }),
         {"tokenizer.ggml.scores", "absent"}},
        {"scores_short",
         sentencepiece([](G& g) { g.scores.pop_back(); }),
         {"tokenizer.ggml.scores", "6 entries", "7"}},
        {"score_nan",
         sentencepiece([](G& g) { g.scores[4] = std::numeric_limits<float>::quiet_NaN(); }),
         {"tokenizer.ggml.scores[4]", "NaN"}},
        {"byte_token_not_hexadecimal",
         sentencepiece([](G& g) { g.tokens[3] = "<0xGG>"; }),
         {"tokens[3]", "<0xGG>", "<0x00> to <0xFF>"}},
        {"byte_token_signed",
         sentencepiece([](G& g) { g.tokens[3] = "<0x-1>"; }),
         {"tokens[3]", "<0x-1>"}},
        {"piece_too_long",
         sentencepiece([](G& g) { g.tokens[6] = std::string(257, 'a'); }),
         {"token 6", "257 bytes", "256"}},
        {"unknown_past_the_vocabulary",
         sentencepiece([](G& g) {
             g.ids = {{"unknown_token_id", 7}};
         }),
         {"unknown_token_id is 7", "0 to 6"}},
        {"extra_white_space_removed",
         sentencepiece([](G& g) {
             g.flags = {{"remove_extra_whitespaces", true}};
         }),
         {"remove_extra_whitespaces", "true"}},
    };
}

class GgufTokenizerFault : public testing::TestWithParam<GgufFault> {};

TEST_P(GgufTokenizerFault, is_refused_in_one_line) {
    GgufTokenizer gguf =
        gguf_of_json(read_json_file(golden_folder() + "gpt-2/tokenizer.json"), "gpt-2");
    ASSERT_EQ(gguf.open().n_vocab(), 907);
    gguf.tokens.resize(904), gguf.types.resize(904);
    ASSERT_EQ(gguf.open().n_vocab(), 904);
    GetParam().edit(gguf);
    std::string message = error_of([&] { gguf.open(); });
    expect_has(message, {"small.gguf: "});
    expect_has(message, GetParam().says);
}

INSTANTIATE_TEST_SUITE_P(All, GgufTokenizerFault, testing::ValuesIn(gguf_faults()),
                         [](const auto& info) { return info.param.name; });

TEST(GgufTokenizer, refuses_values_of_other_types) {
    struct Case {
        std::string key;
        std::function<void(GgufWriter&)> add;
        std::vector<std::string> says;
    };
    const Case cases[] = {
        {"tokens",
         [](GgufWriter& w) {
             w.add_i32s("tokenizer.ggml.tokens", {1, 2});
         },
         {"ARRAY of INT32"}},
        {"tokens", [](GgufWriter& w) { w.add_string("tokenizer.ggml.tokens", "a"); }, {"STRING"}},
        {"model", [](GgufWriter& w) { w.add_u32("tokenizer.ggml.model", 1); }, {"UINT32"}},
        {"token_type",
         [](GgufWriter& w) {
             w.add_f32s("tokenizer.ggml.token_type", {1, 1});
         },
         {"ARRAY of FLOAT32"}},
        {"merges",
         [](GgufWriter& w) { w.add_i32s("tokenizer.ggml.merges", {1}); },
         {"ARRAY of INT32"}},
        {"bos_token_id",
         [](GgufWriter& w) { w.add_f32("tokenizer.ggml.bos_token_id", 1); },
         {"FLOAT32"}},
        {"add_bos_token",
         [](GgufWriter& w) { w.add_u32("tokenizer.ggml.add_bos_token", 1); },
         {"UINT32"}},
    };
    for (const Case& c : cases) {
        GgufWriter writer;
        std::string key = "tokenizer.ggml." + c.key;
        c.add(writer);
        if (c.key != "model") writer.add_string("tokenizer.ggml.model", "gpt2");
        if (c.key != "pre") writer.add_string("tokenizer.ggml.pre", "gpt-2");
        if (c.key != "tokens") writer.add_strings("tokenizer.ggml.tokens", {"a", "b"});
        if (c.key != "merges") writer.add_strings("tokenizer.ggml.merges", {});
        std::string message =
            error_of([&] { Tokenizer::open(ModelFile::from_memory(writer.build("small.gguf"))); });
        expect_has(message, {"small.gguf", key});
        expect_has(message, c.says);
    }
}

TEST(GgufTokenizer, refuses_pre_for_what_has_none_or_is_unknown) {
    GgufTokenizer gguf;
    make_sentencepiece(gguf);
    EXPECT_EQ(gguf.open().encode("ab", {.add_bos = false}), (Ids{0, 6}));  // the space is unknown
    expect_has(error_of([&] { gguf.open("qwen2"); }), {"--pre qwen2", "SentencePiece"});
    gguf = gguf_of_json(read_json_file(golden_folder() + "gpt-2/tokenizer.json"), "gpt-2");
    expect_has(error_of([&] { gguf.open("q2"); }), {"--pre q2", "unknown", "qwen2"});
}

struct JsonFault {
    std::string name;
    std::function<void(JsonMap&)> edit;
    std::vector<std::string> says;
};

void PrintTo(const JsonFault& fault, std::ostream* out) {
    *out << fault.name;
}

std::vector<JsonFault> json_faults() {
    using J = JsonMap;
    auto with_pre = [](J value) { return [value](J& j) { j["pre_tokenizer"] = value; }; };
    J split = {{"type", "Split"},
               {"pattern", {{"Regex", "\\p{Han}+|\x1b"}}},
               {"behavior", "Isolated"},
               {"invert", false}};
    J removed = split;
    removed["behavior"] = "Removed";
    J bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    J prefixed = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
    J sequence = {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
    return {
        {"model_absent", [](J& j) { j.erase("model"); }, {"model"}},
        {"model_wordpiece",
         [](J& j) { j["model"]["type"] = "WordPiece"; },
         {"model.type", "WordPiece", "BPE"}},
        {"vocab_absent", [](J& j) { j["model"].erase("vocab"); }, {"model.vocab"}},
        {"vocab_a_list", [](J& j) { j["model"]["vocab"] = J::array(); }, {"model.vocab"}},
        {"vocab_empty",
         [](J& j) { j["model"]["vocab"] = J::object(), j["added_tokens"] = J::array(); },
         {"model.vocab"}},
        {"id_negative",
         [](J& j) { j["model"]["vocab"]["the"] = -3; },
         {"vocab[\"the\"] is -3", "0 to"}},
        {"id_past_int32",
         [](J& j) { j["model"]["vocab"]["the"] = 4294967296; },
         {"4294967296", "0 to"}},
        {"id_far_beyond_the_others",
         [](J& j) { j["model"]["vocab"]["the"] = 2147483647; },
         {"2147483647", "expected below"}},
        {"id_a_fraction",
         [](J& j) { j["model"]["vocab"]["the"] = 1.5; },
         {"vocab[\"the\"] is 1.5"}},
        {"id_a_text", [](J& j) { j["model"]["vocab"]["the"] = "x"; }, {"vocab[\"the\"]", "x"}},
        {"id_an_object",
         [](J& j) { j["model"]["vocab"]["the"] = J::object(); },
         {"vocab[\"the\"]"}},
        {"id_given_twice",
         [](J& j) { j["model"]["vocab"]["the"] = j["model"]["vocab"]["an"]; },
         {"given to", "\"the\"", "\"an\""}},
        {"merges_absent", [](J& j) { j["model"].erase("merges"); }, {"model.merges"}},
        {"merges_an_object", [](J& j) { j["model"]["merges"] = J::object(); }, {"model.merges"}},
        {"merge_a_number", [](J& j) { j["model"]["merges"][2] = 5; }, {"model.merges[2]", "5"}},
        {"merge_of_three",
         [](J& j) {
             j["model"]["merges"][2] = {"a", "b", "c"};
         },
         {"model.merges[2]", "3"}},
        {"merge_of_one", [](J& j) { j["model"]["merges"][2] = {"a"}; }, {"model.merges[2]", "1"}},
        {"merge_without_a_space",
         [](J& j) { j["model"]["merges"][2] = "ab"; },
         {"model.merges[2]", "ab"}},
        {"merge_of_an_unknown_token",
         [](J& j) { j["model"]["merges"][2] = "qqq zzz"; },
         {"model.merges[2]", "qqq", "zzz"}},
        {"dropout", [](J& j) { j["model"]["dropout"] = 0.1; }, {"model.dropout", "0.1"}},
        {"word_suffix",
         [](J& j) { j["model"]["end_of_word_suffix"] = "</w>"; },
         {"end_of_word_suffix", "</w>"}},
        {"ignore_merges_a_number",
         [](J& j) { j["model"]["ignore_merges"] = 1; },
         {"ignore_merges", "1"}},
        {"normalizer_unknown",
         [](J& j) {
             j["normalizer"] = {{"type", "NFKC"}};
         },
         {"normalizer", "NFKC", "NFC"}},
        {"normalizer_a_text", [](J& j) { j["normalizer"] = "NFC"; }, {"normalizer", "NFC"}},
        {"regex_unknown", with_pre(sequence), {"pre_tokenizer", "\\p{Han}", "--pre", "qwen2"}},
        {"split_removes", with_pre(removed), {"pre_tokenizer", "Removed", "--pre"}},
        {"prefix_space", with_pre(prefixed), {"pre_tokenizer", "add_prefix_space"}},
        {"whitespace_split", with_pre({{"type", "Whitespace"}}), {"Whitespace", "--pre"}},
        {"bytes_alone", with_pre(bytes), {"pre_tokenizer", "--pre"}},
        {"pre_tokenizer_null", with_pre(nullptr), {"pre_tokenizer"}},
        {"sequence_without_parts",
         with_pre({{"type", "Sequence"}}),
         {"pre_tokenizer", "pretokenizers"}},
        {"post_processor_unknown",
         [](J& j) {
             j["post_processor"] = {{"type", "BertProcessing"}};
         },
         {"post_processor", "BertProcessing"}},
        {"bos_unknown",
         [](J& j) {
             j["post_processor"] = {{"type", "TemplateProcessing"},
                                    {"single", {{{"SpecialToken", {{"id", "<nope>"}}}}}}};
         },
         {"post_processor", "<nope>"}},
        {"added_tokens_an_object", [](J& j) { j["added_tokens"] = J::object(); }, {"added_tokens"}},
        {"added_token_without_an_id",
         [](J& j) { j["added_tokens"][0].erase("id"); },
         {"added_tokens"}},
        {"added_token_empty", [](J& j) { j["added_tokens"][0]["content"] = ""; }, {"added_tokens"}},
        {"added_token_too_long",
         [](J& j) { j["added_tokens"][0]["content"] = std::string(600, 'x'); },
         {"600 bytes", "512"}},
        {"added_token_on_a_taken_id",
         [](J& j) { j["added_tokens"][0]["id"] = 3; },
         {"id 3 is given"}},
    };
}

class JsonTokenizerFault : public testing::TestWithParam<JsonFault> {};

TEST_P(JsonTokenizerFault, is_refused_in_one_line) {
    JsonMap json = read_json_file(golden_folder() + "gpt-2/tokenizer.json");
    GetParam().edit(json);
    TemporaryFolder folder;
    std::string path = folder.write("tokenizer.json", json.dump());
    std::string message = error_of([&] { Tokenizer::open_json(path); });
    expect_has(message, {path + ": "});
    expect_has(message, GetParam().says);
}

INSTANTIATE_TEST_SUITE_P(All, JsonTokenizerFault, testing::ValuesIn(json_faults()),
                         [](const auto& info) { return info.param.name; });

TEST(JsonTokenizer, takes_pre_in_place_of_an_unknown_rule) {
    JsonMap json = read_json_file(golden_folder() + "qwen2/tokenizer.json");
    json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = ".+";
    TemporaryFolder folder;
    std::string path = folder.write("tokenizer.json", json.dump());
    Tokenizer official = Tokenizer::open_json(golden_folder() + "qwen2");
    EXPECT_EQ(Tokenizer::open_json(path, "qwen2").encode("It's 12 e\xcc\x81"),
              official.encode("It's 12 e\xcc\x81"));
    expect_has(error_of([&] { Tokenizer::open_json(path, "q2"); }), {"--pre q2", "qwen2"});
}

TEST(JsonTokenizer, refuses_what_is_not_json) {
    TemporaryFolder folder;
    std::string path = folder.path("tokenizer.json");
    for (const auto& [bytes, says] : std::vector<std::pair<std::string, std::string>>{
             {"", "line 1"},
             {"{\"model\": }", "line 1, column 11"},
             {"[]", "object"},
             {"{\"model\":{\"vocab\":{\"\xff\":1}}}", "JSON"},
             {"{\"model\":{\"vocab\":{\"a\":1}", "JSON"},
             {"{\"model\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}",
              "deeper"},
             {"{\"model\":{\"vocab\":{\"a\":1e999}}}", "JSON"},
         }) {
        folder.write("tokenizer.json", bytes);
        expect_has(error_of([&] { Tokenizer::open_json(path); }), {path, says});
    }
    expect_has(error_of([&] { Tokenizer::open_json(folder.path("absent.json")); }),
               {"absent.json"});
}

TEST(JsonTokenizer, refuses_configs_that_name_no_token) {
    TemporaryFolder folder;
    JsonMap json = read_json_file(golden_folder() + "gpt-2/tokenizer.json");
    folder.write("tokenizer.json", json.dump());
    auto refuse = [&](const char* file, const char* text, std::vector<std::string> says) {
        std::string path = folder.write(file, text);
        says.push_back(file);
        expect_has(error_of([&] { Tokenizer::open_json(folder.path()); }), says);
        std::filesystem::remove(path);
    };
    refuse("tokenizer_config.json", R"({"eos_token":"<nope>"})", {"eos_token", "<nope>"});
    refuse("tokenizer_config.json", R"({"bos_token":5})", {"bos_token", "5"});
    refuse("generation_config.json", R"({"eos_token_id":[1,907]})", {"eos_token_id", "907", "906"});
    refuse("generation_config.json", R"({"eos_token_id":-1})", {"eos_token_id", "-1"});
    refuse("config.json", R"({"eos_token_id":"x"})", {"eos_token_id", "x"});
    refuse("config.json", "{", {"JSON"});
}

}  // namespace
}  // namespace ridge
