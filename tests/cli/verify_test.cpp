#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/checks.h"
#include "cli/program.h"

namespace ridge::cli {
namespace {

using Json = nlohmann::ordered_json;

const Arguments kNorms = {"verify", "--device", "cpu", "--op", "rms_norm", "--thin", "20"};

TEST(Verify, tells_what_holds_of_each_kernel_format_and_claim) {
    const Result result = run(with(kNorms, {"--json", "-q", "--seed", "42"}));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    const Json json = Json::parse(result.out);
    EXPECT_EQ(json["holds"], true);
    EXPECT_EQ(json["seed"], 42);
    EXPECT_EQ(json["thin"], 20);
    EXPECT_TRUE(json["failures"].empty());
    ASSERT_FALSE(json["rows"].empty());
    bool plain = false, vectors = false;
    for (const Json& row : json["rows"]) {
        EXPECT_EQ(row["op"], "rms_norm");
        EXPECT_EQ(row["format"], "f32");
        EXPECT_EQ(row["holds"], true);
        EXPECT_GT(row["n_cases"], 0);
        plain = plain || row["checkpoint"] == "plain";
        vectors = vectors || row["checkpoint"] == "row_ops";
        if (row["claim"] != "agrees") continue;
        EXPECT_LT(row["relative_l2"], 1e-6);
        EXPECT_TRUE(row.contains("worst_error"));
    }
    EXPECT_TRUE(plain && vectors);
    Json again = Json::parse(run(with(kNorms, {"--json", "-q", "--seed", "42"})).out);
    EXPECT_EQ(again["rows"], json["rows"]);
}

TEST(Verify, prints_a_table_and_the_seed) {
    const Result result = run(with(kNorms, {"--seed", "43", "--cpu-isa", "scalar"}));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("rms_norm at row_ops on scalar"), std::string::npos) << result.out;
    EXPECT_EQ(result.out.find("avx2"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find(" hold | "), std::string::npos) << result.out;
    expect_line(result.err, "--seed 43");
}

TEST(Verify, holds_whole_models_against_the_reference) {
    const Result result = run({"verify", "--device", "cpu", "--op", "step", "--format", "q8_0",
                               "--checkpoint", "plain,fused", "--json", "-q"});
    EXPECT_EQ(result.status, 0) << result.err;
    const Json json = Json::parse(result.out);
    std::set<std::string> checkpoints;
    for (const Json& row : json["rows"]) {
        EXPECT_EQ(row["op"], "step");
        checkpoints.insert(row["checkpoint"]);
    }
    EXPECT_EQ(checkpoints, (std::set<std::string>{"plain", "fused"}));
}

TEST(Verify, refuses_what_there_is_not_in_one_line) {
    expect_error({"verify", "--op", "softmax"}, 2, "--op \"softmax\": expected one of embed_rows");
    expect_error({"verify", "--op", ""}, 2, "--op \"\"");
    expect_error({"verify", "--device", "cpu", "--checkpoint", "fastest"}, 2,
                 "--checkpoint \"fastest\": expected one of ref");
    expect_error({"verify", "--format", "q3"}, 2, "--format \"q3\": expected one of F32");
    expect_error({"verify", "--thin", "0"}, 2, "--thin \"0\"");
    expect_error({"verify", "--seed", "x"}, 2, "--seed \"x\"");
    expect_error({"verify", "--device", "tpu"}, 2, "--device \"tpu\": expected one of auto");
    expect_error({"verify", "--cpu-isa", "mmx"}, 2, "--cpu-isa \"mmx\": expected one of");
    expect_error({"verify", "--goldens", "/nowhere"}, 2, "--goldens /nowhere: not a folder");
    expect_error({"verify", "--write", "matrix.txt"}, 2, "--write matrix.txt: expected a Markdown");
    expect_error({"verify", "--write", "/nowhere/x.md"}, 1, "/nowhere/x.md");
    expect_error({"verify", "--device", "cpu", "--op", "rms_norm", "--checkpoint", "gemm"}, 2,
                 "nothing to verify");
    const std::string bare = write_scratch("bare.md", "no sections\n");
    expect_error({"verify", "--write", bare}, 1, "no section \"cpu\"");
}

std::string contents(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Verify, writes_the_sections_of_a_document_and_what_they_are_made_from) {
    std::string text = "Prose.\n";
    for (const char* name : {"cpu", "cpu support", "cuda", "cuda support"}) {
        text += std::string("<!-- ridge verify: ") + name +
                " -->\nold\n<!-- ridge verify: end of " + name + " -->\n";
    }
    const std::string path = write_scratch("matrix.md", text + "More prose.\n");
    const Arguments write = with(kNorms, {"--seed", "44", "-q", "--write", path});
    ASSERT_EQ(run(write).status, 0);
    const std::string first = contents(path);
    EXPECT_EQ(first.rfind("Prose.\n<!-- ridge verify: cpu -->\n\n| embed_rows at |", 0), 0u);
    EXPECT_NE(first.find("More prose.\n"), std::string::npos);
    EXPECT_NE(first.find("measured 1"), std::string::npos);
    const std::string data = path.substr(0, path.size() - 3) + ".json";
    EXPECT_NE(contents(data).find("\"rms_norm\""), std::string::npos);
    ASSERT_EQ(run(write).status, 0);
    EXPECT_EQ(contents(path), first);
    write_scratch("matrix.md", text + "Other prose.\n");
    const Result remade = run({"verify", "--write", path, "--no-run"});
    EXPECT_EQ(remade.status, 0) << remade.err;
    EXPECT_EQ(remade.out, "");
    EXPECT_EQ(contents(path), first.substr(0, first.rfind("More")) + "Other prose.\n");
}

TEST(Verify, ends_at_ctrl_c) {
    Setting setting;
    const auto start = std::chrono::steady_clock::now();
    setting.interrupt_when = [&] {
        return std::chrono::steady_clock::now() - start > std::chrono::milliseconds(1500);
    };
    const Result result = run({"verify", "--device", "cpu", "-q"}, setting);
    EXPECT_EQ(result.status, 130);
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(result.out.rfind("kernel ", 0), 0u) << result.out;
}

}  // namespace
}  // namespace ridge::cli
