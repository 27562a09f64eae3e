#include "file/gguf_writer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "file/model_file.h"

namespace ridge {
namespace {

TEST(GgufWriter, what_is_written_is_read_back) {
    GgufWriter writer;
    writer.add_string("general.architecture", "llama");
    writer.add_u16("a.u16", 65535);
    writer.add_u32("a.u32", 7);
    writer.add_i32("a.i32", -7);
    writer.add_u64("a.u64", UINT64_MAX);
    writer.add_f32("a.f32", 1e-6f);
    writer.add_bool("a.true", true);
    writer.add_bool("a.false", false);
    writer.add_strings("a.strings", {"one", "", "three"});
    writer.add_strings("a.nothing", {});
    writer.add_i32s("a.i32s", {-1, 0, 2147483647});
    writer.add_f32s("a.f32s", {0.5f, -2.0f});
    int vector = writer.add_tensor("output_norm.weight", format_of(FormatId::kF32), {3});
    int matrix = writer.add_tensor("token_embd.weight", format_of(FormatId::kQ8_0), {5, 64});
    EXPECT_EQ(vector, 0);
    EXPECT_EQ(matrix, 1);
    EXPECT_EQ(writer.tensor_bytes(vector), 12u);
    EXPECT_EQ(writer.tensor_bytes(matrix), 5u * 2 * 34);
    EXPECT_EQ(writer.tensor_offset(vector), writer.header().size());
    EXPECT_EQ(writer.tensor_offset(matrix), writer.header().size() + 32);

    MappedFile image = writer.build("made in memory");
    ASSERT_EQ(image.bytes().size(), writer.file_bytes());
    float values[3] = {1, 2, 3};
    memcpy(image.writable_bytes().data() + writer.tensor_offset(vector), values, sizeof values);

    ModelFile file = ModelFile::from_memory(std::move(image));
    const GgufMetadata& metadata = file.metadata();
    EXPECT_EQ(file.type(), FileType::kGguf);
    EXPECT_EQ(metadata.find_string("general.architecture"), "llama");
    EXPECT_EQ(metadata.find_u32("a.u16"), 65535u);
    EXPECT_EQ(metadata.find_u32("a.u32"), 7u);
    EXPECT_EQ(metadata.find_i64("a.i32"), -7);
    EXPECT_EQ(metadata.find_u64("a.u64"), UINT64_MAX);
    EXPECT_EQ(metadata.find_f32("a.f32"), 1e-6f);
    EXPECT_EQ(metadata.find_bool("a.true"), true);
    EXPECT_EQ(metadata.find_bool("a.false"), false);
    EXPECT_EQ(metadata.find_strings("a.strings"),
              (std::vector<std::string_view>{"one", "", "three"}));
    EXPECT_EQ(metadata.find_strings("a.nothing"), std::vector<std::string_view>{});
    EXPECT_EQ(metadata.find_i32s("a.i32s"), (std::vector<int32_t>{-1, 0, 2147483647}));
    EXPECT_EQ(metadata.find_f32s("a.f32s"), (std::vector<float>{0.5f, -2.0f}));
    EXPECT_EQ(metadata.find_u32("absent"), std::nullopt);
    EXPECT_EQ(metadata.find_strings("absent"), std::nullopt);

    EXPECT_EQ(file.tensor_names(),
              (std::vector<std::string>{"output_norm.weight", "token_embd.weight"}));
    const Tensor* norm = file.find("output_norm.weight");
    ASSERT_NE(norm, nullptr);
    EXPECT_EQ(shape_text(*norm), "[3]");
    EXPECT_EQ(memcmp(norm->planes[0].data, values, sizeof values), 0);
    const Tensor* embedding = file.find("token_embd.weight");
    ASSERT_NE(embedding, nullptr);
    EXPECT_EQ(shape_text(*embedding), "[5, 64]");
    EXPECT_EQ(embedding->format->id, FormatId::kQ8_0);
    EXPECT_EQ(embedding->planes[0].stride_bytes, 68);
    EXPECT_EQ(embedding->layout, &row_major_layout());
    EXPECT_EQ(file.find("absent"), nullptr);
    EXPECT_EQ(file.file_of(*embedding), "made in memory");
}

}  // namespace
}  // namespace ridge
