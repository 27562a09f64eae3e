#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/checks.h"
#include "cli/program.h"

namespace ridge::cli {
namespace {

using Json = nlohmann::json;

const std::string kData = std::string(RIDGE_TESTS_DIR) + "/golden_data/";

Json golden() {
    std::ifstream file(kData + "eval.json");
    return Json::parse(file);
}

std::string golden_model(const std::string& name) {
    return kData + "models/" + name + "/" + golden()["models"][name]["file"].get<std::string>();
}

// Of the goldens' text, in their windows, with a cache that rounds nothing.
Arguments eval_golden(const std::string& model) {
    std::string text = write_scratch("golden.txt", golden()["text"].get<std::string>());
    return {"eval", "-m",  golden_model(model), "-f",    text, "-c", "64", "-ctk", "f32",
            "-ctv", "f32", "--checkpoint",      "plain", "-q"};
}

// Of a text of some 300 tokens by the tiny model.
Arguments eval_tiny() {
    std::string words;
    for (int i = 0; i < 60; i++) words += "word" + std::to_string(i * i) + " and more, ";
    return {"eval", "-m", tiny_model(), "-f", write_scratch("words.txt", words), "-c", "32", "-q"};
}

Json json_of(const Arguments& arguments) {
    Result result = run(with(arguments, {"--json"}));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return result.status == 0 ? Json::parse(result.out) : Json();
}

void expect_near(const Json& got, const Json& want, const std::string& what) {
    EXPECT_NEAR(got.get<double>(), want.get<double>(), 1e-3 * std::abs(want.get<double>())) << what;
}

void expect_estimate(const Json& got, const Json& want, const std::string& what) {
    expect_near(got["value"], want["value"], what);
    expect_near(got["standard_error"], want["standard_error"], what);
}

TEST(Eval, gives_the_perplexity_that_transformers_give) {
    const Json all = golden();
    for (const auto& [name, want] : all["models"].items()) {
        for (const char* rows : {"prompt", "decode"}) {
            Json json = json_of(with(eval_golden(name), {"--rows", rows}));
            EXPECT_EQ(json["n_windows"], all["n_windows"]);
            EXPECT_EQ(json["n_positions"], want["n_positions"]);
            EXPECT_EQ(json["rows"], rows);
            EXPECT_FALSE(json.contains("reference"));
            expect_estimate(json["perplexity"], want["perplexity"], name + " " + rows);
        }
    }
}

TEST(Eval, gives_the_divergence_that_torch_gives) {
    std::string saved = scratch_folder() + "/golden.logits";
    Json first = json_of(with(eval_golden("llama3-scaled"), {"--save-logits", saved, "--force"}));
    Json json = json_of(with(eval_golden("llama-all-formats"), {"--reference", saved}));
    Json want = golden()["kl_of_second_from_first"], got = json["reference"];
    EXPECT_EQ(got["perplexity"], first["perplexity"]);
    expect_estimate(got["kl"], want["kl"], "kl");
    for (const char* key : {"kl_median", "kl_p99", "kl_max", "top1_agreement", "p_rms_difference"})
        expect_near(got[key], want[key], key);
}

TEST(Eval, finds_no_divergence_of_a_run_from_itself) {
    std::string saved = scratch_folder() + "/self.logits";
    json_of(with(eval_tiny(), {"--save-logits", saved, "--force"}));
    Json json = json_of(with(eval_tiny(), {"--reference", saved, "-t", "1"}));
    const Json& reference = json["reference"];
    for (const char* key : {"kl_median", "kl_p99", "kl_max", "p_rms_difference"})
        EXPECT_EQ(reference[key], 0.0) << key;
    EXPECT_EQ(reference["kl"]["value"], 0.0);
    EXPECT_EQ(reference["top1_agreement"], 1.0);
    EXPECT_EQ(reference["perplexity"], json["perplexity"]);
}

TEST(Eval, gives_the_same_beside_a_reference_as_from_its_file) {
    std::string saved = scratch_folder() + "/ref.logits";
    json_of(with(eval_tiny(), {"--checkpoint", "ref", "-ctk", "f32", "-ctv", "f32", "--save-logits",
                               saved, "--force"}));
    Arguments measured = with(eval_tiny(), {"--checkpoint", "plain"});
    Json from_file = json_of(with(measured, {"--reference", saved}));
    Json beside = json_of(with(measured, {"--reference-checkpoint", "ref"}));
    EXPECT_EQ(beside["reference"]["source"], "checkpoint ref");
    EXPECT_NE(from_file["reference"]["source"].get<std::string>().find("ref, prompt rows"),
              std::string::npos);
    beside["reference"].erase("source");
    from_file["reference"].erase("source");
    EXPECT_EQ(beside["reference"], from_file["reference"]);
    EXPECT_GT(beside["reference"]["kl"]["value"], 0) << "the caches differ in type";
    EXPECT_LT(beside["reference"]["kl"]["value"], 1e-2);
}

TEST(Eval, scores_as_many_positions_as_asked) {
    Json all = json_of(eval_tiny());
    EXPECT_EQ(all["n_positions"], all["n_windows"].get<int64_t>() * 15);
    Json some = json_of(with(eval_tiny(), {"--max-positions", "22"}));
    EXPECT_EQ(some["n_positions"], 22);
    EXPECT_EQ(some["n_windows"], 2);
    std::string saved = scratch_folder() + "/some.logits";
    json_of(with(eval_tiny(), {"--max-positions", "22", "--save-logits", saved}));
    Arguments against = with(eval_tiny(), {"--reference", saved});
    expect_error(against, 1, "try --max-positions 22");
    EXPECT_EQ(json_of(with(against, {"--max-positions", "20"}))["reference"]["kl_max"], 0.0);
}

TEST(Eval, prints_a_table) {
    Result result = run(with(eval_tiny(), {"--reference-checkpoint", "plain"}));
    EXPECT_EQ(result.status, 0) << result.err;
    for (const char* part : {"text        ", "perplexity  ", "reference   checkpoint plain",
                             "KL          mean ", "top token   ", "next token  "})
        EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
}

TEST(Eval, refuses_in_one_line) {
    Arguments base = eval_tiny();
    std::string text = base[4], junk = write_scratch("junk", std::string(500, 'x'));
    Arguments model = {"eval", "-m", tiny_model(), "-q"};
    expect_error(model, 2, "no text: give -f FILE");
    expect_error({"eval", "-f", text}, 2, "no model");
    expect_error(with(model, {"-f", "/no/such"}), 1, "/no/such");
    expect_error(with(model, {"-f", scratch_folder()}), 1, "is a directory");
    expect_error(with(model, {"-f", write_scratch("short", "two words")}), 1,
                 "expected at least the 512 of one window");
    expect_error(with(model, {"-f", write_scratch("empty", "")}), 1,
                 "expected at least the 4 of the smallest window");
    expect_error(with(model, {"-f", text, "-c", "3"}), 2, "-c 3: expected a window of at least 4");
    expect_error(with(model, {"-f", text, "-c", "1000000"}), 2, "-c 1000000");
    expect_error(with(base, {"--rows", "both"}), 2, "one of prompt, decode");
    expect_error(with(base, {"--max-positions", "0"}), 2, "--max-positions \"0\"");
    expect_error(with(base, {"--checkpoint", "warp"}), 2,
                 "--checkpoint \"warp\": expected one of ref");
    expect_error(with(base, {"--reference-checkpoint", "warp"}), 2,
                 "--reference-checkpoint \"warp\": expected");
    expect_error(with(base, {"--reference-checkpoint", ""}), 2, "--reference-checkpoint");
    expect_error(with(base, {"--reference", "a", "--reference-checkpoint", "plain"}), 2,
                 "exclude each other");
    expect_error(with(base, {"--save-logits", "-"}), 2, "--save-logits -");
    expect_error(with(base, {"--force"}), 2, "--force needs --save-logits");
    expect_error(with(base, {"--reference", junk}), 1, "is no file of saved logits");
    expect_error(with(base, {"--reference", "/no/such"}), 1, "/no/such");
    expect_error(with(base, {"--save-logits", junk}), 1, "exists already");
    expect_error(with(base, {"--save-logits", "/no/such/folder"}), 1, "/no/such/folder");
    EXPECT_EQ(std::filesystem::file_size(junk), 500u);
}

TEST(Eval, writes_over_nothing_that_it_reads) {
    namespace fs = std::filesystem;
    const std::string folder = scratch_folder() + "/inputs", model = folder + "/model.gguf";
    fs::create_directory(folder);
    fs::copy_file(tiny_model(), model);
    fs::create_hard_link(model, folder + "/second.gguf");
    fs::create_symlink("model.gguf", folder + "/link.gguf");
    Arguments base = eval_tiny();
    const std::string text = base[4], saved = folder + "/saved";
    base[2] = model;
    json_of(with(base, {"--save-logits", saved}));
    for (const std::string& path : {model, folder + "/second.gguf", folder + "/link.gguf", text})
        expect_error(with(base, {"--save-logits", path, "--force"}), 2, "which is read");
    expect_error(with(base, {"--reference", saved, "--save-logits", saved, "--force"}), 2,
                 "which is read");
    EXPECT_EQ(fs::file_size(model), fs::file_size(tiny_model()));

    const std::string hf = std::string(RIDGE_TESTS_DIR) + "/golden_data/models/qwen3-tied/hf";
    const std::string copy = folder + "/hf";
    fs::copy(hf, copy);
    base[2] = copy;
    for (const char* name : {"model.safetensors", "config.json"}) {
        expect_error(with(base, {"--save-logits", copy + "/" + name, "--force"}), 2,
                     "which is read");
    }
}

TEST(Eval, reads_standard_input) {
    Setting setting;
    setting.input = std::string(400, 'a') + std::string(400, 'b');
    Result result = run({"eval", "-m", tiny_model(), "-f", "-", "-c", "16", "--json"}, setting);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(Json::parse(result.out)["window"], 16);
}

TEST(Eval, ends_at_ctrl_c_and_leaves_no_file) {
    if (!Terminal::available()) GTEST_SKIP() << "no pseudo-terminals";
    std::string words, folder = scratch_folder() + "/interrupted";
    for (int i = 0; i < 20000; i++) words += "word" + std::to_string(i) + " ";
    std::string text = write_scratch("long.txt", words);
    std::filesystem::create_directory(folder);
    Terminal terminal({"eval", "-m", tiny_model(), "-f", text, "--save-logits", folder + "/x"});
    ASSERT_TRUE(terminal.wait_for("evaluating window"));
    terminal.send("\x03");
    EXPECT_EQ(terminal.finish(), 130);
    EXPECT_TRUE(std::filesystem::is_empty(folder));
}

}  // namespace
}  // namespace ridge::cli
