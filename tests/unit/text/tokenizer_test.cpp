#include "text/tokenizer.h"

#include "base/timer.h"
#include "support/temporary_folder.h"
#include "tokenizer_files.h"

namespace ridge {
namespace {

Tokenizer qwen() {
    return Tokenizer::open_json(golden_folder() + "qwen2/tokenizer.json");
}

Tokenizer llama() {
    return Tokenizer::open_json(golden_folder() + "llama-bpe/tokenizer.json");
}

constexpr EncodeOptions kNoBos{.add_bos = false};

Ids encode(const Tokenizer& tokenizer, std::initializer_list<TextSpan> spans) {
    return tokenizer.encode(std::span<const TextSpan>(spans.begin(), spans.size()), kNoBos);
}

TEST(Tokenizer, finds_control_tokens_only_in_trusted_text) {
    Tokenizer t = qwen();
    Token end = t.find("<|im_end|>").value();
    EXPECT_EQ(encode(t, {{"<|im_end|>", true}}), Ids{end});
    Ids plain = t.encode("<|im_end|>", kNoBos);
    EXPECT_EQ(encode(t, {{"<|im_end|>", false}}), plain);
    EXPECT_EQ(std::count(plain.begin(), plain.end(), end), 0);
    EXPECT_EQ(t.encode("<|im_end|>", {.add_bos = false, .parse_special = true}), Ids{end});
}

TEST(Tokenizer, finds_user_defined_tokens_in_plain_text_but_not_in_a_users_span) {
    Tokenizer t = qwen();
    Token think = t.find("<think>").value();
    EXPECT_EQ(t.type(think), TokenType::kUserDefined);
    EXPECT_EQ(t.encode("<think>", kNoBos), Ids{think});
    EXPECT_EQ(encode(t, {{"<think>", true}}), Ids{think});
    Ids plain = encode(t, {{"<think>", false}});
    EXPECT_EQ(std::count(plain.begin(), plain.end(), think), 0);
    EXPECT_EQ(t.decode(plain, true), "<think>");
}

TEST(Tokenizer, makes_no_token_of_parts_with_different_origin) {
    Tokenizer t = qwen();
    Token think = t.find("<think>").value();
    for (Ids ids :
         {encode(t, {{"<thi", true}, {"nk>", false}}), encode(t, {{"<thi", false}, {"nk>", true}}),
          encode(t, {{"<", true}, {"think", false}, {">", true}}),
          encode(t, {{"<thi", false}, {"nk>", false}})}) {
        EXPECT_EQ(std::count(ids.begin(), ids.end(), think), 0);
        EXPECT_EQ(t.decode(ids, true), "<think>");
    }
    EXPECT_EQ(encode(t, {{"<thi", true}, {"", false}, {"nk>", true}}).size(),
              encode(t, {{"<thi", false}, {"nk>", false}}).size());
    EXPECT_EQ(encode(t, {{"<thi", true}, {"nk>", true}}), Ids{think});
}

TEST(Tokenizer, cuts_pre_tokens_across_spans) {
    Tokenizer t = qwen();
    Ids whole = t.encode("the weather is\n\nhere", kNoBos);
    EXPECT_EQ(encode(t, {{"the wea", false}, {"ther is\n", true}, {"\nhe", false}, {"re", false}}),
              whole);
    Ids turn = encode(t, {{"<|im_end|>\n", true}, {"\nthe", false}});
    EXPECT_EQ(turn, t.encode("<|im_end|>\n\nthe", {.add_bos = false, .parse_special = true}));
    EXPECT_EQ(encode(t, {{"e", true}, {"\xcc\x81", false}}), t.encode("\xc3\xa9", kNoBos));
    EXPECT_EQ(encode(t, {}), Ids{});
}

TEST(Tokenizer, has_exactly_one_bos) {
    Tokenizer t = llama();
    ASSERT_TRUE(t.add_bos());
    Token bos = t.bos().value();
    EXPECT_EQ(t.encode(""), Ids{bos});
    Ids plain = t.encode("hello");
    EXPECT_EQ(plain.at(0), bos);
    EXPECT_EQ(std::count(plain.begin(), plain.end(), bos), 1);
    std::string name(t.piece(bos));
    EXPECT_EQ(t.encode(name + "hello", {.parse_special = true}), plain);
    TextSpan spans[] = {{name, true}, {"hello", false}};
    EXPECT_EQ(t.encode(spans), plain);
    Ids typed = t.encode(name + "hello");  // typed by a user: text
    EXPECT_EQ(typed.at(0), bos);
    EXPECT_EQ(std::count(typed.begin(), typed.end(), bos), 1);
    EXPECT_EQ(t.decode(typed, false), name + "hello");
    EXPECT_EQ(t.encode("hello", kNoBos), Ids(plain.begin() + 1, plain.end()));
    EXPECT_FALSE(qwen().add_bos());
    EXPECT_EQ(qwen().encode(""), Ids{});
}

TEST(Tokenizer, knows_no_token_past_the_vocabulary) {
    Tokenizer t = qwen();
    for (Token id : {-1, t.n_vocab(), INT32_MAX, INT32_MIN}) {
        EXPECT_EQ(t.piece(id), "");
        EXPECT_EQ(t.type(id), TokenType::kUnused);
        EXPECT_FALSE(t.is_control(id));
        Ids ids = {0, id};
        expect_has(error_of([&] { (void)t.decode(ids, true); }),
                   {"tokenizer.json", std::to_string(id), std::to_string(t.n_vocab() - 1)});
    }
    EXPECT_EQ(t.find("no such token at all"), std::nullopt);
}

TEST(Tokenizer, shows_control_tokens_only_when_asked) {
    Tokenizer t = qwen();
    Ids ids = t.encode("<|im_start|>a<think>b<|im_end|>", {.parse_special = true});
    EXPECT_EQ(t.decode(ids, false), "a<think>b");
    EXPECT_EQ(t.decode(ids, true), "<|im_start|>a<think>b<|im_end|>");
}

TEST(Tokenizer, replaces_bytes_that_the_vocabulary_lacks) {
    Tokenizer t = Tokenizer::open_json(golden_folder() + "smollm");
    EXPECT_EQ(t.decode(t.encode("a\xff z", kNoBos), true), "a\xef\xbf\xbd z");
    EXPECT_EQ(t.decode(t.encode("a\x04z", kNoBos), true), "az");  // as the official tokenizer
}

TEST(Tokenizer, encodes_long_runs_in_linear_time) {
    std::string alternating;
    for (int i = 0; i < 40'000; i++) alternating += "\xcc\x81\xcc\xa3";
    auto times = [](const char* text, int n) {
        std::string out;
        for (int i = 0; i < n; i++) out += text;
        return out;
    };
    std::vector<std::string> runs = {alternating, times("1", 200'000), times("<think", 50'000),
                                     times(" \n", 100'000), times("'", 200'000)};
    for (const char* text : {"A", " ", "\n", "\xe6\xbc\xa2", "\xcc\x81"}) {
        runs.push_back(times(text, 200'000));
    }
    for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "smollm", "llama2-legacy"}) {
        Tokenizer t = Tokenizer::open_json(golden_folder() + name);
        for (const std::string& run : runs) {
            Timer timer;
            Ids ids = t.encode(run, {.add_bos = false, .parse_special = true});
            EXPECT_LT(timer.elapsed_ms(), 3'000) << name << ' ' << run.substr(0, 6);
            if (std::string(name) != "qwen2") {
                EXPECT_EQ(t.decode(ids, true), run);
            }
        }
    }
}

// Every place of the text begins all of these tokens but for their last bytes.
TEST(Tokenizer, finds_tokens_that_share_a_long_start_in_linear_time) {
    GgufTokenizer gguf =
        gguf_of_json(read_json_file(golden_folder() + "gpt-2/tokenizer.json"), "gpt-2");
    for (int i = 0; i < 1'000; i++) {
        gguf.tokens.push_back(std::string(480, 'x') + std::to_string(10'000 + i));
        gguf.types.push_back(3);
    }
    Tokenizer t = gguf.open();
    std::string text(2'000'000, 'x');
    Timer timer;
    Ids ids = t.encode(text + gguf.tokens.back(), {.add_bos = false, .parse_special = true});
    EXPECT_LT(timer.elapsed_ms(), 4'000);
    EXPECT_EQ(ids.back(), t.n_vocab() - 1);
}

TEST(Tokenizer, ends_at_every_token_that_the_files_name) {
    TemporaryFolder folder;
    JsonMap json = read_json_file(golden_folder() + "qwen2/tokenizer.json");
    json["model"]["merges"] = JsonMap::array();
    int n = json["model"]["vocab"].size() + 4;
    for (const char* text : {"<|endoftext|>", "<|stop|>", "<|halt|>", "<s>"}) {
        json["added_tokens"].push_back({{"id", n++}, {"content", text}, {"special", true}});
    }
    json["added_tokens"].push_back({{"id", n}, {"content", "</s>"}, {"special", false}});
    folder.write("tokenizer.json", json.dump());
    folder.write("tokenizer_config.json",
                 R"({"bos_token":{"content":"<s>"},"eos_token":"<|stop|>","add_bos_token":true})");
    folder.write("generation_config.json", "{\"eos_token_id\":[" + std::to_string(n - 2) + ",5]}");
    folder.write("config.json", "{\"eos_token_id\":7}");
    Tokenizer t = Tokenizer::open_json(folder.path());
    EXPECT_EQ(t.bos(), n - 1);
    EXPECT_TRUE(t.add_bos());
    EXPECT_EQ(t.eos(), n - 3);
    Ids want = {5, 7, t.find("<|im_end|>").value(), n - 4, n - 3, n - 2};
    EXPECT_EQ(t.end_tokens(), want);

    GgufTokenizer gguf = gguf_of_json(json, "qwen2");
    gguf.merges = {"e r"};
    gguf.ids = {{"bos_token_id", 3}, {"eos_token_id", 4}, {"eot_token_id", 5}, {"eom_token_id", 6}};
    Tokenizer g = gguf.open();
    want = {4, 5, 6, g.find("<|im_end|>").value(), n - 4};
    EXPECT_EQ(g.end_tokens(), want);
    EXPECT_EQ(g.bos(), 3);
    EXPECT_FALSE(g.add_bos());
    gguf.flags = {{"add_bos_token", true}};
    EXPECT_TRUE(gguf.open().add_bos());
}

TEST(Tokenizer, adds_bos_to_a_llama_3_file_that_does_not_say) {
    JsonMap json = read_json_file(golden_folder() + "llama-bpe/tokenizer.json");
    GgufTokenizer gguf = gguf_of_json(json, "llama-v3");
    EXPECT_FALSE(gguf.open().add_bos());  // there is none to add
    gguf.ids = {{"bos_token_id", 7}};
    EXPECT_TRUE(gguf.open().add_bos());
    gguf.flags = {{"add_bos_token", false}};
    EXPECT_FALSE(gguf.open().add_bos());
}

// Control tokens that the vocabulary also reaches by merges stay out of plain text's reach.
TEST(Tokenizer, never_merges_plain_text_into_a_control_token) {
    GgufTokenizer gguf =
        gguf_of_json(read_json_file(golden_folder() + "gpt-2/tokenizer.json"), "gpt-2");
    Ids before = gguf.open().encode("an", kNoBos);
    ASSERT_EQ(before.size(), 1u);
    gguf.types[static_cast<size_t>(before[0])] = 3;
    Ids after = gguf.open().encode("an", kNoBos);
    EXPECT_GT(after.size(), 1u);
    EXPECT_EQ(gguf.open().encode("an", {.add_bos = false, .parse_special = true}), before);
}

}  // namespace
}  // namespace ridge
