#include <sys/stat.h>

#include "base/half.h"
#include "base/json.h"
#include "raw_gguf.h"
#include "raw_safetensors.h"
#include "test_files.h"

namespace ridge {
namespace {

const std::string kConfig = R"({"model_type": "llama"})";

std::vector<RawWeight> small_model() {
    return {
        {"model.embed_tokens.weight", "F32", {2, 2}, raw(1.0f) + raw(2.0f) + raw(3.0f) + raw(4.0f)},
        {"model.norm.weight", "BF16", {2}, raw(to_bf16(0.5f).bits) + raw(to_bf16(-2.0f).bits)},
        {"model.layers.0.self_attn.q_proj.weight",
         "F16",
         {1, 2},
         raw(to_f16(1.5f).bits) + raw(to_f16(8.0f).bits)},
        {"model.layers.0.self_attn.rotary_emb.inv_freq", "I64", {1}, std::string(8, 0)},
        {"nothing", "F32", {0, 4}, ""},
        {"scale", "F32", {}, raw(9.0f)},
    };
}

std::vector<float> row_of(const Tensor& tensor, int64_t row) {
    std::vector<float> out(static_cast<size_t>(tensor.n_cols()));
    unpack_row(tensor, row, out.data());
    return out;
}

void expect_small_model(const ModelFile& file) {
    EXPECT_EQ(file.type(), FileType::kSafetensors);
    EXPECT_EQ(file.tensor_names(),
              (std::vector<std::string>{"token_embd.weight", "output_norm.weight",
                                        "blk.0.attn_q.weight", "scale"}));
    EXPECT_EQ(row_of(*file.find("token_embd.weight"), 1), (std::vector<float>{3, 4}));
    EXPECT_EQ(row_of(*file.find("output_norm.weight"), 0), (std::vector<float>{0.5f, -2}));
    EXPECT_EQ(row_of(*file.find("blk.0.attn_q.weight"), 0), (std::vector<float>{1.5f, 8}));
    EXPECT_EQ(shape_text(*file.find("scale")), "[1]");
    EXPECT_EQ(file.find("blk.0.attn_q.weight")->name, "model.layers.0.self_attn.q_proj.weight");
    EXPECT_EQ(file.config()["model_type"], "llama");
}

TEST(SafetensorsModel, a_folder_opens_with_its_config_and_translated_names) {
    TestFolder folder;
    folder.write("config.json", kConfig);
    folder.write("model.safetensors", safetensors_bytes(small_model()));
    ModelFile file = ModelFile::open(folder.path());
    expect_small_model(file);
    EXPECT_EQ(file.path(), folder.path());
    EXPECT_EQ(file.file_of(*file.find("scale")), folder.path("model.safetensors"));
    EXPECT_EQ(file.generation_config(), nullptr);
    EXPECT_EQ(file.tokenizer_config(), nullptr);
    EXPECT_EQ(file.tokenizer_json_path(), std::nullopt);
    EXPECT_EQ(file.chat_template(), std::nullopt);
    for (size_t i = 0; i < file.tensor_names().size(); i++) file.drop_pages(file.tensor(i));
    file.prefetch();
    expect_small_model(file);
    expect_small_model(ModelFile::open(folder.path() + "/"));
}

TEST(SafetensorsModel, a_file_opens_alone_under_any_name_with_its_config_beside_it) {
    TestFolder folder;
    std::string path = folder.write("weights.gguf", safetensors_bytes(small_model()));
    expect_parts(open_error(path), {folder.path("config.json"), "missing"});
    folder.write("config.json", kConfig);
    expect_small_model(ModelFile::open(path));
}

TEST(SafetensorsModel, the_other_files_of_the_folder_are_found) {
    TestFolder folder;
    folder.write("config.json", kConfig);
    folder.write("model.safetensors", safetensors_bytes(small_model()));
    folder.write("generation_config.json", R"({"top_k": 20})");
    folder.write("tokenizer_config.json", R"({"chat_template": "from config"})");
    folder.write("tokenizer.json", "{}");
    ModelFile file = ModelFile::open(folder.path());
    ASSERT_NE(file.generation_config(), nullptr);
    EXPECT_EQ((*file.generation_config())["top_k"], 20);
    ASSERT_NE(file.tokenizer_config(), nullptr);
    EXPECT_EQ(file.tokenizer_json_path(), folder.path("tokenizer.json"));
}

TEST(SafetensorsModel, the_chat_template_is_found_where_transformers_finds_it) {
    TestFolder folder;
    folder.write("config.json", kConfig);
    folder.write("model.safetensors", safetensors_bytes(small_model()));
    auto chat_template = [&] { return ModelFile::open(folder.path()).chat_template(); };
    folder.write("tokenizer_config.json", R"({"chat_template": null})");
    EXPECT_EQ(chat_template(), std::nullopt);
    folder.write("tokenizer_config.json", R"({"chat_template": "one"})");
    EXPECT_EQ(chat_template(), "one");
    folder.write("tokenizer_config.json", R"({"chat_template": [
        {"name": "tool_use", "template": "two"}, {"name": "default", "template": "three"}]})");
    EXPECT_EQ(chat_template(), "three");
    folder.write("tokenizer_config.json",
                 R"({"chat_template": [{"name": "tool_use", "template": "two"}]})");
    expect_parts(error_of(chat_template),
                 {folder.path("tokenizer_config.json"), "chat_template", "tool_use", "default"});
    folder.write("tokenizer_config.json", R"({"chat_template": ["x"]})");
    expect_parts(error_of(chat_template), {"chat_template", "\"x\""});
    folder.write("tokenizer_config.json", R"({"chat_template": 7})");
    expect_parts(error_of(chat_template), {"chat_template", "number", "string"});
    folder.write("chat_template.json", R"({"chat_template": "four"})");
    EXPECT_EQ(chat_template(), "four");
    folder.write("chat_template.jinja", "five\n");
    EXPECT_EQ(chat_template(), "five\n");
}

TEST(SafetensorsModel, json_that_is_no_sound_object_is_refused) {
    TestFolder folder;
    folder.write("model.safetensors", safetensors_bytes(small_model()));
    auto refused = [&](const std::string& name, const std::string& text,
                       std::vector<std::string> says) {
        std::string path = folder.write(name, text);
        std::string message = open_error(folder.path());
        expect_parts(message, {path});
        expect_parts(message, says);
        folder.write(name, "{}");
    };
    refused("config.json", "[]", {"array", "object"});
    refused("config.json", "{", {"not valid JSON"});
    refused("config.json", "", {"not valid JSON"});
    refused("config.json", std::string(200'000, '['), {"nested deeper"});
    refused("config.json", std::string((16 << 20) + 1, ' '), {"larger than"});
    refused("generation_config.json", "3", {"number", "object"});
    refused("tokenizer_config.json", std::string(200'000, '['), {"nested deeper"});
    refused("chat_template.json", "\"x\"", {"string", "object"});
}

TEST(SafetensorsModel, a_fifo_or_folder_in_place_of_a_file_is_refused_not_waited_for) {
    for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json",
                             "generation_config.json", "chat_template.jinja"}) {
        SCOPED_TRACE(name);
        for (bool fifo : {true, false}) {
            TestFolder folder;
            folder.write("config.json", kConfig);
            std::string model = "model.safetensors";
            if (name != model + ".index.json")
                folder.write(model, safetensors_bytes(small_model()));
            std::filesystem::remove(folder.path(name));
            ASSERT_EQ(fifo ? mkfifo(folder.path(name).c_str(), 0600)
                           : mkdir(folder.path(name).c_str(), 0700),
                      0);
            expect_parts(open_error(folder.path()), {folder.path(name), "regular file"});
        }
    }
}

TEST(SafetensorsModel, dtypes_that_are_no_weights_are_refused_by_name) {
    TestFolder folder;
    folder.write("config.json", kConfig);
    for (const char* dtype : {"F64", "I64", "F8_E4M3", "F8_E5M2", "I8", "U8", "BOOL", "U32"}) {
        size_t n = dtype == std::string("F64") || dtype == std::string("I64") ? 8
                   : dtype == std::string("U32")                              ? 4
                                                                              : 1;
        std::string path = folder.write(
            "model.safetensors", safetensors_bytes({{"x.bias", dtype, {1}, std::string(n, 0)}}));
        expect_parts(open_error(folder.path()), {path, "x.bias", dtype, "BF16"});
    }
}

TEST(SafetensorsModel, two_names_with_one_translation_are_refused) {
    TestFolder folder;
    folder.write("config.json", kConfig);
    folder.write("model.safetensors",
                 safetensors_bytes({{"model.norm.weight", "F32", {1}, raw(1.0f)},
                                    {"output_norm.weight", "F32", {1}, raw(1.0f)}}));
    expect_parts(open_error(folder.path()),
                 {folder.path("model.safetensors"), "norm.weight", "twice"});
}

// Two shards and their index.
struct ShardedModel {
    TestFolder folder;
    std::string first = "model-00001-of-00002.safetensors";
    std::string second = "model-00002-of-00002.safetensors";
    ShardedModel() {
        std::vector<RawWeight> weights = small_model();
        folder.write("config.json", kConfig);
        folder.write(first, safetensors_bytes({weights[0], weights[1]}));
        folder.write(second, safetensors_bytes({weights.begin() + 2, weights.end()}));
        write_map(whole_map());
    }
    std::string whole_map() const {
        return R"("model.embed_tokens.weight":")" + first + R"(","model.norm.weight":")" + first +
               R"(","model.layers.0.self_attn.q_proj.weight":")" + second + R"(","scale":")" +
               second + '"';
    }
    std::string index_path() const { return folder.path("model.safetensors.index.json"); }
    void write_map(const std::string& map) const {
        folder.write("model.safetensors.index.json",
                     R"({"metadata":{"total_size":1},"weight_map":{)" + map + "}}");
    }
    void expect_refused(const std::vector<std::string>& says) const {
        expect_parts(open_error(folder.path()), says);
    }
};

TEST(SafetensorsModel, shards_open_by_folder_and_by_any_one_of_them) {
    ShardedModel model;
    expect_small_model(ModelFile::open(model.folder.path()));
    expect_small_model(ModelFile::open(model.folder.path(model.first)));
    expect_small_model(ModelFile::open(model.folder.path(model.second)));
    ModelFile file = ModelFile::open(model.folder.path());
    EXPECT_EQ(file.file_of(*file.find("scale")), model.folder.path(model.second));
    EXPECT_EQ(file.file_paths().size(), 2u);
}

TEST(SafetensorsModel, an_index_names_plain_files_of_its_folder_only) {
    ShardedModel model;
    model.folder.write("elsewhere/x.safetensors", safetensors_bytes(small_model()));
    std::string absolute = model.folder.path(model.first);
    for (const std::string& name :
         {std::string("../x"), absolute, std::string("elsewhere/x.safetensors"), std::string(".."),
          std::string("."), std::string("/dev/zero"), std::string(), std::string("a\\u0000b")}) {
        SCOPED_TRACE(name);
        model.write_map(R"("scale":")" + name + '"');
        model.expect_refused({model.index_path(), "weight_map", "scale", "same folder"});
    }
    model.write_map(R"("scale":7)");
    model.expect_refused({model.index_path(), "weight_map", "scale", "7"});
}

TEST(SafetensorsModel, a_shard_that_is_no_regular_file_is_refused) {
    ShardedModel model;
    for (const char* target : {"/dev/zero", "/dev", "nowhere"}) {
        SCOPED_TRACE(target);
        std::filesystem::remove(model.folder.path(model.second));
        model.folder.link(target, model.second);
        model.expect_refused({model.folder.path(model.second)});
    }
    std::filesystem::remove(model.folder.path(model.second));
    ASSERT_EQ(mkfifo(model.folder.path(model.second).c_str(), 0600), 0);
    model.expect_refused({model.folder.path(model.second), "FIFO"});
    std::filesystem::remove(model.folder.path(model.second));
    model.folder.write(model.second, "version https://git-lfs.github.com/spec/v1\noid sha256:1\n");
    model.expect_refused({model.folder.path(model.second), "git-lfs"});
}

TEST(SafetensorsModel, an_index_that_disagrees_with_the_shards_is_refused) {
    ShardedModel model;
    model.write_map(model.whole_map() + R"(,"absent":")" + model.first + '"');
    model.expect_refused({model.index_path(), "absent", model.first});
    model.write_map(model.whole_map() + R"(,"scale":")" + model.first + '"');
    model.expect_refused({model.index_path(), "scale", model.first});
    model.write_map("");
    model.expect_refused({model.index_path(), "weight_map is empty"});
    model.folder.write("model.safetensors.index.json", R"({"weight_map":[]})");
    model.expect_refused({model.index_path(), "weight_map"});
    model.folder.write("model.safetensors.index.json", std::string(200'000, '['));
    model.expect_refused({model.index_path(), "nested deeper"});
}

TEST(SafetensorsModel, a_tensor_in_two_shards_is_refused) {
    ShardedModel model;
    model.folder.write(model.second, safetensors_bytes(small_model()));
    model.expect_refused({model.folder.path(model.second), "model.embed_tokens.weight", "another"});
}

}  // namespace
}  // namespace ridge
