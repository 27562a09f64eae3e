#include "golden/sparse_file.h"

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "base/files.h"
#include "base/json.h"
#include "format/format.h"

namespace ridge {
namespace {

// Writes `bytes`, and then nothing up to `file_bytes`.
void write_sparse(const std::string& path, const std::string& bytes, uint64_t file_bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    std::filesystem::resize_file(path, file_bytes);
}

template <class Number>
void put(std::string& out, Number value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_string(std::string& out, const std::string& text) {
    put(out, uint64_t{text.size()});
    out += text;
}

// GGUF, written out here by the book and apart from the product's own writer.

uint32_t value_type(const std::string& name) {
    if (name == "u32") return 4;
    if (name == "i32") return 5;
    if (name == "f32") return 6;
    if (name == "bool") return 7;
    CHECK(name == "string");
    return 8;
}

void put_value(std::string& out, const std::string& type, const Json& value) {
    if (type == "u32") {
        put(out, value.get<uint32_t>());
    } else if (type == "i32") {
        put(out, value.get<int32_t>());
    } else if (type == "f32") {
        put(out, value.get<float>());
    } else if (type == "bool") {
        put(out, static_cast<uint8_t>(value.get<bool>()));
    } else {
        put_string(out, value.get<std::string>());
    }
}

void put_array(std::string& out, const std::string& type, const Json& value) {
    put(out, uint32_t{9});
    put(out, value_type(type));
    if (value.is_array()) {
        put(out, uint64_t{value.size()});
        for (const Json& element : value) put_value(out, type, element);
    } else if (value.contains("filler")) {
        auto n = value.at("filler").get<uint64_t>();
        put(out, n);
        for (uint64_t i = 0; i < n; i++) put_string(out, "filler " + std::to_string(i));
    } else {
        auto n = value.at("n").get<uint64_t>();
        put(out, n);
        for (uint64_t i = 0; i < n; i++) put_value(out, type, value.at("repeat"));
    }
}

uint64_t round_up(uint64_t value, uint64_t step) {
    return (value + step - 1) / step * step;
}

struct SparseTensor {
    std::string name;
    std::vector<int64_t> shape;  // row-major
    const Format* format;
    uint64_t offset;  // from the start of the tensors
    uint64_t n_bytes;
};

std::vector<SparseTensor> lay_out_tensors(const Json& list, uint64_t alignment) {
    std::vector<SparseTensor> tensors;
    uint64_t offset = 0;
    for (const Json& item : list) {
        SparseTensor tensor{item.at(0), item.at(1), find_format(item.at(2).get<std::string>()),
                            offset, 0};
        CHECK(tensor.format != nullptr);
        int64_t n_rows = 1;
        for (size_t i = 0; i + 1 < tensor.shape.size(); i++) n_rows *= tensor.shape[i];
        tensor.n_bytes =
            static_cast<uint64_t>(n_rows * row_bytes(*tensor.format, tensor.shape.back()));
        offset = round_up(offset + tensor.n_bytes, alignment);
        tensors.push_back(tensor);
    }
    return tensors;
}

std::string gguf_header(const Json& description, const std::vector<SparseTensor>& tensors) {
    std::string out = "GGUF";
    put(out, uint32_t{3});
    put(out, uint64_t{tensors.size()});
    put(out, uint64_t{description.at("metadata").size()});
    for (const Json& item : description.at("metadata")) {
        put_string(out, item.at(0));
        std::string type = item.at(1);
        if (type.ends_with("[]")) {
            put_array(out, type.substr(0, type.size() - 2), item.at(2));
        } else {
            put(out, value_type(type));
            put_value(out, type, item.at(2));
        }
    }
    for (const SparseTensor& tensor : tensors) {
        put_string(out, tensor.name);
        put(out, static_cast<uint32_t>(tensor.shape.size()));
        for (size_t i = tensor.shape.size(); i-- > 0;)
            put(out, static_cast<uint64_t>(tensor.shape[i]));
        put(out, static_cast<uint32_t>(tensor.format->gguf_type));
        put(out, tensor.offset);
    }
    return out;
}

std::string make_gguf(const Json& description, const std::string& folder) {
    auto alignment = description.at("alignment").get<uint64_t>();
    auto tensors = lay_out_tensors(description.at("tensors"), alignment);
    std::string header = gguf_header(description, tensors);
    uint64_t start = round_up(header.size(), alignment);
    std::string path = folder + "/model.gguf";
    write_sparse(path, header, start + tensors.back().offset + tensors.back().n_bytes);
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    for (const SparseTensor& tensor : tensors) {
        if (!description.at("values").contains(tensor.name)) continue;
        CHECK(tensor.format->id == FormatId::kF32);
        std::string bytes;
        for (const Json& value : description.at("values").at(tensor.name))
            put(bytes, value.get<float>());
        CHECK(bytes.size() == tensor.n_bytes);
        file.seekp(static_cast<std::streamoff>(start + tensor.offset));
        file << bytes;
    }
    return path;
}

// safetensors: the header as the safetensors library writes it.
std::string make_folder(const Json& description, const std::string& folder) {
    write_file(folder + "/config.json", description.at("config").dump(), false);
    write_file(folder + "/generation_config.json", description.at("generation_config").dump(),
               false);
    Json weight_map = Json::object();
    uint64_t total_bytes = 0;
    for (const Json& file : description.at("files")) {
        Json header = {{"__metadata__", {{"format", "pt"}}}};
        uint64_t at = 0;
        for (const Json& tensor : file.at("tensors")) {
            uint64_t n_bytes = 2;
            for (const Json& dimension : tensor.at(1)) n_bytes *= dimension.get<uint64_t>();
            header[tensor.at(0).get<std::string>()] = {{"dtype", file.at("dtype")},
                                                       {"shape", tensor.at(1)},
                                                       {"data_offsets", {at, at + n_bytes}}};
            weight_map[tensor.at(0).get<std::string>()] = file.at("name");
            at += n_bytes;
        }
        total_bytes += at;
        std::string text = header.dump();
        text.resize(round_up(text.size(), 8), ' ');
        std::string bytes;
        put(bytes, uint64_t{text.size()});
        CHECK(8 + text.size() + at == file.at("file_bytes").get<uint64_t>());
        write_sparse(folder + "/" + file.at("name").get<std::string>(), bytes + text,
                     file.at("file_bytes").get<uint64_t>());
    }
    if (description.at("files").size() > 1) {
        Json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}};
        write_file(folder + "/model.safetensors.index.json", index.dump(), false);
    }
    return folder;
}

}  // namespace

std::string make_sparse_model(const std::string& description, const std::string& folder) {
    Json json = parse_json(read_file(description, uint64_t{1} << 20), description);
    return json.at("kind") == "gguf" ? make_gguf(json, folder) : make_folder(json, folder);
}

}  // namespace ridge
