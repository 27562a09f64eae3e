#include <functional>

#include "file/gguf.h"
#include "raw_gguf.h"
#include "test_files.h"

namespace ridge {
namespace {

// A valid file with one fault, and what the error must say beside the file's name.
struct Fault {
    std::string name;
    std::function<void(RawGguf&)> edit;
    std::vector<std::string> says;
    std::function<void(std::string&)> cut = [](std::string&) {};  // of the bytes, afterwards
};

constexpr uint64_t kHuge = UINT64_MAX;

void add(RawGguf& file, uint32_t type, const std::string& value) {
    file.entries.push_back({"the.key", type, value});
}

std::string nested_arrays(int depth) {
    std::string out;
    for (int i = 0; i < depth; i++) out += raw_array(9, 1, "");
    return out + raw_array(0, 0, "");
}

// What the file has after the value that is added last, when all comes before the tensors.
uint64_t n_bytes_after_entries(const RawGguf& file) {
    RawGguf copy = file;
    size_t before = 4 + 4 + 8 + 8;
    for (const RawEntry& entry : copy.entries) {
        before += 8 + entry.key.size() + 4 + entry.value.size();
    }
    return copy.bytes().size() - before;
}

std::vector<Fault> header_faults() {
    return {
        {"magic_of_ggml", [](RawGguf& f) { f.magic = "GGML"; }, {"magic", "GGML", "GGUF"}},
        {"magic_of_a_web_page", [](RawGguf& f) { f.magic = "<htm"; }, {"<htm", "web page", "GGUF"}},
        {"no_bytes", [](RawGguf&) {}, {"0 bytes"}, [](std::string& b) { b.clear(); }},
        {"three_bytes", [](RawGguf&) {}, {"3 bytes"}, [](std::string& b) { b.resize(3); }},
        {"version_0", [](RawGguf& f) { f.version = raw<uint32_t>(0); }, {"version is 0", "2 or 3"}},
        {"version_1", [](RawGguf& f) { f.version = raw<uint32_t>(1); }, {"version is 1", "2 or 3"}},
        {"version_4", [](RawGguf& f) { f.version = raw<uint32_t>(4); }, {"version is 4", "2 or 3"}},
        {"version_max",
         [](RawGguf& f) { f.version = raw<uint32_t>(UINT32_MAX); },
         {"version is 4294967295", "2 or 3"}},
        {"big_endian",
         [](RawGguf& f) { f.version = std::string("\0\0\0\3", 4); },
         {"version", "big-endian", "version 3"}},
        {"n_tensors_max",
         [](RawGguf& f) { f.n_tensors = kHuge; },
         {"n_tensors", "18446744073709551615"}},
        {"n_tensors_2_63",
         [](RawGguf& f) { f.n_tensors = 1ull << 63; },
         {"n_tensors", "9223372036854775808"}},
        {"n_tensors_one_more", [](RawGguf& f) { f.n_tensors = 3; }, {"name of tensor 2"}},
        {"n_kv_max", [](RawGguf& f) { f.n_entries = kHuge; }, {"n_kv", "18446744073709551615"}},
        {"n_kv_2_63",
         [](RawGguf& f) { f.n_entries = 1ull << 63; },
         {"n_kv", "9223372036854775808"}},
        {"n_kv_one_more", [](RawGguf& f) { f.n_entries = 3; }, {}},
    };
}

std::vector<Fault> metadata_faults() {
    return {
        {"key_empty",
         [](RawGguf& f) {
             f.entries.push_back({"", 4, raw(1u)});
         },
         {"key", "2", "is 0"}},
        {"key_length_max",
         [](RawGguf& f) {
             f.entries.push_back({"k", 4, raw(1u), kHuge});
         },
         {"key of metadata entry 2", "18446744073709551615"}},
        {"key_length_one_past",
         [](RawGguf& f) {
             f.tensors.clear();
             f.data.clear();
             f.alignment = 1;
             f.entries.push_back({"k", 4, raw(1u), 1 + 4 + 4 + 1});
         },
         {"key of metadata entry 2", "is 10", "9 bytes left"}},
        {"key_too_long",
         [](RawGguf& f) {
             f.entries.push_back({std::string(65536, 'k'), 4, raw(1u)});
         },
         {"key of metadata entry 2", "65536"}},
        {"key_twice",
         [](RawGguf& f) {
             f.entries.push_back({"the.key", 4, raw(1u)});
             f.entries.push_back({"the.key", 8, raw_string("x")});
         },
         {"the.key", "twice"}},
        {"type_13",
         [](RawGguf& f) { add(f, 13, raw(1u)); },
         {"value type", "the.key", "is 13", "12"}},
        {"type_max",
         [](RawGguf& f) { add(f, UINT32_MAX, raw(1u)); },
         {"value type", "the.key", "is 4294967295"}},
        {"bool_2", [](RawGguf& f) { add(f, 7, "\x02"); }, {"the.key", "BOOL 2", "0 or 1"}},
        {"bool_2_in_an_array",
         [](RawGguf& f) { add(f, 9, raw_array(7, 3, std::string("\0\1\2", 3))); },
         {"the.key", "BOOL 2", "0 or 1"}},
        {"string_length_max",
         [](RawGguf& f) { add(f, 8, raw(kHuge) + "x"); },
         {"length", "the.key", "18446744073709551615"}},
        {"string_length_one_past",
         [](RawGguf& f) { add(f, 8, raw(n_bytes_after_entries(f) + 1)); },
         {"length", "the.key", "bytes left"}},
        {"array_type_13",
         [](RawGguf& f) { add(f, 9, raw_array(13, 1, "x")); },
         {"array element type", "the.key", "is 13"}},
        {"array_length_max",
         [](RawGguf& f) { add(f, 9, raw_array(0, kHuge, "")); },
         {"array length", "the.key", "18446744073709551615"}},
        {"array_of_strings_length_max",
         [](RawGguf& f) { add(f, 9, raw_array(8, kHuge, "")); },
         {"array length", "the.key", "18446744073709551615"}},
        {"array_bytes_overflow",
         [](RawGguf& f) { add(f, 9, raw_array(10, (1ull << 61) + 1, "")); },
         {"array length", "the.key", "2305843009213693953"}},
        {"string_in_an_array_past_the_end",
         [](RawGguf& f) { add(f, 9, raw_array(8, 2, raw_string("a") + raw(kHuge))); },
         {"the.key", "18446744073709551615"}},
        {"arrays_nested_10000_deep",
         [](RawGguf& f) { add(f, 9, nested_arrays(10'000)); },
         {"the.key", "nests arrays"}},
        {"alignment_0",
         [](RawGguf& f) {
             f.entries.push_back({"general.alignment", 4, raw(0u)});
         },
         {"general.alignment is 0", "power of two"}},
        {"alignment_1",
         [](RawGguf& f) {
             f.entries.push_back({"general.alignment", 4, raw(1u)});
         },
         {"general.alignment is 1", "power of two"}},
        {"alignment_13",
         [](RawGguf& f) {
             f.entries.push_back({"general.alignment", 4, raw(13u)});
         },
         {"general.alignment is 13", "power of two"}},
        {"alignment_2_30",
         [](RawGguf& f) {
             f.entries.push_back({"general.alignment", 4, raw(1u << 30)});
         },
         {"general.alignment is 1073741824", "power of two"}},
        {"alignment_2_31",
         [](RawGguf& f) {
             f.entries.push_back({"general.alignment", 4, raw(1u << 31)});
         },
         {"general.alignment is 2147483648", "power of two"}},
        {"alignment_signed",
         [](RawGguf& f) {
             f.entries.push_back({"general.alignment", 5, raw(32)});
         },
         {"general.alignment", "INT32", "UINT32"}},
        {"alignment_twice",
         [](RawGguf& f) {
             f.entries.push_back({"general.alignment", 4, raw(32u)});
             f.entries.push_back({"general.alignment", 4, raw(32u)});
         },
         {"general.alignment", "twice"}},
    };
}

std::vector<Fault> tensor_faults() {
    return {
        {"name_of_64_bytes",
         [](RawGguf& f) { f.tensors[1].name = std::string(64, 'n'); },
         {"name of tensor 1", "64", "63", "nnnn"}},
        {"name_of_1000_bytes",
         [](RawGguf& f) { f.tensors[1].name = std::string(1000, 'n'); },
         {"name of tensor 1", "1000", "63"}},
        {"name_empty", [](RawGguf& f) { f.tensors[1].name = ""; }, {"name of tensor 1", "is 0"}},
        {"name_twice",
         [](RawGguf& f) { f.tensors[1].name = "first.weight"; },
         {"first.weight", "twice"}},
        {"no_dims",
         [](RawGguf& f) { f.tensors[1].n_dims = 0; },
         {"n_dims", "second.weight", "is 0"}},
        {"n_dims_5",
         [](RawGguf& f) { f.tensors[1].n_dims = 5; },
         {"n_dims", "second.weight", "is 5"}},
        {"n_dims_max",
         [](RawGguf& f) { f.tensors[1].n_dims = UINT32_MAX; },
         {"n_dims", "second.weight", "4294967295"}},
        {"dim_0",
         [](RawGguf& f) {
             f.tensors[0].dims = {4, 0};
         },
         {"dimension 1", "first.weight", "is 0"}},
        {"dim_2_63",
         [](RawGguf& f) { f.tensors[0].dims = {1ull << 63}; },
         {"dimension 0", "first.weight", "9223372036854775808"}},
        {"dims_product_overflows",
         [](RawGguf& f) {
             f.tensors[0].dims = {1ull << 32, 1ull << 32};
         },
         {"dimensions", "first.weight", "4294967296"}},
        {"dims_product_above_int64",
         [](RawGguf& f) {
             f.tensors[0].dims = {1ull << 32, 1ull << 31};
         },
         {"dimensions", "first.weight", "4294967296"}},
        {"dims_bytes_overflow",
         [](RawGguf& f) {
             f.tensors[0].dims = {1ull << 31, 1ull << 31};
         },
         {"first.weight", "4611686018427387904"}},
        {"row_not_whole_blocks",
         [](RawGguf& f) { f.tensors[1].dims = {31}; },
         {"second.weight", "31", "multiple of 32", "Q4_0"}},
        {"rows_not_whole_blocks",  // the elements are, the rows are not
         [](RawGguf& f) {
             f.tensors[1].dims = {16, 2};
         },
         {"second.weight", "16", "multiple of 32", "Q4_0"}},
        {"type_4",
         [](RawGguf& f) { f.tensors[1].type = 4; },
         {"second.weight", "type 4", "no longer"}},
        {"type_5",
         [](RawGguf& f) { f.tensors[1].type = 5; },
         {"second.weight", "type 5", "no longer"}},
        {"type_255", [](RawGguf& f) { f.tensors[1].type = 255; }, {"second.weight", "type 255"}},
        {"type_of_ggml_that_is_not_read",
         [](RawGguf& f) { f.tensors[1].type = 16; },
         {"second.weight", "16", "IQ2_XXS", "expected one of", "Q4_K"}},
        {"type_of_integers",
         [](RawGguf& f) { f.tensors[1].type = 26; },
         {"second.weight", "26", "I32", "expected one of"}},
        {"offset_not_aligned",
         [](RawGguf& f) { f.tensors[1].offset = 33; },
         {"offset", "second.weight", "33", "multiple of 32"}},
        {"offset_past_the_end",
         [](RawGguf& f) { f.tensors[1].offset = 4096; },
         {"second.weight", "offset 4096", "ends at"}},
        {"offset_overflows",
         [](RawGguf& f) { f.tensors[1].offset = kHuge - 31; },
         {"second.weight", "18446744073709551584"}},
        {"offset_and_size_overflow",
         [](RawGguf& f) { f.tensors[1].offset = (kHuge - 31) - f.bytes().size() / 32 * 32; },
         {"second.weight", "offset"}},
        {"tensors_overlap",
         [](RawGguf& f) { f.tensors[1].offset = 0; },
         {"first.weight", "second.weight", "overlap"}},
        {"tensor_inside_another",
         [](RawGguf& f) {
             f.tensors[0].dims = {32};
             f.data.resize(128);
         },
         {"first.weight", "second.weight", "overlap"}},
        {"one_byte_short",
         [](RawGguf&) {},
         {"second.weight", "18 bytes"},
         [](std::string& b) { b.pop_back(); }},
        {"no_data", [](RawGguf& f) { f.data.clear(); }, {"first.weight", "32 bytes"}},
    };
}

void expect_refused(const Fault& fault) {
    SCOPED_TRACE(fault.name);
    RawGguf file;
    fault.edit(file);
    std::string bytes = file.bytes();
    fault.cut(bytes);
    TestFolder folder;
    std::string path = folder.write("model.bin", bytes);
    std::string from_file = open_error(path);
    expect_parts(from_file, {path});
    expect_parts(from_file, fault.says);
    std::string from_memory =
        error_of([&] { ModelFile::from_memory(image_of(bytes, "an image")); });
    expect_parts(from_memory, {"an image"});
    expect_parts(from_memory, fault.says);
}

TEST(GgufMalformed, the_file_that_the_faults_are_put_into_is_valid) {
    ModelFile file = ModelFile::from_memory(image_of(RawGguf().bytes(), "valid"));
    EXPECT_EQ(file.tensor_names(), (std::vector<std::string>{"first.weight", "second.weight"}));
}

TEST(GgufMalformed, a_wrong_header_is_refused_by_field_and_value) {
    for (const Fault& fault : header_faults()) expect_refused(fault);
}

TEST(GgufMalformed, wrong_metadata_is_refused_by_key_and_value) {
    for (const Fault& fault : metadata_faults()) expect_refused(fault);
}

TEST(GgufMalformed, a_wrong_tensor_is_refused_by_name_and_value) {
    for (const Fault& fault : tensor_faults()) expect_refused(fault);
}

TEST(GgufMalformed, a_header_cut_at_any_byte_is_refused) {
    RawGguf file;
    std::string bytes = file.bytes();
    for (size_t n = 0; n < bytes.size(); n++) {
        SCOPED_TRACE(n);
        std::string message =
            error_of([&] { ModelFile::from_memory(image_of(bytes.substr(0, n), "cut.gguf")); });
        expect_parts(message, {"cut.gguf"});
    }
}

TEST(GgufMalformed, text_of_the_file_reaches_no_terminal_unescaped) {
    RawGguf file;
    file.tensors[1].name = "\x1b[31m\nred";
    file.tensors[1].type = 255;
    std::string message =
        error_of([&] { ModelFile::from_memory(image_of(file.bytes(), "image")); });
    EXPECT_EQ(message.find('\x1b'), std::string::npos);
    expect_parts(message, {"\\x1b[31m\\x0ared"});
}

TEST(GgufMalformed, a_hundred_thousand_keys_and_tensors_take_no_quadratic_time) {
    RawGguf file;
    constexpr int kCount = 100'000;
    for (int i = 0; i < kCount; i++) {
        file.entries.push_back({"key." + std::to_string(i), 0, "x"});
        file.tensors.push_back(
            {"t" + std::to_string(i), {1}, 0, 64 + 32 * static_cast<uint64_t>(i)});
    }
    file.data.resize(64 + 32 * kCount);
    ModelFile model = ModelFile::from_memory(image_of(file.bytes(), "image"));
    EXPECT_EQ(model.tensor_names().size(), kCount + 2u);
    EXPECT_NE(model.find("t99999"), nullptr);
    EXPECT_EQ(model.metadata().find_u32("key.99999"), 'x');
}

TEST(GgufMalformed, more_entries_than_any_model_has_are_refused) {
    RawGguf file;
    for (int i = 0; i < 131'073; i++) file.entries.push_back({std::to_string(i), 0, "x"});
    expect_parts(error_of([&] { ModelFile::from_memory(image_of(file.bytes(), "image")); }),
                 {"n_kv is 131075", "131072"});
}

}  // namespace
}  // namespace ridge
