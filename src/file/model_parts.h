#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "file/gguf.h"
#include "format/tensor.h"

namespace ridge {

// What the readers of the two kinds of model hand to ModelFile.
struct ModelParts {
    std::vector<MappedFile> files;
    std::vector<std::string> names;  // canonical, distinct
    std::vector<Tensor> tensors;     // parallel to names; they point into files

    std::optional<GgufMetadata> metadata;  // GGUF

    Json config;  // safetensors; these four are empty for GGUF
    std::optional<Json> generation_config, tokenizer_config, chat_template_json;
    std::optional<std::string> chat_template_jinja;
    std::optional<std::string> tokenizer_json_path;
};

std::string join_path(const std::string& folder, const std::string& name);
std::string folder_of(const std::string& path);  // "." where the path has none
std::string base_name(const std::string& path);

// A GGUF model whose file, or whose part, is `file`. Split parts are found beside it.
ModelParts open_gguf_model(MappedFile file);
// True for NAME-00002-of-00003.gguf and any other suffix; splits the name.
struct SplitName {
    std::string prefix, suffix;  // "NAME", ".gguf"
    uint32_t number, count;      // 2, 3
};
std::optional<SplitName> parse_split_name(const std::string& path);

// A safetensors model: config.json and the rest in `folder`, tensors in the named files of it.
ModelParts open_safetensors_folder(const std::string& folder);
// A single safetensors file, its config.json beside it.
ModelParts open_safetensors_file(MappedFile file);

// The model that a folder holds, as ModelFile::open describes.
struct FolderModel {
    std::string folder;     // a cache folder's snapshot, or the folder itself
    std::string gguf_path;  // empty: safetensors
};
FolderModel find_folder_model(const std::string& path);

}  // namespace ridge
