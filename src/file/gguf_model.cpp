#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/printable.h"
#include "file/content.h"
#include "file/model_parts.h"
#include "file/paths.h"

namespace ridge {
namespace {

constexpr uint32_t kMaxParts = 1000;

Tensor view_of(const GgufTensorInfo& info, const MappedFile& file) {
    Tensor tensor;
    tensor.name = std::string(info.name);
    tensor.format = info.format;
    tensor.layout = &row_major_layout();
    tensor.n_dims = info.n_dims;
    tensor.shape = info.shape;
    tensor.planes[0] = {file.bytes().data() + info.offset,
                        row_bytes(*info.format, tensor.n_cols())};
    return tensor;
}

void add_file(ModelParts& model, MappedFile file, const std::vector<GgufTensorInfo>& tensors) {
    for (const GgufTensorInfo& info : tensors) {
        model.names.emplace_back(info.name);
        model.tensors.push_back(view_of(info, file));
    }
    model.files.push_back(std::move(file));
}

// What a part says of itself. split.count is 0 or absent in a file that is whole (0 where parts
// were merged again).
struct SplitKeys {
    uint32_t number;  // from 0
    uint32_t count;
    std::optional<uint64_t> n_tensors;  // over all parts
};

SplitKeys split_keys(const GgufMetadata& metadata) {
    SplitKeys keys = {};
    keys.number = metadata.find_u32("split.no").value_or(0);
    keys.count = metadata.find_u32("split.count").value_or(0);
    keys.n_tensors = metadata.find_u64("split.tensors.count");
    if (keys.count > kMaxParts) {
        throw Error("{}: split.count is {}, expected at most {}", metadata.file(), keys.count,
                    kMaxParts);
    }
    if (keys.number >= std::max(keys.count, 1u)) {
        throw Error("{}: split.no is {}, expected less than split.count, which is {}",
                    metadata.file(), keys.number, keys.count);
    }
    return keys;
}

void check_part(const GgufMetadata& metadata, const SplitKeys& found, uint32_t number,
                uint32_t count) {
    if (found.number != number) {
        throw Error("{}: split.no is {}, expected {} as the file's name says (counted from 0)",
                    metadata.file(), found.number, number);
    }
    if (found.count != count) {
        throw Error("{}: split.count is {}, expected {} as the file's name and its first part say",
                    metadata.file(), found.count, count);
    }
}

GgufFile read_part(const MappedFile& file) {
    if (content_of(file.bytes()) != Content::kGguf) {
        refuse_content(file.path(), file.bytes(), "the magic \"GGUF\" of a part of a split model");
    }
    return read_gguf(file.bytes(), file.path());
}

ModelParts open_split(MappedFile given, const GgufMetadata& given_metadata, SplitKeys keys) {
    std::optional<SplitName> name = parse_split_name(given.path());
    if (!name) {
        throw Error(
            "{}: split.count is {}, but the file's name does not end in "
            "-{:05}-of-{:05}.gguf, by which the other parts are found",
            given_metadata.file(), keys.count, keys.number + 1, keys.count);
    }
    if (name->count != keys.count) {
        throw Error("{}: split.count is {}, but the file's name says {} parts",
                    given_metadata.file(), keys.count, name->count);
    }
    ModelParts model;
    std::vector<std::pair<std::string, uint64_t>> promised;  // split.tensors.count, by part
    for (uint32_t i = 0; i < keys.count; i++) {
        std::string path =
            fmt::format("{}-{:05}-of-{:05}{}", name->prefix, i + 1, keys.count, name->suffix);
        if (file_kind(path) == FileKind::kMissing) {
            throw Error("{}: is missing: part {} of {} of a split model", printable(path, 0), i + 1,
                        keys.count);
        }
        MappedFile file = MappedFile::open(path);
        GgufFile part = read_part(file);
        SplitKeys part_keys = split_keys(part.metadata);
        check_part(part.metadata, part_keys, i, keys.count);
        if (part_keys.n_tensors) promised.emplace_back(path, *part_keys.n_tensors);
        add_file(model, std::move(file), part.tensors);
        if (i == 0) model.metadata.emplace(std::move(part.metadata));
    }
    for (const auto& [path, n_tensors] : promised) {
        if (n_tensors != model.tensors.size()) {
            throw Error("{}: split.tensors.count is {}, but the {} parts hold {} tensors",
                        printable(path, 0), n_tensors, keys.count, model.tensors.size());
        }
    }
    return model;
}

}  // namespace

ModelParts open_gguf_model(MappedFile file) {
    GgufFile gguf = read_part(file);
    SplitKeys keys = split_keys(gguf.metadata);
    if (keys.count > 1) return open_split(std::move(file), gguf.metadata, keys);
    ModelParts model;
    add_file(model, std::move(file), gguf.tensors);
    model.metadata.emplace(std::move(gguf.metadata));
    return model;
}

}  // namespace ridge
