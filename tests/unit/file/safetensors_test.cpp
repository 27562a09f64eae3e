#include "file/safetensors.h"

#include "base/timer.h"
#include "raw_gguf.h"
#include "test_files.h"

namespace ridge {
namespace {

std::string file_of(const std::string& header, size_t n_data_bytes) {
    return raw<uint64_t>(header.size()) + header + std::string(n_data_bytes, 'd');
}

std::vector<SafetensorsTensor> read(const std::string& bytes) {
    return read_safetensors(std::as_bytes(std::span(bytes)), "model.safetensors");
}

void expect_refused(const std::string& bytes, const std::vector<std::string>& says) {
    std::string message = error_of([&] { read(bytes); });
    expect_parts(message, {"model.safetensors: "});
    expect_parts(message, says);
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& range) {
    return '"' + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape +
           R"(,"data_offsets":)" + range + '}';
}

TEST(Safetensors, names_types_shapes_and_ranges_are_read_in_the_order_of_the_data) {
    std::string header = '{' + entry("b", "BF16", "[2, 3]", "[8,20]") + ',' +
                         R"("__metadata__":{"format":"pt","deep":[{"dtype":[1]}]},)" +
                         entry("a", "F32", "[1,2]", "[0,8]") + ',' +
                         entry("none", "I64", "[0,5]", "[8,8]") + ',' +
                         R"("s":{"shape":[],"extra":{"x":[1,[2]]},"data_offsets":[20,24],)" +
                         R"("dtype":"F32","more":null}}   )";
    auto tensors = read(file_of(header, 24));
    ASSERT_EQ(tensors.size(), 4u);
    EXPECT_EQ(tensors[0].name, "a");
    EXPECT_EQ(tensors[0].offset, 8 + header.size());
    EXPECT_EQ(tensors[0].n_bytes, 8u);
    EXPECT_EQ(tensors[1].name, "none");
    EXPECT_TRUE(tensors[1].empty());
    EXPECT_EQ(tensors[2].name, "b");
    EXPECT_EQ(tensors[2].type->name, "BF16");
    EXPECT_EQ(tensors[2].n_dims, 2);
    EXPECT_EQ(tensors[2].shape[0], 2);
    EXPECT_EQ(tensors[2].shape[1], 3);
    EXPECT_EQ(tensors[3].name, "s");
    EXPECT_EQ(tensors[3].n_dims, 0);
    EXPECT_EQ(tensors[3].offset, 8 + header.size() + 20);
    EXPECT_TRUE(read(file_of("{}", 0)).empty());
}

TEST(Safetensors, a_wrong_header_length_is_refused) {
    expect_refused("", {"0 bytes"});
    expect_refused("1234567", {"7 bytes"});
    expect_refused(raw<uint64_t>(0) + "{}", {"header length is 0"});
    expect_refused(raw<uint64_t>(3) + "{}", {"header length is 3", "2 bytes left"});
    expect_refused(raw<uint64_t>(100'000'001) + "{}", {"header length is 100000001", "100000000"});
    expect_refused(raw(UINT64_MAX) + "{}", {"header length is 18446744073709551615"});
}

TEST(Safetensors, what_is_no_json_object_of_tensors_is_refused) {
    expect_refused(file_of("[]", 0), {"array", "object"});
    expect_refused(file_of("12", 0), {"12", "object"});
    expect_refused(file_of("\"ab\"", 0), {"\"ab\"", "object"});
    expect_refused(file_of("null", 0), {"null", "object"});
    expect_refused(file_of("{", 0), {"header length is 1"});
    expect_refused(file_of("{ ", 0), {"not valid JSON"});
    expect_refused(file_of("{}{}", 0), {"not valid JSON"});
    expect_refused(file_of("{\"\x80\":1}", 0), {"not valid JSON"});
    expect_refused(file_of(R"({"a":1})", 0), {"tensor a is 1", "object"});
    expect_refused(file_of(R"({"a":[1]})", 0), {"tensor a is an array", "object"});
    expect_refused(file_of(R"({"a":{}})", 0), {"tensor a has no dtype"});
    expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[1]}})", 4),
                   {"tensor a has no data_offsets"});
    expect_refused(file_of(R"({"a":{"dtype":1}})", 0), {"dtype of tensor a is 1", "string"});
    expect_refused(file_of(R"({"a":{"dtype":["F32"]}})", 0), {"dtype of tensor a is an array"});
    expect_refused(file_of(R"({"a":{"shape":{}}})", 0), {"shape of tensor a is an object"});
    expect_refused(file_of(R"({"a":{"shape":"x"}})", 0), {"shape of tensor a is \"x\""});
    expect_refused(file_of(R"({"a":{"shape":[[1]]}})", 0), {"shape of tensor a"});
    expect_refused(file_of(R"({"a":{"shape":[-1]}})", 0), {"shape of tensor a", "-1"});
    expect_refused(file_of(R"({"a":{"shape":[1.5]}})", 0), {"shape of tensor a", "1.5"});
    expect_refused(file_of(R"({"a":{"shape":[1e30]}})", 0), {"shape of tensor a", "1e30"});
    expect_refused(file_of(R"({"a":{"shape":[18446744073709551616]}})", 0),
                   {"shape of tensor a", "18446744073709551616"});
    expect_refused(file_of(R"({"a":{"shape":[1,1,1,1,1]}})", 0), {"shape of tensor a", "4"});
    expect_refused(file_of(R"({"a":{"shape":[1],"shape":[1]}})", 0),
                   {"shape of tensor a", "twice"});
    expect_refused(file_of(R"({"a":{"data_offsets":[1]}})", 0),
                   {"data_offsets of tensor a is [1]"});
    expect_refused(file_of(R"({"a":{"data_offsets":[1,2,3]}})", 0), {"data_offsets of tensor a"});
}

TEST(Safetensors, json_nested_ten_thousand_deep_is_refused) {
    std::string open(10'000, '['), close(10'000, ']');
    expect_refused(file_of(open + close, 0), {"array"});
    expect_refused(file_of(R"({"__metadata__":)" + open + close + '}', 0), {"nested deeper"});
    expect_refused(file_of(R"({"a":{"x":)" + open + close + "}}", 0), {"nested deeper"});
    std::string objects;
    for (int i = 0; i < 10'000; i++) objects += R"({"a":)";
    expect_refused(file_of(objects, 0), {"nested deeper"});
}

TEST(Safetensors, a_dtype_or_shape_that_does_not_give_the_range_is_refused) {
    expect_refused(file_of('{' + entry("a", "F33", "[1]", "[0,4]") + '}', 4),
                   {"dtype of tensor a", "F33"});
    expect_refused(file_of('{' + entry("a", "F32", "[2]", "[0,4]") + '}', 4),
                   {"data_offsets of tensor a", "4 bytes", "expected 8", "[2] of F32"});
    expect_refused(file_of('{' + entry("a", "F32", "[]", "[0,8]") + '}', 8),
                   {"data_offsets of tensor a", "8 bytes", "expected 4"});
    expect_refused(file_of('{' + entry("a", "F32", "[9223372036854775807,4]", "[0,8]") + '}', 8),
                   {"data_offsets of tensor a", "9223372036854775807"});
    expect_refused(file_of('{' + entry("a", "F4", "[3]", "[0,1]") + '}', 1),
                   {"data_offsets of tensor a", "[3] of F4"});
}

TEST(Safetensors, ranges_that_overlap_leave_holes_or_pass_the_end_are_refused) {
    auto two = [](const std::string& first, const std::string& second) {
        return '{' + entry("a", "F32", "[2]", first) + ',' + entry("b", "F32", "[2]", second) + '}';
    };
    EXPECT_EQ(read(file_of(two("[8,16]", "[0,8]"), 16)).size(), 2u);
    expect_refused(file_of(two("[0,8]", "[4,12]"), 16),
                   {"tensor b", "begin at 4", "inside tensor a"});
    expect_refused(file_of(two("[0,8]", "[0,8]"), 8),
                   {"tensor b", "begin at 0", "inside tensor a"});
    expect_refused(file_of(two("[0,8]", "[12,20]"), 20), {"tensor b", "begin at 12", "hole"});
    expect_refused(file_of(two("[4,12]", "[12,20]"), 20), {"tensor a", "begin at 4", "hole"});
    expect_refused(file_of(two("[0,8]", "[16,8]"), 16), {"data_offsets of tensor b", "[16, 8]"});
    expect_refused(file_of(two("[0,8]", "[8,16]"), 15), {"tensor b", "[8, 16]", "15 bytes"});
    expect_refused(file_of(two("[0,8]", "[18446744073709551608,18446744073709551615]"), 16),
                   {"tensor b"});
    expect_refused(file_of(two("[0,8]", "[8,16]"), 17), {"16 bytes", "17 bytes"});
}

TEST(Safetensors, a_name_given_twice_is_refused) {
    expect_refused(file_of('{' + entry("a", "F32", "[1]", "[0,4]") + ',' +
                               entry("a", "F32", "[1]", "[4,8]") + '}',
                           8),
                   {"tensor a", "twice"});
}

TEST(Safetensors, a_hundred_thousand_empty_tensors_are_read_in_a_moment) {
    std::string header = "{";
    for (int i = 0; i < 100'000; i++) {
        header += entry("empty." + std::to_string(i), "F32", "[0]", "[0,0]") + ',';
    }
    header += entry("a", "F32", "[1]", "[0,4]") + '}';
    Timer timer;
    EXPECT_EQ(read(file_of(header, 4)).size(), 100'001u);
    EXPECT_LT(timer.elapsed_ms(), 20'000);  // well under 1 s; a quadratic scan takes minutes
}

TEST(Safetensors, more_tensors_than_any_model_has_are_refused) {
    std::string header = "{";
    for (int i = 0; i < 140'000; i++) {
        header += entry(std::to_string(i), "F32", "[0]", "[0,0]") + ',';
    }
    header.back() = '}';
    expect_refused(file_of(header, 0), {"131072"});
}

TEST(Safetensors, a_file_cut_at_any_byte_is_refused) {
    std::string bytes = file_of('{' + entry("a", "F32", "[2]", "[0,8]") + '}', 8);
    for (size_t n = 0; n < bytes.size(); n++) {
        SCOPED_TRACE(n);
        expect_refused(bytes.substr(0, n), {});
    }
}

TEST(Safetensors, text_of_the_file_reaches_no_terminal_unescaped) {
    std::string message = error_of(
        [&] { read(file_of('{' + entry("\\u001b[31m", "F32", "[2]", "[0,4]") + '}', 4)); });
    EXPECT_EQ(message.find('\x1b'), std::string::npos);
    expect_parts(message, {"\\x1b[31m"});
}

}  // namespace
}  // namespace ridge
