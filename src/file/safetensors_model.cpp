#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/printable.h"
#include "file/content.h"
#include "file/huggingface_names.h"
#include "file/mlx.h"
#include "file/model_parts.h"
#include "file/paths.h"
#include "file/safetensors.h"
#include "format/affine.h"

namespace ridge {
namespace {

constexpr size_t kMaxShards = 1000;
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

// A tensor of one of the files, as it stands there.
struct StoredTensor {
    SafetensorsTensor info;
    const MappedFile* file;

    const std::byte* data() const { return file->bytes().data() + info.offset; }
    std::string file_text() const { return printable(file->path(), 0); }
    std::string text() const {  // "tensor NAME", for errors
        return "tensor " + printable(info.name);
    }
    std::string shape() const { return shape_text(info.dims()); }
};

std::optional<FormatId> float_format(const SafetensorsType& type) {
    if (type.name == "F32") return FormatId::kF32;
    if (type.name == "F16") return FormatId::kF16;
    if (type.name == "BF16") return FormatId::kBF16;
    return std::nullopt;
}

bool is_codes(const StoredTensor& tensor) {
    return tensor.info.type->name == "U32" && tensor.info.name.ends_with(".weight");
}

// All tensors of the model's files by name, and what turns them into the model's tensors.
class Assembler {
  public:
    Assembler(ModelParts& model, std::vector<StoredTensor> stored)
        : model_(model),
          stored_(std::move(stored)),
          by_name_(stored_.size()),
          quantization_(model.jsons) {
        for (const StoredTensor& tensor : stored_) by_name_.add(tensor.info.name);
        if (auto twice = by_name_.sort()) {
            throw Error("{}: {} is in another file of the model, too", stored_[*twice].file_text(),
                        stored_[*twice].text());
        }
    }

    void run() {
        for (const StoredTensor& tensor : stored_) {
            if (is_left_out(tensor)) continue;
            model_.names.push_back(canonical_name(tensor.info.name));
            model_.tensors.push_back(is_codes(tensor) ? affine(tensor) : dense(tensor));
        }
    }

  private:
    const StoredTensor* find(const std::string& name) const {
        auto found = by_name_.find(name);
        return found ? &stored_[*found] : nullptr;
    }

    // Holds nothing, is computed from the configuration, or is a plane of a quantised weight.
    bool is_left_out(const StoredTensor& tensor) const {
        const std::string& name = tensor.info.name;
        if (tensor.info.empty() || name.ends_with(".rotary_emb.inv_freq")) return true;
        for (std::string_view plane : {".scales", ".biases"}) {
            if (!name.ends_with(plane)) continue;
            const StoredTensor* weight =
                find(name.substr(0, name.size() - plane.size()) + ".weight");
            if (weight != nullptr && is_codes(*weight)) return true;
        }
        return false;
    }

    Tensor dense(const StoredTensor& stored) const {
        const SafetensorsTensor& info = stored.info;
        std::optional<FormatId> format = float_format(*info.type);
        if (!format) {
            throw Error(
                "{}: {} has dtype {}, expected F32, F16, BF16, or U32 codes (X.weight) with "
                "X.scales and X.biases",
                stored.file_text(), stored.text(), info.type->name);
        }
        if (info.name.ends_with(".weight")) {
            const StoredTensor* scales =
                find(info.name.substr(0, info.name.size() - 7) + ".scales");
            if (scales != nullptr && !scales->info.empty()) {
                throw Error("{}: {} has dtype {}, expected U32 codes, since there are {}",
                            stored.file_text(), stored.text(), info.type->name,
                            printable(scales->info.name));
            }
        }
        Tensor tensor;
        tensor.name = info.name;
        tensor.format = &format_of(*format);
        tensor.layout = &row_major_layout();
        tensor.n_dims = std::max(info.n_dims, 1);  // a scalar is one element
        tensor.shape = info.shape;
        if (info.n_dims == 0) tensor.shape = {1};
        tensor.planes[0] = {stored.data(), row_bytes(*tensor.format, tensor.n_cols())};
        return tensor;
    }

    // One plane of scales or biases: [n_rows, n_groups] in a float format.
    const StoredTensor& float_plane(const StoredTensor& codes, const std::string& name) const {
        const StoredTensor* plane = find(name);
        if (plane == nullptr) {
            throw Error("{}: {} has dtype U32, but there is no {}: codes need scales and biases",
                        codes.file_text(), codes.text(), printable(name));
        }
        if (!float_format(*plane->info.type)) {
            throw Error("{}: {} has dtype {}, expected F32, F16 or BF16", plane->file_text(),
                        plane->text(), plane->info.type->name);
        }
        return *plane;
    }

    Tensor affine(const StoredTensor& codes) const {
        std::string module = codes.info.name.substr(0, codes.info.name.size() - 7);  // .weight
        std::optional<AffineShape> quantized = quantization_.of(module);
        if (!quantized) {
            throw Error("{}: {} has dtype U32, but {} says that it is not quantised",
                        codes.file_text(), codes.text(), printable(model_.jsons.config_path, 0));
        }
        const StoredTensor& scales = float_plane(codes, module + ".scales");
        const StoredTensor& biases = float_plane(codes, module + ".biases");
        if (codes.info.n_dims != 2) {
            throw Error("{}: {} has shape {}, expected [rows, words]", codes.file_text(),
                        codes.text(), codes.shape());
        }
        const int64_t n_rows = codes.info.shape[0], n_words = codes.info.shape[1];
        const int64_t n_cols = n_words * (32 / quantized->bits);  // words fit the file: no overflow
        const std::array<int64_t, 4> expected = {n_rows, n_cols / quantized->group_size, 0, 0};
        for (const StoredTensor* plane : {&scales, &biases}) {
            if (plane->info.n_dims == 2 && plane->info.shape == expected &&
                n_cols % quantized->group_size == 0) {
                continue;
            }
            throw Error(
                "{}: {} has shape {}, expected [{}, {}]: {} has {} words a row, of {} bits "
                "in groups of {}",
                plane->file_text(), plane->text(), plane->shape(), n_rows,
                n_cols / quantized->group_size, codes.text(), n_words, quantized->bits,
                quantized->group_size);
        }
        if (scales.info.type != biases.info.type) {
            throw Error("{}: {} has dtype {}, expected {} as the scales", biases.file_text(),
                        biases.text(), biases.info.type->name, scales.info.type->name);
        }
        Tensor tensor;
        tensor.name = codes.info.name;
        tensor.format = &format_of(quantized->bits == 4 ? FormatId::kAffine4 : FormatId::kAffine8);
        tensor.layout = &row_major_layout();
        tensor.n_dims = 2;
        tensor.shape = {n_rows, n_cols};
        tensor.group_size = quantized->group_size;
        tensor.scale_format = *float_format(*scales.info.type);
        const int64_t plane_stride = row_bytes(format_of(tensor.scale_format), expected[1]);
        tensor.planes[0] = {codes.data(), n_words * 4};
        tensor.planes[1] = {scales.data(), plane_stride};
        tensor.planes[2] = {biases.data(), plane_stride};
        return tensor;
    }

    ModelParts& model_;
    std::vector<StoredTensor> stored_;
    NameIndex by_name_;
    MlxQuantization quantization_;
};

// Which of a model's files holds which tensor.
struct ShardIndex {
    std::string path;
    std::vector<std::pair<std::string, std::string>> tensors;  // name, file; sorted by file
};

ShardIndex read_index(const std::string& folder) {
    ShardIndex index;
    index.path = join_path(folder, kIndexName);
    std::string what = printable(index.path, 0);
    JsonMap json = parse_json_map(read_text_file(index.path), what);
    if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
        throw Error("{}: has no object weight_map", what);
    }
    for (const auto& item : json["weight_map"].items()) {
        if (!item.value().is_string() || !is_plain_name(item.value().get<std::string>())) {
            throw Error(
                "{}: weight_map has tensor {} in {}, expected the name of a file of the same "
                "folder",
                what, printable(item.key()), printable(item.value().dump()));
        }
        index.tensors.emplace_back(item.key(), item.value().get<std::string>());
    }
    if (index.tensors.empty()) throw Error("{}: weight_map is empty", what);
    std::stable_sort(index.tensors.begin(), index.tensors.end(),
                     [](const auto& a, const auto& b) { return a.second < b.second; });
    return index;
}

std::vector<std::string> file_names(const ShardIndex& index) {
    std::vector<std::string> names;
    for (const auto& [tensor, file] : index.tensors) {
        if (names.empty() || names.back() != file) names.push_back(file);
    }
    if (names.size() > kMaxShards) {
        throw Error("{}: weight_map names {} files, expected at most {}", printable(index.path, 0),
                    names.size(), kMaxShards);
    }
    return names;
}

MappedFile map_safetensors(const std::string& path) {
    MappedFile file = MappedFile::open(path);
    if (content_of(file.bytes()) != Content::kSafetensors) {
        refuse_content(path, file.bytes(), "a safetensors file");
    }
    return file;
}

void check_index(const ShardIndex& index, const std::vector<StoredTensor>& stored) {
    NameIndex names(stored.size());
    for (const StoredTensor& tensor : stored) names.add(tensor.info.name);
    names.sort();  // Assembler reports a name that is there twice
    for (const auto& [name, file] : index.tensors) {
        auto found = names.find(name);
        if (found && base_name(stored[*found].file->path()) == file) continue;
        throw Error("{}: weight_map has tensor {} in {}, which does not hold it",
                    printable(index.path, 0), printable(name), printable(file));
    }
}

// Opens the files; `index` where there is one.
ModelParts open_files(const std::string& folder, std::vector<MappedFile> files,
                      const ShardIndex* index) {
    ModelParts model;
    model.jsons = read_folder_jsons(folder);
    model.files = std::move(files);
    std::vector<StoredTensor> stored;
    for (const MappedFile& file : model.files) {
        for (SafetensorsTensor& tensor : read_safetensors(file.bytes(), file.path())) {
            stored.push_back({std::move(tensor), &file});
        }
    }
    if (index != nullptr) check_index(*index, stored);
    Assembler(model, std::move(stored)).run();
    return model;
}

ModelParts open_index(const std::string& folder, const ShardIndex& index) {
    std::vector<MappedFile> files;
    for (const std::string& name : file_names(index)) {
        files.push_back(map_safetensors(join_path(folder, name)));
    }
    return open_files(folder, std::move(files), &index);
}

bool folder_has(const std::string& folder, std::string_view name) {
    std::vector<std::string> names = list_folder(folder);
    return std::binary_search(names.begin(), names.end(), name);
}

}  // namespace

ModelParts open_safetensors_folder(const std::string& folder) {
    if (!folder_has(folder, kSingleName)) return open_index(folder, read_index(folder));
    std::vector<MappedFile> files;
    files.push_back(map_safetensors(join_path(folder, kSingleName)));
    return open_files(folder, std::move(files), nullptr);
}

ModelParts open_safetensors_file(MappedFile file) {
    std::string folder = folder_of(file.path()), name = base_name(file.path());
    if (folder_has(folder, kIndexName)) {
        ShardIndex index = read_index(folder);
        bool is_shard = std::any_of(index.tensors.begin(), index.tensors.end(),
                                    [&](const auto& tensor) { return tensor.second == name; });
        if (is_shard) return open_index(folder, index);
    }
    std::vector<MappedFile> files;
    files.push_back(std::move(file));
    return open_files(folder, std::move(files), nullptr);
}

}  // namespace ridge
