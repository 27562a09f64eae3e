#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/checks.h"
#include "cli/program.h"

namespace ridge::cli {
namespace {

using Json = nlohmann::json;

TEST(Program, says_how_it_is_used) {
    Result bare = run({});
    EXPECT_EQ(bare.status, 2);
    EXPECT_EQ(bare.out, "");
    EXPECT_NE(bare.err.find("Usage:"), std::string::npos);
    Result help = run({"--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_EQ(help.err, "");
    for (const char* command :
         {"run", "chat", "tokenize", "template", "eval", "inspect", "bench", "synth", "version"}) {
        SCOPED_TRACE(command);
        EXPECT_NE(help.out.find(std::string("\n  ") + command), std::string::npos);
        Result one = run({command, "--help"});
        EXPECT_EQ(one.status, 0);
        EXPECT_NE(one.out.find(std::string("Example:\n  ridge ") + command), std::string::npos);
        EXPECT_EQ(run({"help", command}).out, one.out);
        EXPECT_EQ(run({command, "-h"}).out, one.out);
    }
}

TEST(Program, names_what_it_does_not_know_and_guesses) {
    expect_error({"rum"}, 2, "did you mean run?");
    expect_error({"--frobnicate"}, 2, "--frobnicate");
    expect_error({"\x1b[2J"}, 2, "\\x1b[2J");
    expect_error({"run", "-m", "x", "--tmp", "1"}, 2, "unknown option --tmp; did you mean --temp?");
    expect_error({"run", "-m", "x", "-p", "y", "word"}, 2, "unexpected argument \"word\"");
    expect_error({"run", "-m", "x", "-p"}, 2, "-p needs a value");
    for (const char* command :
         {"chat", "tokenize", "template", "eval", "inspect", "bench", "synth", "version"})
        expect_error({command, "--no-such-option"}, 2, "unknown option --no-such-option");
}

TEST(Program, shows_its_version) {
    Result text = run({"--version"});
    EXPECT_EQ(text.status, 0);
    EXPECT_EQ(text.out.rfind("ridge ", 0), 0u);
    Json json = Json::parse(run({"version", "--json"}).out);
    for (const char* key : {"version", "commit", "compiler", "build_type", "cpu", "n_threads",
                            "cpu_features", "cpu_isas", "cpu_isa", "devices"})
        EXPECT_TRUE(json.contains(key)) << key;
}

TEST(Program, refuses_bad_values_by_option_and_value) {
    Arguments run_with = {"run", "-m", tiny_model(), "-p", "x"};
    struct Bad {
        const char *option, *value, *said;
    };
    for (Bad bad : {Bad{"--temp", "nan", "--temp \"nan\""},
                    Bad{"--temp", "-1", "from 0 to 100"},
                    Bad{"--temp", "1x", "--temp \"1x\""},
                    Bad{"--top-p", "1.1", "from 0 to 1"},
                    Bad{"--min-p", "-0.1", "from 0 to 1"},
                    Bad{"--top-k", "-1", "--top-k \"-1\""},
                    Bad{"--top-k", "4294967296", "--top-k"},
                    Bad{"-n", "1e3", "--n-predict \"1e3\""},
                    Bad{"-n", "-2", "from -1 to 2147483647"},
                    Bad{"-c", "-1", "--ctx-size \"-1\""},
                    Bad{"-c", "99999999999999999999", "--ctx-size"},
                    Bad{"-t", "0", "from 1 to"},
                    Bad{"-s", "-2", "--seed \"-2\""},
                    Bad{"--repeat-penalty", "0", "0.01 to 100"},
                    Bad{"-ctk", "q3", "--cache-type-k \"q3\": expected one of f32, f16"},
                    Bad{"--logit-bias", "5", "--logit-bias"},
                    Bad{"--logit-bias", "999999+1", "not in the vocabulary"},
                    Bad{"--stop", "", "--stop"},
                    Bad{"--date", "2026-02-30", "--date"},
                    Bad{"--chat-template", "zeus", "one of llama3"},
                    Bad{"--device", "abacus", "--device \"abacus\": expected one of auto, cpu"},
                    Bad{"--checkpoint", "warp", "--checkpoint \"warp\": expected one of ref"},
                    Bad{"--device-memory", "0", "--device-memory \"0\": expected a number"},
                    Bad{"--cpu-isa", "mmx",
                        "--cpu-isa \"mmx\": expected one of scalar, avx2, avx512, "
                        "amx, neon"},
                    Bad{"--logprobs", "1", "--json"},
                    Bad{"-f", "y", "exclude each other"}})
        expect_error(with(run_with, {bad.option, bad.value}), 2, bad.said);
    expect_error({"run", "-m", tiny_model(), "--ids", "1,x", "--json"}, 2, "--ids \"x\"");
    expect_error({"run", "-m", tiny_model(), "--ids", "1,4096", "--json"}, 2,
                 "--ids 4096: not in the vocabulary, expected an id below 4096");
    // Weights of 32 GB are not made for it.
    expect_error({"run", "-m", "synth:qwen3-8b:F32", "-c", "8", "--raw", "-p", "a b c d e f g h i"},
                 1, "tokens and the context holds 8");
    expect_error(with(run_with, {"--device-memory", "0.001"}), 1, "GB needed for");
    expect_error({"run", "-p", "x"}, 2, "no model");
}

TEST(Program, refuses_names_that_are_empty_and_says_what_it_expected) {
    struct Empty {
        const char *command, *option, *said;
    };
    for (Empty empty :
         {Empty{"run", "--cpu-isa", "--cpu-isa \"\": expected one of scalar"},
          Empty{"run", "--checkpoint", "--checkpoint \"\": expected one of ref, plain"},
          Empty{"run", "--device", "--device \"\": expected one of auto, cpu, cuda:N"},
          Empty{"run", "-m", "--model \"\": expected a GGUF file"},
          Empty{"run", "-f", "--file \"\": expected a file"},
          Empty{"run", "--pre", "--pre \"\": expected the name of"},
          Empty{"run", "--chat-template-file", "expected a file"},
          Empty{"chat", "--checkpoint", "expected one of ref, plain"},
          Empty{"eval", "--cpu-isa", "expected one of scalar"},
          Empty{"eval", "--reference", "--reference \"\": expected a file"},
          Empty{"eval", "--reference-checkpoint", "expected one of ref, plain"},
          Empty{"eval", "--save-logits", "--save-logits \"\": expected a file"},
          Empty{"bench", "-m", "no model"},
          Empty{"bench", "--cpu-isa", "expected one of scalar"},
          Empty{"bench", "--checkpoint", "expected all, or some of ref, plain"},
          Empty{"bench", "-ctk", "some of f32, f16"},
          Empty{"tokenize", "-m", "--model \"\": expected a model"},
          Empty{"template", "--messages", "--messages \"\": expected a file"},
          Empty{"template", "--tools", "--tools \"\": expected a file"},
          Empty{"synth", "--format", "--format \"\": expected a format"},
          Empty{"synth", "-o", "--output \"\": expected a file"}}) {
        Arguments arguments = {empty.command, empty.option, ""};
        if (empty.command != std::string("synth"))
            arguments.insert(arguments.begin() + 1, {"-m", tiny_model()});
        expect_error(arguments, 2, empty.said);
    }
    expect_error({"run", "-m", "synth::Q4_0", "-p", "x"}, 2, "expected synth:NAME:FORMAT");
    expect_error({"run", "-m", "synth:tiny-llama3:", "-p", "x"}, 2, "expected synth:NAME:FORMAT");
}

TEST(Program, takes_options_from_variables) {
    Setting setting;
    setting.environment = {{"RIDGE_MODEL", tiny_model()}, {"RIDGE_N_PREDICT", "3"},
                           {"RIDGE_JSON", "1"},           {"RIDGE_TOP_P", "0.5"},
                           {"RIDGE_FILE", "/nowhere"},    {"RIDGE_NO_SUCH_THING", "1"}};
    Result result = run({"run", "--ids", "1,2", "-q"}, setting);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(Json::parse(result.out)["tokens"].size(), 3u);
    EXPECT_EQ(Json::parse(run({"run", "--ids", "1,2", "-n", "2"}, setting).out)["tokens"].size(),
              2u);
    setting.environment["RIDGE_TOP_P"] = "much";
    expect_error({"run", "--ids", "1,2"}, 2, "RIDGE_TOP_P \"much\"", setting);
    setting.environment["RIDGE_TOP_P"] = "";
    EXPECT_EQ(run({"run", "--ids", "1,2"}, setting).status, 0);
}

TEST(Program, blames_a_variable_for_what_the_model_cannot_do) {
    for (auto [name, value] :
         {std::pair("RIDGE_DEVICE", "zz"), std::pair("RIDGE_CHECKPOINT", "zz"),
          std::pair("RIDGE_PRE", "zz"), std::pair("RIDGE_CTX_SIZE", "2000000000"),
          std::pair("RIDGE_LOGIT_BIAS", "99999999+1"), std::pair("RIDGE_CACHE_TYPE_K", "q3")}) {
        Setting setting;
        setting.environment = {{name, value}};
        expect_error({"run", "-m", tiny_model(), "-p", "x", "-q"}, 2, name, setting);
    }
    Setting setting;
    setting.environment = {{"RIDGE_LOGPROBS", "5"}};
    EXPECT_EQ(run(with(continuation("1"), {"-p", "x"}), setting).status, 0);
    setting.environment["RIDGE_JSON"] = "1";
    Json json = Json::parse(run(with(continuation("1"), {"-p", "x"}), setting).out);
    EXPECT_TRUE(json.contains("logprobs"));
}

TEST(Program, takes_quiet_everywhere) {
    for (const Arguments& arguments :
         {Arguments{"tokenize", "-m", tiny_model(), "-p", "x"}, Arguments{"version"},
          Arguments{"inspect", "-m", tiny_model()}, Arguments{"synth", "--list"},
          Arguments{"template", "--chat-template", "chatml", "-p", "x"}}) {
        Result result = run(with(arguments, {"-q"}));
        EXPECT_EQ(result.status, 0) << result.err;
        EXPECT_EQ(result.err, "");
    }
}

TEST(Program, refuses_a_line_that_does_not_end) {
    Setting setting;
    setting.input = std::string(size_t{17} << 20, 'x');
    expect_error({"chat", "-m", tiny_model(), "-q"}, 1, "line 1 is longer than 16777216", setting);
    expect_error({"tokenize", "-m", tiny_model(), "--jsonl"}, 1, "line 1 is longer", setting);
    std::string line(size_t{9} << 20, 'x');
    setting.input = line + "\\\n" + line + "\n";
    expect_error({"chat", "-m", tiny_model(), "-q"}, 1, "the message is longer", setting);
}

TEST(Program, is_quiet_when_the_reader_goes_away) {
    Setting setting;
    setting.read_at_most = 1;
    for (Arguments arguments :
         {with(continuation("2000"), {"-p", "a"}), Arguments{"inspect", "-m", tiny_model()},
          Arguments{"run", "--help"}}) {
        Result result = run(arguments, setting);
        EXPECT_EQ(result.status, 0);
        EXPECT_EQ(result.err, "");
    }
}

TEST(Program, says_when_its_output_cannot_be_written) {
    Setting full, closed;
    full.output_path = "/dev/full";
    closed.close_output = true;
    for (Arguments arguments : {with(continuation("9"), {"-p", "a"}), Arguments{"version"},
                                Arguments{"inspect", "-m", tiny_model()}}) {
        expect_error(arguments, 1, "standard output: cannot write", full);
        expect_error(arguments, 1, "standard output: cannot write", closed);
    }
}

TEST(Run, refuses_what_is_no_model) {
    std::string text = write_scratch("notes.txt", "no model at all\n");
    std::string empty = write_scratch("empty.gguf", "");
    mkdir((scratch_folder() + "/folder").c_str(), 0700);
    for (const char* command : {"run", "inspect", "tokenize"}) {
        Arguments base = {command};
        if (base[0] != "inspect") base = with(base, {"-p", "x"});
        expect_error(with(base, {"-m", "/no/such/file"}), 1, "/no/such/file");
        expect_error(with(base, {"-m", scratch_folder() + "/folder"}), 1, "folder");
        expect_error(with(base, {"-m", text}), 1, "notes.txt");
        expect_error(with(base, {"-m", empty}), 1, "empty.gguf");
        expect_error(with(base, {"-m", "/dev/null"}), 1, "/dev/null");
        expect_error(with(base, {"-m", "synth:tiny-llama3"}), 2, "synth:NAME:FORMAT");
        expect_error(with(base, {"-m", "synth:huge:F32"}), 2, "huge");
    }
}

TEST(Run, has_no_device_to_stream_weights_to_on_the_cpu) {
    Arguments arguments = {"run", "-m", tiny_model(), "-p", "x", "--device", "cpu"};
    expect_error(with(arguments, {"--stream-weights"}), 2,
                 "--stream-weights: cpu has no memory of its own");
}

TEST(Run, names_the_file_of_a_prompt_that_is_not_utf8) {
    std::string path = write_scratch("latin1.txt", "caf\xe9 noir");
    expect_error({"run", "-m", tiny_model(), "-f", path}, 1, "latin1.txt: the text is not UTF-8");
    Setting setting;
    setting.input = "caf\xe9";
    expect_error({"run", "-m", tiny_model()}, 1, "standard input: the text", setting);
    EXPECT_EQ(run(with(continuation("1"), {"-f", path})).status, 0) << "--raw takes any bytes";
}

TEST(Run, refuses_a_prompt_by_its_bytes_before_it_is_tokenised) {
    Setting setting;
    for (int i = 0; i < 10'000'000; i++) setting.input += "ab ";
    for (Arguments how : {Arguments{"-q"}, Arguments{"-q", "--raw"}}) {
        expect_error(with({"run", "-m", tiny_model(), "-c", "64"}, how), 1,
                     "bytes and the context holds 64 tokens", setting);
    }
}

TEST(Run, raw_text_has_no_thinking_to_ask_for) {
    expect_error(with(continuation("1"), {"-p", "x", "--think"}), 2, "exclude each other");
    expect_error(with(continuation("1"), {"-p", "x", "--no-think"}), 2, "exclude each other");
    Setting setting;
    setting.environment = {{"RIDGE_THINKING", "1"}};
    EXPECT_EQ(run(with(continuation("1"), {"-p", "x"}), setting).status, 0);
}

TEST(Run, without_a_tokenizer_takes_ids_and_no_stop_texts) {
    std::string from = std::string(RIDGE_TESTS_DIR) + "/golden_data/models/qwen3-tied/hf/";
    std::string folder = scratch_folder() + "/no-tokenizer";
    std::filesystem::create_directory(folder);
    for (const char* name : {"config.json", "model.safetensors"})
        std::filesystem::copy_file(from + name, folder + "/" + name);
    Arguments arguments = {"run", "-m", folder, "--ids", "1,2", "--json", "-n", "1"};
    EXPECT_EQ(run(arguments).status, 0);
    expect_error(with(arguments, {"--stop", "x"}), 2, "--stop \"x\"");
    Setting setting;
    setting.environment = {{"RIDGE_STOP", "x"}};
    expect_error(arguments, 2, "RIDGE_STOP \"x\"", setting);
}

TEST(Run, prints_ids_in_their_exact_form) {
    Arguments arguments = {"run",   "-m",     tiny_model(), "--greedy", "--raw",       "--ids",
                           "1,2,3", "--json", "-n",         "5",        "--ignore-eos"};
    Result result = run(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    Json json = Json::parse(result.out);
    EXPECT_EQ(json["tokens"].size(), 5u);
    EXPECT_EQ(result.out, "{\"prompt\":[1,2,3],\"tokens\":" + json["tokens"].dump() + "}\n");
    EXPECT_EQ(run(with(arguments, {"-q"})).out, result.out) << "greedy text repeats itself";
}

TEST(Run, streams_the_text_that_json_holds) {
    Result text = run(with(continuation("40"), {"-p", "the time of"}));
    EXPECT_EQ(text.status, 0);
    EXPECT_EQ(text.err, "");
    EXPECT_NE(text.out, "");
    Result result = run(with(continuation("40"), {"-p", "the time of", "--json"}));
    Json json = Json::parse(result.out);
    EXPECT_EQ(json["text"], text.out);
    EXPECT_EQ(json["tokens"].size(), 40u);
    EXPECT_EQ(json["reason"], "length");
    EXPECT_EQ(result.out.rfind("{\"prompt\":[", 0), 0u);
    for (const char* key :
         {"prompt", "tokens", "text", "reason", "stop", "seed", "model", "timings"})
        EXPECT_TRUE(json.contains(key)) << key;
    for (const char* key :
         {"load_ms", "prompt_tokens", "prompt_ms", "prompt_tok_s", "generated_tokens",
          "generate_ms", "generate_tok_s", "bound_tok_s", "bound_share", "peak_memory_bytes"})
        EXPECT_TRUE(json["timings"].contains(key)) << key;
}

TEST(Run, takes_the_prompt_from_an_option_a_file_or_standard_input) {
    std::string want = run(with(continuation("20"), {"-p", "once upon\na time"})).out;
    Setting piped;
    piped.input = "once upon\na time\n";
    std::string file = write_scratch("prompt.txt", piped.input);
    EXPECT_EQ(run(continuation("20"), piped).out, want);
    EXPECT_EQ(run(with(continuation("20"), {"-f", "-"}), piped).out, want);
    EXPECT_EQ(run(with(continuation("20"), {"-f", file})).out, want);
    EXPECT_NE(run(with(continuation("20"), {"-p", piped.input})).out, want);
    expect_error(with(continuation("20"), {"-f", "/no/such/prompt"}), 1, "/no/such/prompt");
    expect_error(with(continuation("20"), {"-f", scratch_folder()}), 1, "is a directory");
}

TEST(Run, an_empty_prompt_is_an_error_in_a_conversation_and_a_beginning_in_raw_text) {
    expect_error({"run", "-m", tiny_model(), "-p", ""}, 2, "the prompt is empty");
    expect_error({"run", "-m", tiny_model()}, 2, "the prompt is empty");
    expect_error({"run", "-m", tiny_model(), "--ids", "", "--json"}, 2, "the prompt is empty");
    Json json = Json::parse(run(with(continuation("3"), {"-p", "", "--json"})).out);
    EXPECT_EQ(json["prompt"].size(), 1u) << "BOS";
    EXPECT_EQ(json["tokens"].size(), 3u);
}

TEST(Run, computes_the_prompt_and_generates_nothing_at_n_0) {
    Result result = run({"run", "-m", tiny_model(), "-p", "hi", "-n", "0"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find("generated 0 tokens"), std::string::npos) << result.err;
}

TEST(Run, a_prompt_beyond_the_context_is_refused_with_both_numbers) {
    std::string words;
    for (int i = 0; i < 100; i++) words += "the ";
    Arguments arguments = {"run", "-m", tiny_model(), "--raw", "-p", words, "-c", "64"};
    expect_error(arguments, 1, "the context holds 64");
    Result result = run(arguments);
    EXPECT_NE(result.err.find("tokens"), std::string::npos);
    EXPECT_NE(result.err.find("-c"), std::string::npos) << "says what helps";
}

TEST(Run, says_when_the_context_is_full_even_if_quiet) {
    Result result = run(with(continuation("-1"), {"-p", "the time", "-c", "64"}));
    EXPECT_EQ(result.status, 0);
    expect_line(result.err, "the context of 64 positions is full");
    Json json =
        Json::parse(run(with(continuation("-1"), {"-p", "the time", "-c", "64", "--json"})).out);
    EXPECT_EQ(json["reason"], "context");
}

TEST(Run, ends_with_one_line_of_numbers) {
    Result result =
        run({"run", "-m", tiny_model(), "--raw", "-p", "the", "-n", "9", "--ignore-eos"});
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    for (const char* part : {"load ", "prompt ", " tok/s", "generated 9 tokens", "% of the ",
                             "peak memory ", "stop: length", "seed "})
        EXPECT_NE(result.err.find(part), std::string::npos) << part << result.err;
}

TEST(Run, the_seed_that_it_prints_gives_the_same_text_again) {
    Arguments arguments = {"run", "-m", tiny_model(), "--raw",       "-p",
                           "the", "-n", "30",         "--ignore-eos"};
    Result first = run(arguments);
    std::string seed = first.err.substr(first.err.rfind("seed ") + 5);
    seed.pop_back();
    EXPECT_EQ(run(with(arguments, {"-s", seed})).out, first.out) << "seed " << seed;
    EXPECT_NE(run(arguments).out, first.out) << "two seeds drawn alike";
}

TEST(Run, ends_before_a_stop_text) {
    std::string all = run(with(continuation("40"), {"-p", "the time"})).out;
    ASSERT_GT(all.size(), 20u);
    size_t begin = all.size() / 2;
    while ((all[begin] & 0xc0) == 0x80) begin++;  // not inside a character
    std::string stop = all.substr(begin, 6);
    Arguments arguments = with(continuation("40"), {"-p", "the time", "--stop", stop});
    EXPECT_EQ(run(arguments).out, all.substr(0, all.find(stop)));
    Json json = Json::parse(run(with(arguments, {"--json"})).out);
    EXPECT_EQ(json["reason"], "stop");
    EXPECT_EQ(json["stop"], stop);
}

TEST(Run, reports_log_probabilities_and_a_hash_of_the_logits) {
    Arguments arguments = with(continuation("4"), {"-p", "the", "--json", "--logprobs", "3"});
    Json json = Json::parse(run(with(arguments, {"--logits-hash"})).out);
    ASSERT_EQ(json["logprobs"].size(), 4u);
    for (size_t i = 0; i < 4; i++) {
        const Json& one = json["logprobs"][i];
        EXPECT_EQ(one["id"], json["tokens"][i]);
        ASSERT_EQ(one["top"].size(), 3u);
        EXPECT_EQ(one["top"][0]["id"], one["id"]) << "greedy takes the most probable";
        EXPECT_LE(one["logprob"].get<double>(), 0);
        EXPECT_GE(one["top"][0]["logprob"], one["top"][1]["logprob"]);
    }
    std::string hash = json["logits_hash"];
    EXPECT_EQ(hash.size(), 16u);
    Json again = Json::parse(run(with(arguments, {"--logits-hash", "-t", "1"})).out);
    EXPECT_EQ(again["logits_hash"], hash);
    Json other =
        Json::parse(run(with(continuation("1"), {"-p", "a", "--json", "--logits-hash"})).out);
    EXPECT_NE(other["logits_hash"], hash);
}

TEST(Run, ctrl_c_keeps_the_text_and_ends_with_130) {
    Arguments arguments = {"run", "-m",           tiny_model(), "--raw", "-p",
                           "the", "--ignore-eos", "-c",         "100000"};
    Setting setting;
    setting.interrupt_after = " ";
    Result result = run(arguments, setting);
    EXPECT_EQ(result.status, 130);
    EXPECT_NE(result.out, "");
    EXPECT_NE(result.err.find("stop: cancelled"), std::string::npos) << result.err;
}

TEST(Run, becomes_chat_on_a_terminal_and_asks_nowhere_else) {
    if (!Terminal::available()) GTEST_SKIP() << "there are no pseudo-terminals here";
    Terminal terminal({"run", "-m", tiny_model(), "-n", "3"});
    ASSERT_TRUE(terminal.wait_for("> "));
    terminal.send("/exit\n");
    EXPECT_EQ(terminal.finish(), 0) << terminal.seen();
    Terminal raw({"run", "-m", tiny_model(), "--raw"});
    EXPECT_EQ(raw.finish(), 2) << raw.seen();
    EXPECT_NE(raw.seen().find("no prompt"), std::string::npos) << raw.seen();
}

TEST(Run, a_terminal_is_not_steered_by_the_text) {
    if (!Terminal::available()) GTEST_SKIP() << "there are no pseudo-terminals here";
    Json ids = Json::parse(
        run({"tokenize", "-m", tiny_model(), "--json", "--no-bos", "-p", "\x1b[31mred\r\xc2\x9b"})
            .out);
    Arguments decode = {"tokenize", "-m", tiny_model(), "--decode", "-p", ids["tokens"].dump()};
    EXPECT_EQ(run(decode).out, "\x1b[31mred\r\xc2\x9b") << "a pipe gets the bytes";
    Terminal terminal(decode);
    EXPECT_EQ(terminal.finish(), 0);
    EXPECT_EQ(terminal.seen(), "\\x1b[31mred\\x0d\\u009b\r\n");
}

TEST(Tokenize, goes_there_and_back) {
    std::string text = "Hello  world\n\xe6\xbc\xa2 \xf0\x9f\x99\x82 <|eot_id|> \xff";
    Setting setting;
    setting.input = text;
    Arguments tokenize = {"tokenize", "-m", tiny_model()};
    Json ids = Json::parse(run(with(tokenize, {"--json"}), setting).out);
    ASSERT_EQ(ids.size(), 1u);
    Result lines = run(tokenize, setting);
    EXPECT_EQ(static_cast<size_t>(std::count(lines.out.begin(), lines.out.end(), '\n')),
              ids["tokens"].size());
    Json bare = Json::parse(run(with(tokenize, {"--json", "--no-bos"}), setting).out);
    EXPECT_EQ(bare["tokens"].size() + 1, ids["tokens"].size());
    Setting back;
    back.input = ids["tokens"].dump();
    EXPECT_EQ(run(with(tokenize, {"--decode"}), back).out, text);
    back.input = ids.dump() + "\n";
    EXPECT_EQ(run(with(tokenize, {"--decode"}), back).out, text) << "what --json prints";
    expect_error(with(tokenize, {"--decode", "-p", "{\"ids\":[1]}"}), 1, "\"tokens\"");
    expect_error(with(tokenize, {"--decode", "-p", "{\"tokens\":[1,\"x\"]}"}), 2, "x");
    EXPECT_EQ(run(with(tokenize, {"--json", "-p", text})).out, ids.dump() + "\n");

    Json special = Json::parse(run(with(tokenize, {"--json", "--special"}), setting).out);
    EXPECT_LT(special["tokens"].size(), ids["tokens"].size()) << "<|eot_id|> is one token now";
    back.input = special["tokens"].dump();
    EXPECT_NE(run(with(tokenize, {"--decode", "--special"}), back).out.find("<|eot_id|>"),
              std::string::npos);
    expect_error(with(tokenize, {"--decode", "-p", "4096"}), 1, "4096");
    expect_error(with(tokenize, {"--decode", "-p", "1,x"}), 2, "\"x\"");
}

TEST(Tokenize, takes_a_json_string_a_line) {
    Setting setting;
    setting.input = "\"a\"\n\"b\\nc\"\n\"\"\n\"\\u00e9\"";
    Arguments tokenize = {"tokenize", "-m", tiny_model(), "--jsonl", "--no-bos"};
    Result result = run(tokenize, setting);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 4);
    Setting back;
    back.input = result.out;
    EXPECT_EQ(run(with(tokenize, {"--decode"}), back).out, "\"a\"\n\"b\\nc\"\n\"\"\n\"\u00e9\"\n");
    for (const char* bad : {"1", "[\"a\"]", "", "\"a", "{}"}) {
        setting.input = std::string("\"a\"\n") + bad + "\n";
        Result failed = run(tokenize, setting);
        EXPECT_EQ(failed.status, 1) << bad;
        expect_line(failed.err, "line 2");
        EXPECT_EQ(failed.err.find("line 1"), std::string::npos) << failed.err;
    }
}

TEST(Template, renders_exactly_without_a_model) {
    std::string file = write_scratch(
        "t.jinja",
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}"
        "{% if add_generation_prompt %}>{% endif %}");
    std::string messages = write_scratch(
        "m.json", R"([{"role":"user","content":"a \n"},{"role":"assistant","content":"b"}])");
    Arguments base = {"template", "--chat-template-file", file};
    EXPECT_EQ(run(with(base, {"--messages", messages})).out, "[user|a \n][assistant|b]>");
    EXPECT_EQ(
        run(with(base, {"--messages", messages, "--bos", "<s>", "--no-generation-prompt"})).out,
        "<s>[user|a \n][assistant|b]");
    EXPECT_EQ(run(with(base, {"-p", "hi", "-sys", "x"})).out, "[system|x][user|hi]>");
    Json json = Json::parse(run(with(base, {"-p", "hi", "--json"})).out);
    EXPECT_EQ(json["text"], "[user|hi]>");
    EXPECT_FALSE(json.contains("tokens"));
    std::string joined;
    for (const Json& span : json["spans"]) joined += span["text"].get<std::string>();
    EXPECT_EQ(joined, "[user|hi]>");
    Result beside = run(with(base, {"-p", "hi", "-m", tiny_model(), "--json"}));
    EXPECT_TRUE(Json::parse(beside.out).contains("tokens"));
}

TEST(Template, refuses_hostile_files) {
    std::string file = write_scratch("ok.jinja", "x");
    Arguments base = {"template", "--chat-template-file", file, "--messages"};
    expect_error(with(base, {write_scratch("deep2.json", std::string(200'000, '['))}), 1, "nested");
    expect_error(with(base, {write_scratch("no.json", "{\"a\":1}")}), 1, "messages");
    expect_error(with(base, {write_scratch("no2.json", "[1]")}), 1, "object");
    expect_error(with(base, {"/no/such"}), 1, "/no/such");
    expect_error({"template", "-p", "x"}, 2, "no template");
    expect_error({"template", "--chat-template-file", file}, 2, "no messages");
    std::string endless =
        write_scratch("loop.jinja", "{% for i in range(1000000000) %}x{% endfor %}");
    Result result = run({"template", "--chat-template-file", endless, "-p", "x"});
    EXPECT_EQ(result.status, 1);
    expect_line(result.err, "loop.jinja");
}

TEST(Inspect, tells_what_a_model_holds_and_needs) {
    Json json = Json::parse(run({"inspect", "-m", tiny_model(), "--json", "-c", "1000"}).out);
    EXPECT_EQ(json["kind"], "gguf");
    EXPECT_EQ(json["architecture"], "llama");
    EXPECT_EQ(json["config"]["d_model"], 256);
    EXPECT_EQ(json["n_ctx"], 1000);
    EXPECT_EQ(json["memory_bytes"],
              json["weight_bytes"].get<int64_t>() + json["kv_bytes"].get<int64_t>());
    int64_t n_bytes = 0;
    for (const Json& tensor : json["tensors"]) n_bytes += tensor["bytes"].get<int64_t>();
    int64_t by_format = 0;
    for (const Json& format : json["formats"]) by_format += format["bytes"].get<int64_t>();
    EXPECT_EQ(n_bytes, by_format);
    Result text = run({"inspect", "-m", tiny_model()});
    for (const char* part : {"Metadata", "Tensors", "Formats", "read per token", "memory needed"})
        EXPECT_NE(text.out.find(part), std::string::npos) << part;
    EXPECT_EQ(run({"inspect", "-m", tiny_model(), "--tensors"}).out.rfind("Tensors\n", 0), 0u);
}

TEST(Inspect, reads_headers_alone) {
    std::string path = scratch_folder() + "/sparse.gguf";
    std::filesystem::copy_file(tiny_model(), path,
                               std::filesystem::copy_options::overwrite_existing);
    ASSERT_EQ(truncate(path.c_str(), off_t{16} << 30), 0);
    auto begin = std::chrono::steady_clock::now();
    Result result = run({"inspect", "-m", path});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    std::filesystem::remove(path);
}

TEST(Synth, writes_nothing_over_unasked) {
    std::string path = write_scratch("precious.gguf", "mine");
    Arguments arguments = {"synth", "tiny-qwen3", "--format", "Q8_0", "-o", path};
    expect_error(arguments, 1, "exists already");
    EXPECT_EQ(std::filesystem::file_size(path), 4u);
    EXPECT_EQ(run(with(arguments, {"--force"})).status, 0);
    EXPECT_GT(std::filesystem::file_size(path), 1'000'000u);
    expect_error({"synth", "tiny-qwen3", "-o", path}, 2, "--format");
    expect_error({"synth", "tiny-qwen3", "--format", "Q8_0", "-o", "-"}, 2, "-o -");
    EXPECT_NE(run({"synth", "--list"}).out.find("tiny-qwen3"), std::string::npos);
}

}  // namespace
}  // namespace ridge::cli
