#include "file/gguf.h"

#include "file/gguf_writer.h"
#include "raw_gguf.h"
#include "test_files.h"

namespace ridge {
namespace {

ModelFile open_image(const RawGguf& file) {
    return ModelFile::from_memory(image_of(file.bytes(), "model.gguf"));
}

RawGguf with(std::vector<RawEntry> entries) {
    RawGguf file;
    file.entries = std::move(entries);
    return file;
}

TEST(Gguf, version_2_is_read) {
    RawGguf file;
    file.version = raw<uint32_t>(2);
    EXPECT_EQ(open_image(file).tensor_names().size(), 2u);
}

TEST(Gguf, dimensions_are_turned_and_rows_lie_one_after_the_other) {
    ModelFile model = open_image(RawGguf());
    const Tensor& tensor = *model.find("first.weight");
    EXPECT_EQ(shape_text(tensor), "[2, 4]");
    EXPECT_EQ(tensor.planes[0].stride_bytes, 16);
    EXPECT_EQ(tensor.name, "first.weight");
    EXPECT_EQ(tensor.format->id, FormatId::kF32);
    EXPECT_EQ(model.find("second.weight")->planes[0].data - tensor.planes[0].data, 32);
}

TEST(Gguf, the_longest_names_and_the_bounds_of_the_alignment_are_read) {
    for (uint32_t alignment : {8u, 65536u}) {
        RawGguf file;
        file.entries.push_back({"general.alignment", 4, raw(alignment)});
        file.entries.push_back({std::string(65535, 'k'), 4, raw(1u)});
        file.alignment = alignment;
        file.tensors.pop_back();
        file.tensors[0].name = std::string(63, 'n');
        EXPECT_NE(open_image(file).find(std::string(63, 'n')), nullptr);
    }
}

TEST(Gguf, alignment_64_is_honoured) {
    RawGguf file;
    file.entries.push_back({"general.alignment", 4, raw(64u)});
    file.alignment = 64;
    file.tensors[1].offset = 64;
    file.data = std::string(64, 'a') + std::string(18, 'b');
    ModelFile model = open_image(file);
    EXPECT_EQ(std::to_integer<char>(*model.find("first.weight")->planes[0].data), 'a');
    EXPECT_EQ(std::to_integer<char>(*model.find("second.weight")->planes[0].data), 'b');
}

TEST(Gguf, tensors_may_lie_in_any_order_and_with_gaps) {
    RawGguf file;
    file.tensors[0].offset = 96;
    file.tensors[1].offset = 32;
    file.data = std::string(96, 'b') + std::string(32, 'a');
    ModelFile model = open_image(file);
    EXPECT_EQ(std::to_integer<char>(*model.find("first.weight")->planes[0].data), 'a');
    EXPECT_EQ(std::to_integer<char>(*model.find("second.weight")->planes[0].data), 'b');
    EXPECT_EQ(model.tensor_names()[0], "first.weight") << "names stay in the order of the file";
}

TEST(Gguf, a_file_of_metadata_alone_is_read) {
    RawGguf file;
    file.tensors.clear();
    file.data.clear();
    file.alignment = 1;  // vocabulary files end right behind the metadata
    ModelFile model = open_image(file);
    EXPECT_TRUE(model.tensor_names().empty());
    EXPECT_EQ(model.metadata().find_string("general.architecture"), "llama");
    file.entries.clear();
    EXPECT_TRUE(open_image(file).metadata().entries().empty());
}

TEST(Gguf, unknown_keys_empty_strings_and_shallow_arrays_of_arrays_are_read) {
    std::string inner = raw_array(8, 1, raw_string("x")) + raw_array(0, 0, "");
    ModelFile model = open_image(with({
        {"some.thing", 9, raw_array(9, 2, inner)},
        {"empty", 8, raw_string("")},
        {"after", 4, raw(7u)},
    }));
    EXPECT_EQ(model.metadata().find_string("empty"), "");
    EXPECT_EQ(model.metadata().find_u32("after"), 7u);
    EXPECT_EQ(gguf_type_text(*model.metadata().find("some.thing")), "ARRAY of ARRAY");
}

TEST(Gguf, entries_keep_the_order_of_the_file) {
    ModelFile model = open_image(with({{"z", 0, "1"}, {"a", 0, "2"}, {"m", 0, "3"}}));
    std::string keys;
    for (const GgufEntry& entry : model.metadata().entries()) keys += entry.key;
    EXPECT_EQ(keys, "zam");
}

TEST(Gguf, integers_of_any_width_convert_where_the_value_fits) {
    ModelFile model = open_image(with({
        {"u8", 0, raw<uint8_t>(200)},
        {"i8", 1, raw<int8_t>(-1)},
        {"u16", 2, raw<uint16_t>(65535)},
        {"i16", 3, raw<int16_t>(-300)},
        {"u32", 4, raw<uint32_t>(4294967295u)},
        {"i32", 5, raw<int32_t>(-2147483647 - 1)},
        {"u64", 10, raw<uint64_t>(UINT64_MAX)},
        {"i64", 11, raw<int64_t>(INT64_MIN)},
        {"small", 10, raw<uint64_t>(12)},
    }));
    const GgufMetadata& metadata = model.metadata();
    EXPECT_EQ(metadata.find_u32("u8"), 200u);
    EXPECT_EQ(metadata.find_i64("i8"), -1);
    EXPECT_EQ(metadata.find_u64("u16"), 65535u);
    EXPECT_EQ(metadata.find_i64("i16"), -300);
    EXPECT_EQ(metadata.find_u32("u32"), 4294967295u);
    EXPECT_EQ(metadata.find_i64("i32"), -2147483648ll);
    EXPECT_EQ(metadata.find_u64("u64"), UINT64_MAX);
    EXPECT_EQ(metadata.find_i64("i64"), INT64_MIN);
    EXPECT_EQ(metadata.find_u32("small"), 12u);
    expect_parts(error_of([&] { metadata.find_u32("i8"); }),
                 {"model.gguf", "i8 is -1", "0 to 4294967295"});
    expect_parts(error_of([&] { metadata.find_u64("i64"); }), {"i64 is -9223372036854775808"});
    expect_parts(error_of([&] { metadata.find_u32("u64"); }), {"u64 is 18446744073709551615"});
    expect_parts(error_of([&] { metadata.find_i64("u64"); }), {"u64 is 18446744073709551615"});
}

TEST(Gguf, arrays_of_integers_and_floats_convert_their_elements) {
    ModelFile model = open_image(with({
        {"u8s", 9, raw_array(0, 2, std::string("\xff\x01", 2))},
        {"i64s", 9, raw_array(11, 2, raw<int64_t>(-5) + raw<int64_t>(6))},
        {"large", 9, raw_array(4, 1, raw<uint32_t>(1u << 31))},
        {"f64s", 9, raw_array(12, 2, raw(0.5) + raw(-1.0))},
        {"f64", 12, raw(0.25)},
        {"bools", 9, raw_array(7, 2, std::string("\0\1", 2))},
    }));
    const GgufMetadata& metadata = model.metadata();
    EXPECT_EQ(metadata.find_i32s("u8s"), (std::vector<int32_t>{255, 1}));
    EXPECT_EQ(metadata.find_i32s("i64s"), (std::vector<int32_t>{-5, 6}));
    EXPECT_EQ(metadata.find_f32s("f64s"), (std::vector<float>{0.5f, -1.0f}));
    EXPECT_EQ(metadata.find_f32("f64"), 0.25f);
    expect_parts(error_of([&] { metadata.find_i32s("large"); }), {"large is 2147483648"});
    expect_parts(error_of([&] { metadata.find_i32s("bools"); }), {"bools", "ARRAY of BOOL"});
}

TEST(Gguf, a_value_of_another_type_is_refused_by_key_and_types) {
    ModelFile model = open_image(with({
        {"number", 4, raw(1u)},
        {"text", 8, raw_string("x")},
        {"numbers", 9, raw_array(4, 1, raw(1u))},
        {"flag", 7, "\1"},
        {"real", 6, raw(1.0f)},
    }));
    const GgufMetadata& metadata = model.metadata();
    expect_parts(error_of([&] { metadata.find_string("number"); }),
                 {"model.gguf", "number", "UINT32", "STRING"});
    expect_parts(error_of([&] { metadata.find_u32("text"); }), {"text", "STRING", "integer"});
    expect_parts(error_of([&] { metadata.find_u32("numbers"); }), {"numbers", "ARRAY of UINT32"});
    expect_parts(error_of([&] { metadata.find_u32("flag"); }), {"flag", "BOOL", "integer"});
    expect_parts(error_of([&] { metadata.find_f32("number"); }), {"number", "UINT32", "FLOAT32"});
    expect_parts(error_of([&] { metadata.find_bool("number"); }), {"number", "UINT32", "BOOL"});
    expect_parts(error_of([&] { metadata.find_strings("numbers"); }),
                 {"numbers", "ARRAY of UINT32", "ARRAY of STRING"});
    expect_parts(error_of([&] { metadata.find_strings("text"); }), {"text", "ARRAY of STRING"});
    expect_parts(error_of([&] { metadata.find_f32s("numbers"); }), {"numbers", "ARRAY of FLOAT32"});
    expect_parts(error_of([&] { metadata.find_u64("real"); }), {"real", "FLOAT32", "integer"});
}

TEST(Gguf, values_are_shown_short_and_escaped) {
    ModelFile model = open_image(with({
        {"text", 8, raw_string("\x1b[2J" + std::string(1000, 'x'))},
        {"numbers", 9, raw_array(1, 100, std::string(100, '\xff'))},
        {"strings", 9, raw_array(8, 2, raw_string("a") + raw_string("b"))},
        {"flags", 9, raw_array(7, 2, std::string("\0\1", 2))},
        {"none", 9, raw_array(4, 0, "")},
        {"real", 6, raw(1e-6f)},
        {"large", 10, raw<uint64_t>(UINT64_MAX)},
    }));
    auto text = [&](const char* key) { return gguf_value_text(*model.metadata().find(key)); };
    EXPECT_EQ(text("text").substr(0, 9), "\"\\x1b[2Jx");
    EXPECT_LT(text("text").size(), 100u);
    EXPECT_EQ(text("numbers").substr(0, 9), "[-1, -1, ");
    EXPECT_LT(text("numbers").size(), 100u);
    EXPECT_EQ(text("strings"), "[\"a\", \"b\"]");
    EXPECT_EQ(text("flags"), "[false, true]");
    EXPECT_EQ(text("none"), "[]");
    EXPECT_EQ(text("real"), "1e-06");
    EXPECT_EQ(text("large"), "18446744073709551615");
}

}  // namespace
}  // namespace ridge
