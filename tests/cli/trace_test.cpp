#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/checks.h"
#include "cli/program.h"

namespace ridge::cli {
namespace {

using Json = nlohmann::ordered_json;

Arguments trace(const Arguments& more) {
    return with({"trace", "-m", tiny_model(), "--device", "cpu", "-t", "2", "-r", "2", "-p", "9",
                 "-d", "5"},
                more);
}

Json traced(const Arguments& more) {
    const Result result = run(with(trace(more), {"--json", "-q"}));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return Json::parse(result.out);
}

std::string bytes_of_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<float> floats_of_npy(const std::string& path) {
    const std::string bytes = bytes_of_file(path);
    const size_t data = bytes.find('\n') + 1;
    std::vector<float> values((bytes.size() - data) / sizeof(float));
    memcpy(values.data(), bytes.data() + data, values.size() * sizeof(float));
    return values;
}

// Weights are read once a step, whatever kernels read them; rows of the embedding, one a token.
TEST(Trace, counts_the_weights_of_a_step_once_at_every_checkpoint) {
    const Json json = traced({"--checkpoint", "plain,matvec,fused"});
    ASSERT_EQ(json["checkpoints"].size(), 3u);
    for (const Json& one : json["checkpoints"]) {
        ASSERT_EQ(one["steps"].size(), 2u);
        for (const Json& step : one["steps"]) {
            int64_t n_weights = 0;
            double sum_ns = step["step"]["between_ns"];
            for (const Json& node : step["step"]["nodes"]) {
                n_weights += node["bytes"]["weights"].get<int64_t>();
                sum_ns += node["median_ns"].get<double>();
                EXPECT_EQ(node["samples_ns"].size(), 2u);
            }
            EXPECT_EQ(step["step"]["bytes"]["weights"], n_weights);
            EXPECT_NEAR(sum_ns, step["step"]["median_ns"].get<double>(), 1) << "medians of two";
        }
    }
    auto weights = [&](size_t checkpoint, size_t step) {
        return json["checkpoints"][checkpoint]["steps"][step]["step"]["bytes"]["weights"];
    };
    EXPECT_EQ(weights(1, 0), weights(2, 0)) << "both read the same packed weights";
    EXPECT_GT(weights(0, 1), weights(0, 0)) << "a prompt looks up more rows";
    auto activations = [&](size_t checkpoint) {
        return json["checkpoints"][checkpoint]["steps"][1]["step"]["bytes"]["activations"]
            .get<int64_t>();
    };
    EXPECT_LT(activations(2), activations(1)) << "fused stages hand on less";
}

TEST(Trace, names_the_entry_that_ran_for_each_node) {
    const Json json = traced({"--checkpoint", "matvec"});
    std::string kernels;
    for (const Json& node : json["checkpoints"][0]["steps"][0]["step"]["nodes"]) {
        kernels += node["stage"].get<std::string>() + "/" + node["node"].get<std::string>() + "/" +
                   node["checkpoint"].get<std::string>() + " ";
    }
    for (const char* expected :
         {"embed_rows/embed_rows/plain", "attn_in/matmul/matvec", "attn/attention/plain",
          "ffn_in/swiglu/plain", "head/matmul/matvec", "sample/sample/ref"}) {
        EXPECT_NE(kernels.find(expected), std::string::npos) << expected << " in " << kernels;
    }
}

std::set<std::string> keys_of(const Json& object) {
    std::set<std::string> keys;
    for (const auto& [key, value] : object.items()) keys.insert(key);
    return keys;
}

// Those that docs/commands.md lists. A processor has none of those of a GPU.
TEST(Trace, json_has_the_fields_that_it_is_said_to_have) {
    using Keys = std::set<std::string>;
    const Json json = traced({"-p", "0", "--replay", "ffn_in"});
    EXPECT_EQ(keys_of(json), (Keys{"build_commit", "build_version", "machine", "checkpoints"}));
    const Json& checkpoint = json["checkpoints"][0];
    EXPECT_EQ(keys_of(checkpoint), (Keys{"model", "read_wall_gbps", "steps"}));
    ASSERT_EQ(checkpoint["steps"].size(), 1u) << "no prompt";
    const Json& step = checkpoint["steps"][0];
    EXPECT_EQ(keys_of(step), (Keys{"n_prompt", "n_parallel", "n_depth", "tok_s", "step", "alone"}));
    for (const char* part : {"step", "alone"}) {
        EXPECT_EQ(keys_of(step[part]),
                  (Keys{"median_ns", "samples_ns", "between_ns", "on_device", "n_dispatches",
                        "idle_share", "bytes", "flops", "nodes"}));
        EXPECT_EQ(step[part]["on_device"], false);
        for (const Json& node : step[part]["nodes"]) {
            Keys keys = keys_of(node);
            EXPECT_EQ(keys.erase("skipped"), keys.erase("reason"));
            EXPECT_EQ(keys, (Keys{"stage", "node", "checkpoint", "weights", "n_calls", "bytes",
                                  "flops", "median_ns", "gbps", "gflops", "samples_ns"}));
        }
    }
}

TEST(Trace, times_a_group_of_kernels_alone) {
    const Json json = traced({"--replay", "ffn_in,ffn_out"});
    for (const Json& step : json["checkpoints"][0]["steps"]) {
        ASSERT_GT(step["alone"]["nodes"].size(), 0u);
        for (const Json& node : step["alone"]["nodes"]) {
            const std::string stage = node["stage"];
            EXPECT_TRUE(stage == "ffn_in" || stage == "ffn_out") << stage;
        }
    }
    expect_error(trace({"--replay", "swiglu", "-q"}), 2,
                 "--replay swiglu: no kernel of this name runs in a decode step of 1 sequence at "
                 "position 5; expected one of layer, attn_in, attn, ");
    expect_error(trace({"--replay", "swigloo"}), 2, "--replay \"swigloo\": expected one of");
}

TEST(Trace, writes_a_timeline_that_a_viewer_can_read) {
    const std::string path = scratch_folder() + "/timeline.json";
    const Result result = run(trace({"--timeline", path}));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.err.find("wrote " + path), std::string::npos);
    const Json json = Json::parse(bytes_of_file(path));
    EXPECT_EQ(json["traceEvents"][0]["ph"], "M");
    EXPECT_GT(json["traceEvents"].size(), 100u);
}

// The same step at two checkpoints: every stage's result is there, and they agree.
TEST(Trace, dumps_what_every_node_computes) {
    std::vector<Json> indices;
    std::vector<std::string> folders;
    for (const char* checkpoint : {"ref", "plain"}) {
        folders.push_back(scratch_folder() + "/dump-" + checkpoint);
        const Result result =
            run(trace({"-q", "--dump", folders.back(), "--checkpoint", checkpoint}));
        ASSERT_EQ(result.status, 0) << result.err;
        for (const char* step : {"decode", "prompt"}) {
            indices.push_back(
                Json::parse(bytes_of_file(folders.back() + "/" + step + "/index.json")));
        }
    }
    EXPECT_EQ(indices[0]["tokens"].size(), 6u) << "five before, and the step's own";
    EXPECT_EQ(indices[1]["tokens"].size(), 9u);
    for (size_t step = 0; step < 2; step++) {
        const Json &ref = indices[step]["nodes"], &plain = indices[2 + step]["nodes"];
        ASSERT_EQ(ref.size(), plain.size());
        for (size_t i = 0; i < ref.size(); i++) {
            ASSERT_EQ(ref[i]["file"], plain[i]["file"]);
            const std::string file = std::string(step == 0 ? "/decode/" : "/prompt/") +
                                     ref[i]["file"].get<std::string>();
            const std::vector<float> a = floats_of_npy(folders[0] + file);
            const std::vector<float> b = floats_of_npy(folders[1] + file);
            ASSERT_EQ(a.size(),
                      ref[i]["shape"][0].get<size_t>() * ref[i]["shape"][1].get<size_t>());
            ASSERT_EQ(a.size(), b.size());
            double difference = 0, size = 0;
            for (size_t k = 0; k < a.size(); k++) {
                difference += (a[k] - b[k]) * double{a[k] - b[k]};
                size += double{a[k]} * a[k];
            }
            EXPECT_GT(size, 0) << file;
            EXPECT_LE(difference, 1e-6 * size) << file;
        }
    }
}

TEST(Trace, looks_where_a_dump_goes_before_it_opens_the_model) {
    const std::string folder = scratch_folder() + "/no-dump";
    std::filesystem::create_directory(folder);
    write_scratch("no-dump/prompt", "a file");
    expect_error({"trace", "-m", "/nowhere.gguf", "--dump", folder}, 1,
                 "/no-dump/prompt: cannot make the folder");
    EXPECT_FALSE(std::filesystem::exists(folder + "/decode")) << "nothing is left";
    std::filesystem::remove(folder + "/prompt");
    std::filesystem::create_symlink("/proc", folder + "/decode");
    expect_error({"trace", "-m", "/nowhere.gguf", "--dump", folder}, 1,
                 "/no-dump/decode/index.json: cannot write");
}

// Wherever the signal comes, each step's folder is whole or not there.
TEST(Trace, leaves_no_dump_half_way) {
    const std::string folder = scratch_folder() + "/ended-dump";
    Setting setting;
    setting.interrupt_when = [&] {
        return std::filesystem::exists(folder + "/prompt/0000.embed_rows.npy");
    };
    const Result result = run(trace({"-q", "--dump", folder, "-p", "512"}), setting);
    EXPECT_TRUE(result.status == 130 || result.status == 0) << "0: it was done before the signal";
    EXPECT_TRUE(std::filesystem::exists(folder + "/decode/index.json")) << "it was whole";
    EXPECT_EQ(std::filesystem::exists(folder + "/prompt"),
              std::filesystem::exists(folder + "/prompt/index.json"));
}

TEST(Trace, refuses_what_it_cannot_do) {
    expect_error({"trace"}, 2, "trace: no model: give -m MODEL");
    expect_error(trace({"--checkpoint", "fast"}), 2, "--checkpoint \"fast\": expected one of");
    expect_error(trace({"--checkpoint", "plain,fused", "--dump", scratch_folder() + "/none"}), 2,
                 "--dump: expected one --checkpoint, 2 were given");
    expect_error(trace({"-p", "65537"}), 2, "65537");
    expect_error(trace({"-q", "--timeline", scratch_folder() + "/no/folder/t.json"}), 1,
                 "/no/folder/t.json");
    const Result help = run({"trace", "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_NE(help.out.find("Example:\n  ridge trace"), std::string::npos);
}

}  // namespace
}  // namespace ridge::cli
