#include <filesystem>

#include "raw_gguf.h"
#include "test_files.h"

namespace ridge {
namespace {

RawGguf part(uint16_t number, uint16_t count, int32_t n_tensors) {
    RawGguf file;
    if (number > 0) file.entries.clear();
    file.entries.push_back({"split.no", 2, raw(number)});
    file.entries.push_back({"split.count", 2, raw(count)});
    file.entries.push_back({"split.tensors.count", 5, raw(n_tensors)});
    for (RawTensor& tensor : file.tensors) tensor.name = std::to_string(number) + "." + tensor.name;
    file.data[0] = static_cast<char>('0' + number);
    return file;
}

// Three parts of two tensors each.
struct SplitModel {
    TestFolder folder;
    std::string path(int number) {
        return folder.path("x-0000" + std::to_string(number) + "-of-00003.gguf");
    }
    void write(int number, const RawGguf& file) {
        folder.write(std::filesystem::path(path(number)).filename().string(), file.bytes());
    }
    SplitModel() {
        for (uint16_t i = 0; i < 3; i++) write(i + 1, part(i, 3, 6));
    }
};

TEST(GgufSplit, any_part_opens_all) {
    SplitModel model;
    for (int i = 1; i <= 3; i++) {
        ModelFile file = ModelFile::open(model.path(i));
        EXPECT_EQ(file.path(), model.path(i));
        EXPECT_EQ(file.file_paths(),
                  (std::vector<std::string>{model.path(1), model.path(2), model.path(3)}));
        ASSERT_EQ(file.tensor_names().size(), 6u);
        EXPECT_EQ(file.metadata().find_string("general.architecture"), "llama");
        const Tensor* tensor = file.find("2.first.weight");
        ASSERT_NE(tensor, nullptr);
        EXPECT_EQ(std::to_integer<char>(*tensor->planes[0].data), '2');
        EXPECT_EQ(file.file_of(*tensor), model.path(3));
        file.drop_pages(*tensor);
        EXPECT_EQ(std::to_integer<char>(*tensor->planes[0].data), '2');
        EXPECT_EQ(file.file_bytes(), std::filesystem::file_size(model.path(1)) +
                                         std::filesystem::file_size(model.path(2)) +
                                         std::filesystem::file_size(model.path(3)));
    }
}

TEST(GgufSplit, a_folder_of_one_split_set_opens_it) {
    SplitModel model;
    EXPECT_EQ(ModelFile::open(model.folder.path()).tensor_names().size(), 6u);
}

TEST(GgufSplit, a_missing_part_is_named) {
    SplitModel model;
    std::filesystem::remove(model.path(2));
    for (int i : {1, 3}) expect_parts(open_error(model.path(i)), {model.path(2), "part 2 of 3"});
}

TEST(GgufSplit, parts_in_another_order_are_refused) {
    SplitModel model;
    std::filesystem::rename(model.path(2), model.folder.path("aside"));
    std::filesystem::rename(model.path(3), model.path(2));
    std::filesystem::rename(model.folder.path("aside"), model.path(3));
    for (int i : {1, 2, 3}) {
        expect_parts(open_error(model.path(i)), {model.path(2), "split.no is 2", "expected 1"});
    }
}

TEST(GgufSplit, counts_that_disagree_are_refused) {
    SplitModel model;
    model.write(2, part(1, 4, 6));
    expect_parts(open_error(model.path(1)), {model.path(2), "split.count is 4", "expected 3"});
    expect_parts(open_error(model.path(2)), {model.path(2), "split.count is 4", "3 parts"});
    model.write(2, part(1, 3, 7));
    expect_parts(open_error(model.path(1)), {"split.tensors.count is 7", "6"});
    model.write(2, part(3, 3, 6));
    expect_parts(open_error(model.path(1)), {model.path(2), "split.no is 3", "split.count"});
    model.write(2, part(0, 60000, 6));
    expect_parts(open_error(model.path(1)), {model.path(2), "split.count is 60000"});
}

TEST(GgufSplit, a_tensor_in_two_parts_is_refused) {
    SplitModel model;
    RawGguf second = part(1, 3, 6);
    second.tensors[0].name = "0.first.weight";
    model.write(2, second);
    expect_parts(open_error(model.path(1)), {model.path(2), "0.first.weight", "twice"});
}

TEST(GgufSplit, a_part_under_a_name_without_a_number_is_refused) {
    SplitModel model;
    std::string path = model.folder.path("renamed.gguf");
    std::filesystem::rename(model.path(1), path);
    expect_parts(open_error(path), {path, "split.count is 3", "-00001-of-00003"});
}

TEST(GgufSplit, a_part_that_is_something_else_is_refused) {
    SplitModel model;
    model.folder.write("x-00002-of-00003.gguf", "<html><body>404</body></html>");
    expect_parts(open_error(model.path(1)), {model.path(2), "web page"});
}

TEST(GgufSplit, a_merged_file_that_kept_its_keys_is_whole) {
    TestFolder folder;
    for (uint16_t count : {0, 1}) {
        std::string path = folder.write("merged.gguf", part(0, count, 2).bytes());
        EXPECT_EQ(ModelFile::open(path).tensor_names().size(), 2u);
    }
}

}  // namespace
}  // namespace ridge
