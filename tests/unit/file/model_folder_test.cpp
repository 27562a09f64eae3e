#include <sys/stat.h>

#include "base/json.h"
#include "file/content.h"
#include "file/paths.h"
#include "raw_gguf.h"
#include "raw_safetensors.h"
#include "test_files.h"

namespace ridge {
namespace {

std::string small_gguf() {
    return RawGguf().bytes();
}

std::string small_safetensors() {
    return safetensors_bytes({{"model.norm.weight", "F32", {1}, raw(1.0f)}});
}

TEST(ModelFile, a_gguf_file_opens_under_any_name) {
    TestFolder folder;
    for (const char* name : {"model.bin", "model.safetensors", "model", "-00001-of-00002"}) {
        std::string path = folder.write(name, small_gguf());
        ModelFile file = ModelFile::open(path);
        EXPECT_EQ(file.type(), FileType::kGguf);
        EXPECT_EQ(file.path(), path);
        EXPECT_EQ(file.file_paths(), std::vector<std::string>{path});
        EXPECT_EQ(file.file_bytes(), small_gguf().size());
        EXPECT_EQ(file.tensor_names().size(), 2u);
        EXPECT_EQ(file.file_of(file.tensor(1)), path);
        EXPECT_EQ(file.chat_template(), std::nullopt);
    }
}

TEST(ModelFile, it_can_be_moved) {
    ModelFile first = ModelFile::from_memory(image_of(small_gguf(), "one"));
    const Tensor* tensor = first.find("first.weight");
    ModelFile second = std::move(first);
    EXPECT_EQ(second.find("first.weight"), tensor);
    second = ModelFile::from_memory(image_of(small_gguf(), "two"));
    EXPECT_EQ(second.path(), "two");
    second.drop_pages(second.tensor(0));  // memory without a file keeps its bytes
    EXPECT_EQ(std::to_integer<char>(*second.tensor(0).planes[0].data), 'x');
}

TEST(ModelFile, the_chat_template_of_gguf_is_its_key) {
    RawGguf file;
    file.entries.push_back({"tokenizer.chat_template", 8, raw_string("{{ messages }}")});
    ModelFile model = ModelFile::from_memory(image_of(file.bytes(), "image"));
    EXPECT_EQ(model.chat_template(), "{{ messages }}");
}

TEST(ModelFile, what_is_no_model_is_called_what_it_looks_like) {
    using namespace std::string_literals;
    const std::pair<std::string, std::vector<std::string>> kFiles[] = {
        {"", {"0 bytes"}},
        {"abc", {"3 bytes"}},
        {"<!DOCTYPE html><html>", {"<!DOCTYP", "web page"}},
        {"<html>\n<body>", {"web page"}},
        {"version https://git-lfs.github.com/spec/v1\n", {"git-lfs pointer", "git lfs pull"}},
        {"PK\x03\x04\0\0\0\0\0\0data"s, {"zip", "PyTorch"}},
        {"\x80\x02}q\0."s, {"pickle", "PyTorch"}},
        {"\x1f\x8b\x08\0\0\0\0\0"s, {"gzip"}},
        {"\xfd"s + "7zXZ\0\0\0"s, {"xz"}},
        {"\x28\xb5\x2f\xfd\0\0\0\0"s, {"zstd"}},
        {"tjgg\3\0\0\0\0\0\0\0"s, {"GGML", "before GGUF"}},
        {"{\"a\": 1, \"b\": 2}", {"JSON", "folder"}},
        {std::string(64, '\0'), {"zeros"}},
        {"just some text of no kind", {"just som"}},
        {"\x1b[2J\x1b[31m red", {"\\x1b[2J"}},
    };
    TestFolder folder;
    for (const auto& [bytes, says] : kFiles) {
        std::string path = folder.write("model.gguf", bytes);
        std::string message = open_error(path);
        expect_parts(message, {path, "GGUF", "safetensors"});
        expect_parts(message, says);
    }
}

TEST(ModelFile, safetensors_are_known_whatever_their_header_length_looks_like) {
    TestFolder folder;
    folder.write("config.json", "{}");
    std::string bytes = small_safetensors(), data = bytes.substr(bytes.size() - 4);
    std::string header = bytes.substr(8, bytes.size() - 8 - 4);
    // 640 begins like a pickle, 35,615 like gzip, 123 like JSON.
    for (size_t n_header_bytes : {123, 640, 35'615}) {
        std::string padded = header + std::string(n_header_bytes - header.size(), ' ');
        std::string path = folder.write("x", raw<uint64_t>(padded.size()) + padded + data);
        EXPECT_EQ(ModelFile::open(path).type(), FileType::kSafetensors);
    }
    expect_parts(open_error(folder.write("x", raw<uint64_t>(1000) + header + data)),
                 {"header length is 1000"});
    expect_parts(open_error(folder.write("x", raw<uint64_t>(2) + "[]")), {"array"});
}

TEST(ModelFile, a_path_that_is_no_readable_file_is_refused) {
    TestFolder folder;
    expect_parts(open_error(folder.path("absent.gguf")),
                 {folder.path("absent.gguf"), "No such file"});
    expect_parts(open_error(""), {"cannot open"});
    expect_parts(open_error("/dev/null"), {"/dev/null", "device"});
    ASSERT_EQ(mkfifo(folder.path("fifo").c_str(), 0600), 0);
    expect_parts(open_error(folder.path("fifo")), {folder.path("fifo"), "FIFO"});
}

TEST(ModelFolder, one_gguf_file_is_found_by_its_bytes) {
    TestFolder folder;
    folder.write("README.md", "# A model");
    folder.write("config.json", "{}");
    std::string path = folder.write("weights", small_gguf());
    ModelFile file = ModelFile::open(folder.path());
    EXPECT_EQ(file.path(), folder.path());
    EXPECT_EQ(file.file_paths(), std::vector<std::string>{path});
}

TEST(ModelFolder, safetensors_come_before_gguf) {
    TestFolder folder;
    folder.write("config.json", "{}");
    folder.write("model.safetensors", small_safetensors());
    folder.write("model.gguf", small_gguf());
    EXPECT_EQ(ModelFile::open(folder.path()).type(), FileType::kSafetensors);
}

TEST(ModelFolder, several_gguf_models_are_listed) {
    TestFolder folder;
    folder.write("a.Q4_0.gguf", small_gguf());
    folder.write("a.Q8_0.gguf", small_gguf());
    expect_parts(open_error(folder.path()),
                 {folder.path(), "2 GGUF models", "a.Q4_0.gguf", "a.Q8_0.gguf"});
}

TEST(ModelFolder, pytorch_weights_are_refused_by_name) {
    TestFolder folder;
    folder.write("config.json", "{}");
    folder.write("pytorch_model.bin", "PK\x03\x04...");
    expect_parts(open_error(folder.path()), {folder.path(), "pytorch_model.bin", "safetensors"});
}

TEST(ModelFolder, a_folder_without_a_model_is_refused_with_what_it_holds) {
    TestFolder folder;
    expect_parts(open_error(folder.path()), {folder.path(), "config.json", "nothing"});
    for (int i = 0; i < 50; i++) folder.write("note" + std::to_string(i), "x");
    expect_parts(open_error(folder.path()), {folder.path(), "config.json", "note0", "more"});
}

// As huggingface_hub lays out its cache: blobs by hash, snapshots of links.
struct HubCache {
    TestFolder folder;
    HubCache() {
        folder.write("blobs/c0", R"({"model_type":"llama"})");
        folder.write("blobs/5afe", small_safetensors());
        add_snapshot("abc123");
    }
    void add_snapshot(const std::string& revision) {
        folder.link("../../blobs/c0", "snapshots/" + revision + "/config.json");
        folder.link("../../blobs/5afe", "snapshots/" + revision + "/model.safetensors");
    }
    std::string opened() { return ModelFile::open(folder.path()).file_paths()[0]; }
    std::string weights_of(const std::string& revision) {
        return folder.path("snapshots/" + revision + "/model.safetensors");
    }
};

TEST(ModelFolder, a_snapshot_of_links_opens_by_itself_and_by_its_cache_folder) {
    HubCache cache;
    EXPECT_EQ(ModelFile::open(cache.folder.path("snapshots/abc123")).config()["model_type"],
              "llama");
    EXPECT_EQ(cache.opened(), cache.weights_of("abc123"));
}

TEST(ModelFolder, refs_main_picks_the_snapshot) {
    HubCache cache;
    cache.add_snapshot("def456");
    expect_parts(error_of([&] { cache.opened(); }), {"snapshots", "abc123", "def456", "refs/main"});
    cache.folder.write("refs/main", "def456\n");
    EXPECT_EQ(cache.opened(), cache.weights_of("def456"));
    cache.folder.write("refs/main", "abc123");
    EXPECT_EQ(cache.opened(), cache.weights_of("abc123"));
    cache.folder.write("refs/main", "gone");
    expect_parts(error_of([&] { cache.opened(); }), {"abc123", "def456"});
    for (const char* revision : {"../../x", "", ".."}) {
        cache.folder.write("refs/main", revision);
        expect_parts(error_of([&] { cache.opened(); }),
                     {cache.folder.path("refs/main"), "revision"});
    }
}

TEST(ModelFolder, a_shard_index_of_links_opens) {
    HubCache cache;
    cache.folder.write("blobs/1d", R"({"weight_map":{"model.norm.weight":"model-1.safetensors"}})");
    cache.folder.link("../../blobs/c0", "snapshots/split/config.json");
    cache.folder.link("../../blobs/1d", "snapshots/split/model.safetensors.index.json");
    cache.folder.link("../../blobs/5afe", "snapshots/split/model-1.safetensors");
    EXPECT_NE(ModelFile::open(cache.folder.path("snapshots/split")).find("output_norm.weight"),
              nullptr);
}

TEST(ModelFolder, a_link_to_nowhere_is_named) {
    HubCache cache;
    std::filesystem::remove(cache.folder.path("blobs/5afe"));
    expect_parts(error_of([&] { cache.opened(); }), {cache.weights_of("abc123"), "No such file"});
}

TEST(Paths, split_names_are_taken_apart_at_the_last_pattern) {
    auto split = parse_split_name("/dir-00001-of-00009/x-00007-of-00008-00002-of-00003.gguf");
    ASSERT_TRUE(split);
    EXPECT_EQ(split->prefix, "/dir-00001-of-00009/x-00007-of-00008");
    EXPECT_EQ(split->number, 2u);
    EXPECT_EQ(split->count, 3u);
    EXPECT_EQ(split->suffix, ".gguf");
    for (const char* name : {"", "x.gguf", "x-0001-of-0002.gguf", "x-00001-of-0000a.gguf",
                             "-00001-of-00002/x.gguf", "00001-of-00002"}) {
        EXPECT_FALSE(parse_split_name(name)) << name;
    }
}

TEST(MappedModelDeathTest, a_file_cut_short_while_mapped_ends_in_one_line_and_status_1) {
    TestFolder folder;
    auto use_cut_file = [&] {
        RawGguf file;
        file.tensors[1].dims = {32, 100'000};
        file.data.resize(32 + 18 * 100'000);
        std::string path = folder.write("model.gguf", file.bytes());
        ModelFile model = ModelFile::open(path);
        std::filesystem::resize_file(path, 4096);
        std::vector<float> row(32);
        unpack_row(*model.find("second.weight"), 99'999, row.data());
    };
    EXPECT_EXIT(use_cut_file(), testing::ExitedWithCode(1),
                "^ridge: [^\n]*model.gguf: the file was cut short[^\n]*\n$");
}

}  // namespace
}  // namespace ridge
